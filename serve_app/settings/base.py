"""What groups of settings share: a base class, types of values, access to other services."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from serve_app.errors import BadMeshName
from serve_app.net.endpoint import Endpoint, check_url


class Subject(BaseModel):
    """One group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def _mesh_name(name: str) -> str:
    try:
        return check_mesh_name(name)
    except BadMeshName as error:
        raise ValueError(str(error)) from error


MeshName = Annotated[str, AfterValidator(_mesh_name)]
Location = Annotated[Path, AfterValidator(Path.expanduser)]
Address = Annotated[str, AfterValidator(check_url)]


class AccessSettings(Subject):
    """How somebody outside lets us in. Files are read anew with each request."""

    username: str = Field("", pattern="^[^:]*$", description="basic auth")
    password_file: Location | None = None
    bearer_token_file: Location | None = Field(None, description="instead of basic auth")
    ca_file: Location | None = Field(None, description="certificates to trust; none: the system's")

    def endpoint(self, url: str) -> Endpoint:
        """What is there, and how we are let in."""
        return Endpoint(url, self.username, self.password_file, self.bearer_token_file, self.ca_file)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.bearer_token_file and self.username:
            raise ValueError("expected username or bearer_token_file, came both")
        if self.password_file and not self.username:
            raise ValueError("password_file: expected a username with it")
        return self


MESH_NAME = r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?"


def check_mesh_name(name: str) -> str:
    """``name`` itself if it can stand in a path, a metric's label and a key: the house's only check of mesh names.

    Raises:
        BadMeshName: for anything else.
    """
    if not re.fullmatch(MESH_NAME, name):
        raise BadMeshName(
            f"mesh name: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', first and last a letter or a digit, "
            f"came {name[:80]!r}; rename the mesh"
        )
    return name
