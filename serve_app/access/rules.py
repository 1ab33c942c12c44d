"""The access settings as plain values, and checks that refuse unsafe ones at startup."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from serve_app.access.oidc.rules import OidcRules
from serve_app.errors import BadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The access settings.

    Attributes:
        allowed_hosts: further names accepted in ``Host``.
        external_url: URL at which people reach the service.
        trusted_proxies: networks of proxies whose user and address headers are trusted.
        proxy_user_header: header in which a trusted proxy names the user.
        oidc: sign-in at an OpenID provider; None: there is none.
    """

    host: str = "127.0.0.1"
    tokens_file: Path | None = None
    allow_anonymous: bool = False
    allowed_hosts: tuple[str, ...] = ()
    external_url: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    proxy_user_header: str | None = None
    proxy_user_scopes: tuple[str, ...] = ("read", "write")
    oidc: OidcRules | None = None

    @property
    def has_login(self) -> bool:
        """Whether callers must identify themselves."""
        by_proxy = bool(self.trusted_proxies and self.proxy_user_header)
        return self.tokens_file is not None or self.oidc is not None or by_proxy


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """An IP address, which is IPv4 if it is mapped to IPv6; None: the host is a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address. The only name that counts is ``localhost``."""
    address = parse_address(host.strip("[]"))
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def require_certificate(certificate_file: Path | None, key_file: Path | None) -> None:
    """Refuse a certificate that TLS cannot use.

    Args:
        certificate_file: PEM; None: no TLS.
        key_file: PEM, key of the certificate.

    Raises:
        BadSettings: a file cannot be read, or the key belongs to another certificate.
    """
    if certificate_file is None or key_file is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(
            "serve.certificate_file and serve.key_file: expected a certificate and its key in PEM, got "
            f"{certificate_file} and {key_file} ({getattr(error, 'reason', None) or error.strerror}); correct them"
        ) from None


def require_provider(rules: Rules) -> None:
    """Refuse a provider if the package that it needs is not installed. The provider itself may be unavailable.

    Raises:
        BadSettings: a package is not installed.
    """
    if rules.oidc is not None and find_spec("joserfc") is None:
        raise BadSettings(
            "serve.oidc: the package joserfc is not installed; pip install 'tagae[oidc]', or remove the setting"
        )


def require_protection(rules: Rules, hosts: Iterable[str], nodes: int = 1) -> None:
    """Refuse settings that open the service to a network by accident.

    Args:
        nodes: number of nodes in the cluster; they reach each other over a network.

    Raises:
        BadSettings: other machines can connect, and there are no tokens, provider, trusted proxy or
            ``allow_anonymous``.
    """
    if rules.has_login or rules.allow_anonymous:
        return
    exposed_hosts = [host for host in hosts if not is_loopback(host)]
    if not exposed_hosts and nodes <= 1:
        return
    listener = repr(exposed_hosts[0]) if exposed_hosts else f"a cluster of {nodes} nodes"
    raise BadSettings(
        "serve.host: expected a loopback address, since anyone who can connect could read, push and delete, "
        f"got {listener}; create a token (`tagae token create --name NAME --scope read FILE`) and set "
        "serve.tokens_file; or set serve.trusted_proxies and serve.proxy_user_header; or set serve.allow_anonymous = "
        "true to allow unauthenticated access"
    )
