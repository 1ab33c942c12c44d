"""The settings of access as plain values, and when they are too open to start with."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from serve_app.errors import BadSettings

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Rules:
    """What was configured.

    Attributes:
        subject: of the settings, ``serve`` or ``sidecar``.
        host: that the service listens on.
        tokens_file: None: there are no tokens.
        allow_anonymous: whether everybody may do everything.
        allowed_hosts: further names in ``Host``.
        external_url: of the service, as people reach it.
        trusted_proxies: networks whose connections are believed about users and addresses.
        proxy_user_header: in which such a proxy names the user.
        proxy_user_scopes: what such a user may do.
    """

    subject: str = "serve"
    host: str = "127.0.0.1"
    tokens_file: Path | None = None
    allow_anonymous: bool = False
    allowed_hosts: tuple[str, ...] = ()
    external_url: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    proxy_user_header: str | None = None
    proxy_user_scopes: tuple[str, ...] = ("read", "write")

    @property
    def has_login(self) -> bool:
        """Whether callers have to say who they are."""
        return self.tokens_file is not None or bool(self.trusted_proxies and self.proxy_user_header)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address. A name other than ``localhost`` may be any address."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def require_certificate(certificate_file: Path | None, key_file: Path | None, subject: str) -> None:
    """Refuse a certificate that TLS could not use.

    Args:
        certificate_file: PEM; None: there is no TLS.
        key_file: PEM, of the certificate.
        subject: of the settings.

    Raises:
        BadSettings: a file cannot be read, or the key is of another certificate.
    """
    if certificate_file is None or key_file is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise BadSettings(
            f"{subject}.certificate_file and {subject}.key_file: expected a certificate and its key in PEM, came "
            f"{certificate_file} and {key_file} ({getattr(error, 'reason', None) or error.strerror}); correct them"
        ) from None


def require_protection(rules: Rules, hosts: Iterable[str], nodes: int = 1) -> None:
    """Refuse to be open to a network by accident.

    Args:
        rules: of the service.
        hosts: addresses that it listens on.
        nodes: of the cluster; the nodes of a cluster reach each other over a network.

    Raises:
        BadSettings: others can connect, and neither tokens nor a proxy nor ``allow_anonymous`` say who may.
    """
    if rules.has_login or rules.allow_anonymous:
        return
    exposed = [host for host in hosts if not is_loopback(host)]
    if not exposed and nodes <= 1:
        return
    subject = rules.subject
    came = f"came {exposed[0]!r}" if exposed else f"came a cluster of {nodes} nodes"
    proxy = "" if subject == "sidecar" else f"set {subject}.trusted_proxies and {subject}.proxy_user_header; or "
    raise BadSettings(
        f"{subject}.host: expected a loopback address, since anyone who can connect could read, push and delete, "
        f"{came}; create a token (`tagae token create --name NAME --scope read FILE`) and set {subject}.tokens_file; "
        f"or {proxy}set {subject}.allow_anonymous = true if everyone on the network may do everything"
    )
