"""Dependencies of routes: parts of their replica's ingress, common parameters, and errors that all routes share."""

from typing import Annotated, Any

from fastapi import Depends, Query

from serve_app.api.schemas.base import Instant
from serve_app.deployments.http import problems
from serve_app.deployments.http.backend import Backend
from serve_app.deployments.http.health import Health
from serve_app.deployments.http.streams import VerdictStreams
from serve_app.errors import (
    BadMeshName,
    DeadlineExceeded,
    DocumentTooLarge,
    InvalidDocument,
    InvalidParameter,
    MalformedDocument,
    NoCapacity,
    Overloaded,
    StoreGone,
    UnknownMesh,
    UnsupportedMediaType,
)
from serve_app.runtime import replica

BUSY = (Overloaded, NoCapacity, StoreGone, DeadlineExceeded)
MESH_ERRORS = (BadMeshName, InvalidParameter, *BUSY)
BODY_ERRORS = (MalformedDocument, InvalidDocument, DocumentTooLarge, UnsupportedMediaType)


def errors_of_mesh(*more: type[Exception]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` for a route that needs a stored mesh and may answer with ``more`` errors."""
    return problems.describe_errors(*MESH_ERRORS, UnknownMesh, *more)


def _part(name: str) -> Any:
    async def find() -> Any:  # async, because FastAPI runs other functions in threads
        return getattr(replica.ingress(), name)

    return Depends(find)


UseBackend = Annotated[Backend, _part("backend")]
UseHealth = Annotated[Health, _part("health")]
UseStreams = Annotated[VerdictStreams, _part("streams")]
At = Annotated[Instant | None, Query(description="time of a stored snapshot; by default the newest")]
