"""The base class of all groups of settings, value types, and access to other servers."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from model.names import MESH_NAME, as_service_id, is_service_name, is_services_name
from serve_app.access.hosts import parse_host_port
from serve_app.errors import BadMeshName
from serve_app.net.endpoint import Endpoint, check_headers, check_url


class SettingsGroup(BaseModel):
    """One group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def _mesh_name(name: str) -> str:
    try:
        return check_mesh_name(name)
    except BadMeshName as error:
        raise ValueError(str(error)) from error


def _service_id(service: str) -> str:
    if not is_service_name(service_id := as_service_id(service)):
        raise ValueError(f"expected namespace/name, got {service!r}")
    return service_id


def _services_id(services: str) -> str:
    if not is_services_name(services_id := as_service_id(services)):
        raise ValueError("expected namespace/name, or namespace/* for a whole namespace")
    return services_id


def _service_pattern(pattern: str) -> str:
    if not all(pattern.partition("/")):
        raise ValueError(f"expected namespace/name, with * for any characters, got {pattern!r}")
    return pattern


ServiceId = Annotated[str, AfterValidator(_service_id)]  # an id or an original name
ServicesId = Annotated[str, AfterValidator(_services_id)]  # the same, or `namespace/*`
ServicePattern = Annotated[str, AfterValidator(_service_pattern)]  # `namespace/name`, with * for any characters
MeshName = Annotated[str, AfterValidator(_mesh_name)]
Location = Annotated[Path, AfterValidator(Path.expanduser)]
Address = Annotated[str, AfterValidator(check_url)]


def _headers(headers: dict[str, str]) -> dict[str, str]:
    check_headers(headers)
    return headers


Headers = Annotated[dict[str, str], AfterValidator(_headers)]


class AccessSettings(SettingsGroup):
    """Credentials for another server. Secret files are read again for each request."""

    username: str = Field("", pattern="^[^:]*$", description="user name for basic auth")
    password_file: Location | None = Field(None, description="file with the password for basic auth")
    bearer_token_file: Location | None = Field(None, description="file with a bearer token, instead of basic auth")
    ca_file: Location | None = Field(None, description="CA bundle to use instead of the system store (PEM)")
    headers: Headers = Field(
        default_factory=dict, description="further headers of each request, for example X-Scope-OrgID of a tenant"
    )
    headers_file: Location | None = Field(
        None, description="file with more headers, one `name: value` a line, such as those with secrets"
    )
    certificate_file: Location | None = Field(None, description="client certificate (PEM), for mutual TLS")
    key_file: Location | None = Field(
        None, description="private key of the certificate (PEM); none: it is in certificate_file"
    )

    def endpoint(self, url: str) -> Endpoint:
        fields = {name: getattr(self, name) for name in AccessSettings.model_fields}
        return Endpoint(url, **{**fields, "headers": tuple(self.headers.items())})

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.bearer_token_file and self.username:
            raise ValueError("expected username or bearer_token_file, got both")
        if self.password_file and not self.username:
            raise ValueError("password_file: username is missing")
        if self.key_file and not self.certificate_file:
            raise ValueError("key_file: certificate_file is missing")
        return self


def check_mesh_name(name: str) -> str:
    """Return ``name`` if it is a valid mesh name, safe in paths, metric labels and keys.

    Raises:
        BadMeshName: if it is not.
    """
    if not re.fullmatch(MESH_NAME, name):
        raise BadMeshName(
            f"mesh name: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', starting and ending with a letter or digit, "
            f"got {name[:80]!r}; rename the mesh"
        )
    return name


def _host_name(text: str) -> str:
    parse_host_port(text)  # raises ValueError
    return text


HostName = Annotated[str, AfterValidator(_host_name)]
