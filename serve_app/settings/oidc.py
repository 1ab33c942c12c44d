"""Settings for sign-in at an OpenID provider."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from serve_app.access.rules import is_loopback
from serve_app.access.tokens import Scope
from serve_app.net.endpoint import check_url
from serve_app.settings.base import Location, MeshName, SettingsGroup


def _issuer(url: str) -> str:
    parts = urlsplit(check_url(url))
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("expected https://, since secrets are sent there")
    if parts.query:
        raise ValueError("expected a URL without a query")
    return url


class GroupSettings(SettingsGroup):
    """The permissions of a group at the provider."""

    scopes: tuple[Scope, ...] = Field(min_length=1, description="permissions: read, write, admin")
    meshes: tuple[MeshName, ...] | None = Field(
        None, min_length=1, description="meshes to which these permissions apply; none: all"
    )


class OidcSettings(SettingsGroup):
    """Sign-in at an OpenID provider, such as Keycloak, Okta, Entra ID or Dex."""

    issuer: Annotated[str, AfterValidator(_issuer)] = Field(
        description="URL of the provider, exactly as its metadata names it"
    )
    client_id: str = Field(min_length=1, max_length=256, description="name of this service at the provider")
    client_secret_file: Location = Field(
        description="file with the client secret, at least 24 characters; it also signs the users' cookies"
    )
    name: str = Field(
        "single sign-on", min_length=1, max_length=40, description="name of the provider on the page: Sign in with NAME"
    )
    scopes: tuple[Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")], ...] = Field(
        ("openid", "profile", "email"), description="scopes to request; some providers need groups among them"
    )
    groups_claim: str = Field("groups", min_length=1, description="claim with a user's groups")
    user_claim: str = Field("preferred_username", min_length=1, description="claim with a user's name; without it: sub")
    groups: dict[str, GroupSettings] = Field(
        min_length=1, description="permissions of a group's members, by the group's name or id at the provider"
    )
    valid_seconds: float = Field(
        3600.0,
        ge=60,
        le=86_400,
        description="how long a sign-in is valid; then the provider is asked again, and changed groups take effect",
    )
    ca_file: Location | None = Field(None, description="CA bundle to use instead of the system store (PEM)")

    @model_validator(mode="after")
    def _requests_openid(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes: expected openid among them, since the provider sends no ID token without it")
        return self
