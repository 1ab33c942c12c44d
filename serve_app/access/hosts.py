"""Checks the headers ``Host`` and ``Origin``.

With DNS rebinding, another site's page reaches this service under the page's own name, as if both were one site. The
``Host`` header then has that name, so names that are not configured are refused. An IP address in ``Host`` is safe:
rebinding needs a DNS name, because a browser connects to the address in the URL.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import urlsplit

from serve_app.errors import BadHost, CrossOrigin, WrongHost

MAX_SHOWN = 80  # characters of a header in a message
DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,255}))(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host and its port.

    Attributes:
        name: in lower case, without brackets and without a dot at its end.
        port: None for the scheme's default.
    """

    name: str
    port: int | None
    is_address: bool


def parse_host_port(text: str) -> HostPort:
    """Parse ``HOST`` or ``HOST:PORT``.

    Raises:
        ValueError: it is neither.
    """
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError("expected HOST or HOST:PORT")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise ValueError("expected a port of at most 65535")
    if match["v6"]:
        return HostPort(str(IPv6Address(match["v6"])), port, True)
    name = match["name"].lower().removesuffix(".")
    if not name:
        raise ValueError("expected HOST or HOST:PORT")
    try:
        return HostPort(str(IPv4Address(name)), port, True)
    except AddressValueError:
        return HostPort(name, port, False)


class Hosts:
    """The host names of this service.

    Args:
        names: ``NAME`` or ``NAME:PORT``. The port matters only for ``Origin``: without one, pages with that name on the
            default ports may send changes.
        own: the address that the service listens on; empty: none.
        external_url: URL under which people reach the service, even if a proxy changes ``Host``.

    Raises:
        ValueError: a name is malformed.
    """

    def __init__(self, names: Iterable[str], own: str = "", external_url: str | None = None) -> None:
        places = [parse_host_port(name) for name in names]
        self._names = frozenset({"localhost", own.lower(), *(place.name for place in places)})
        self._origins = frozenset(
            (scheme, place.name, place.port or port) for place in places for scheme, port in DEFAULT_PORTS.items()
        )
        if external_url:
            parts = urlsplit(external_url)
            place = parse_host_port(parts.netloc.rpartition("@")[2])
            self._names |= {place.name}
            self._origins |= {(parts.scheme, place.name, place.port or DEFAULT_PORTS[parts.scheme])}

    def check_host(self, host: str | None, http_version: str) -> HostPort | None:
        """Parse and check ``Host``. It may be missing in HTTP/1.0 only, which no browser uses.

        Raises:
            BadHost: it is missing or malformed. WrongHost: it is not one of this service's names.
        """
        if host is None and http_version == "1.0":
            return None
        try:
            place = parse_host_port(host or "")
        except ValueError:
            value = "none" if host is None else repr(host[:MAX_SHOWN])
            raise BadHost(f"host: expected one header HOST or HOST:PORT, got {value}; correct the request") from None
        if not place.is_address and place.name not in self._names:
            raise WrongHost(
                f"host: expected an IP address, localhost or a name of this service, got {place.name[:MAX_SHOWN]!r}; "
                "if that is a name of this service, add it to serve.allowed_hosts"
            )
        return place

    def check_origin(self, origin: str | None, fetch_site: str | None, host: HostPort | None) -> None:
        """Refuse a change that another site's page made a browser send.

        Args:
            origin: the header ``Origin``, which only browsers send.

        Raises:
            CrossOrigin: the page belongs to another site.
        """
        if (origin is None or self._is_own(origin, host)) and fetch_site != "cross-site":
            return
        raise CrossOrigin(
            f"origin: expected a page of this service, got {(origin or fetch_site or '')[:MAX_SHOWN]!r}; if a proxy "
            f"changes Host, configure it to pass Host on, or set notify.external_url or serve.allowed_hosts"
        )

    def _is_own(self, origin: str, host: HostPort | None) -> bool:
        scheme, separator, address = origin.lower().partition("://")
        if not separator or scheme not in DEFAULT_PORTS:
            return False  # for example "null", from a page in a sandbox
        try:
            place = parse_host_port(address)
        except ValueError:
            return False
        default = DEFAULT_PORTS[scheme]
        if (scheme, place.name, place.port or default) in self._origins:
            return True
        return host is not None and (place.name, place.port or default) == (host.name, host.port or default)
