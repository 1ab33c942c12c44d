"""The sign-in settings as plain values."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from serve_app.access.tokens import Grant


@dataclass(frozen=True, slots=True)
class OidcRules:
    """The provider, this service as its client, and the groups' permissions.

    Attributes:
        issuer: the provider's issuer, exactly as it writes it.
        external_url: URL at which browsers reach this service; the provider sends them back there.
        groups: grants by the group's name at the provider.
        groups_claim: claim with a user's groups.
        user_claim: claim with a user's name; without it, the subject is the name.
        valid_seconds: how long a sign-in is valid; then the provider is asked again.
        ca_file: CA bundle to use instead of the system store.
    """

    issuer: str
    client_id: str
    client_secret_file: Path
    external_url: str
    groups: Mapping[str, Grant]
    _: KW_ONLY
    name: str = "single sign-on"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    user_claim: str = "preferred_username"
    valid_seconds: float = 3600.0
    ca_file: Path | None = None

    @property
    def home(self) -> str:
        """URL of the page, with a final slash."""
        return self.external_url.rstrip("/") + "/"

    @property
    def redirect_url(self) -> str:
        """URL to which the provider sends browsers; it must be registered there."""
        return self.home + "login/callback"

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach this service by HTTPS."""
        return urlsplit(self.external_url).scheme == "https"

    def cookie_name(self, name: str) -> str:
        """A cookie's name. With HTTPS, its prefix prevents other hosts in the domain from setting the cookie."""
        return f"__Host-{name}" if self.is_secure else name

    def grants_of(self, groups: Iterable[str]) -> tuple[Grant, ...]:
        """The grants of a user in these groups; empty: no access."""
        return tuple(self.groups[group] for group in groups if group in self.groups)
