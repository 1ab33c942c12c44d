"""Dependencies of routes: parts of the ingress of their replica, common parameters, and errors that all routes
share."""

from typing import Annotated, Any

from fastapi import Depends, Query

from serve_app.api.schemas.base import Instant
from serve_app.deployments.http import problems
from serve_app.deployments.http.audit import Audit
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
OF_A_MESH = (BadMeshName, InvalidParameter, *BUSY)
WITH_A_BODY = (MalformedDocument, InvalidDocument, DocumentTooLarge, UnsupportedMediaType)


def errors_of_mesh(*more: type[Exception]) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that needs a stored mesh, and may answer with ``more`` errors."""
    return problems.describe_errors(*OF_A_MESH, UnknownMesh, *more)


# Coroutines, since FastAPI runs other functions in threads.
async def _backend() -> Backend:
    backend: Backend = replica.ingress().backend
    return backend


async def _health() -> Health:
    health: Health = replica.ingress().health
    return health


async def _streams() -> VerdictStreams:
    streams: VerdictStreams = replica.ingress().streams
    return streams


async def _audit() -> Audit:
    audit: Audit = replica.ingress().audit
    return audit


UseAudit = Annotated[Audit, Depends(_audit)]
UseBackend = Annotated[Backend, Depends(_backend)]
UseHealth = Annotated[Health, Depends(_health)]
UseStreams = Annotated[VerdictStreams, Depends(_streams)]
At = Annotated[Instant | None, Query(description="time of a kept snapshot; by default the newest")]
