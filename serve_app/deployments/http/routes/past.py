"""Routes that read a mesh's past: any period, any moment, and what changed between two periods."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.schemas.base import AskedService, Instant, Text
from serve_app.api.schemas.history import RangeDocument
from serve_app.deployments.http.backend import Backend
from serve_app.deployments.http.interface import MeshName, json_response
from serve_app.deployments.http.page_files import file_response
from serve_app.deployments.http.routes.dependencies import At, UseBackend, errors_of_mesh
from serve_app.errors import InvalidParameter, NoTelemetry, ServeError, UnknownInstant, UnknownMesh
from serve_app.runtime.rpc import Caller, Deadline
from serve_app.stores.history_files import PastSeries
from serve_app.web.assets import File
from serve_app.web.documents import ComparisonDocument, MapDocument, PastMapDocument
from serve_app.web.period import RangeSteps, Subject, TimeRange

MAX_POINTS = 2000  # in one answer
MAX_DAYS = 400  # in one answer
MAX_EXPANDED = 50  # namespaces in a map
PROMETHEUS_SHARE = 0.8  # share of the remaining time for the collector; the rest is for what is stored

router = APIRouter(tags=["Meshes"])


@router.get("/v1/meshes/{mesh}/range", operation_id="range", response_model=RangeDocument, responses=errors_of_mesh())
async def mesh_range(
    mesh: MeshName,
    backend: UseBackend,
    start: Annotated[Instant, Query(description="beginning of the period")],
    end: Annotated[Instant, Query(description="end of the period")],
    points: Annotated[int, Query(ge=2, le=MAX_POINTS, description="maximum number of steps")] = 600,
    service: Annotated[AskedService | None, Query(description="return its metrics too")] = None,
    source: Annotated[AskedService | None, Query(description="caller; return its calls to the service instead")] = None,
) -> Response:
    """A mesh over any period: its scores, incidents and planned changes, and the metrics of a service, or of the calls
    to it from one caller. The last snapshots are returned individually; before that, means over one or ten minutes."""
    if not start < end:
        raise InvalidParameter(
            f"start: expected a time before the end, got {start.isoformat()} and {end.isoformat()}; swap them",
            pointer="/start",
        )
    if (end - start).days >= MAX_DAYS:
        raise InvalidParameter(
            f"start: expected a period of at most {MAX_DAYS} days, got {(end - start).days}; request a part of it",
            pointer="/start",
        )
    if source is not None and service is None:
        raise InvalidParameter(
            f"source: expected service too, got only the caller {source!r}; name the called service", pointer="/source"
        )
    period, subject = TimeRange(start, end, points), None if service is None else Subject(service, source)
    caller, past = Caller(backend.deadline()), backend.api(mesh).past
    series, problem = None, None
    if subject is not None and start < await caller.ask(past.known_from, mesh):
        series, problem = await read_prometheus(backend, caller.deadline, mesh, period, subject)
    return json_response(await caller.ask(past.range, mesh, period, subject, series, problem))


async def read_prometheus(
    backend: Backend, deadline: Deadline, mesh: str, period: TimeRange, subject: Subject
) -> tuple[tuple[RangeSteps, PastSeries] | None, str | None]:
    """The series of a period from the mesh's Prometheus, or why there are none; neither if clients push the mesh. Time
    remains until the deadline for what is stored."""
    caller = Caller(deadline.take_share(PROMETHEUS_SHARE))
    try:
        return await caller.ask(backend.collector.past, mesh, period, subject, caller.deadline), None
    except UnknownMesh:
        return None, None
    except ServeError as error:
        return None, str(error)


@router.get(
    "/v1/meshes/{mesh}/map",
    operation_id="map",
    response_model=MapDocument | PastMapDocument,
    responses=errors_of_mesh(UnknownInstant),
)
async def mesh_map(
    request: Request,
    mesh: MeshName,
    backend: UseBackend,
    at: At = None,
    metrics: Annotated[
        bool, Query(description="with the metrics of the services; `at` can be any time of the history")
    ] = False,
    expand: Annotated[
        Text, Query(max_length=4000, description="namespaces of a large mesh to show by service, separated by commas")
    ] = "",
) -> Response:
    """The mesh with a stable position for each service. Above 5,000 services, a namespace is one node unless it has an
    incident or is in `expand`. With `metrics` it is the map of a past moment: the snapshot of that time if it is
    stored, else means over one or ten minutes."""
    names = [name for name in expand.split(",") if name][:MAX_EXPANDED]
    if not metrics:
        content = await backend.ask(backend.api(mesh).pages.map, mesh, at, names)
    elif at is None:
        raise InvalidParameter("at: expected a past time for a map with metrics, got none; add it", pointer="/at")
    else:
        content = await _past_map(backend, mesh, at, names)
    return file_response(File(content, "application/json"), request.headers, {})


async def _past_map(backend: Backend, mesh: str, at: datetime, names: Sequence[str]) -> bytes:
    caller, draw = Caller(backend.deadline()), backend.api(mesh).pages.past_map
    try:
        return await caller.ask(draw, mesh, at, names)
    except UnknownInstant as unknown:
        prometheus = Caller(caller.deadline.take_share(PROMETHEUS_SHARE))
        try:
            snapshot = await prometheus.ask(backend.collector.past_snapshot, mesh, at, prometheus.deadline)
        except UnknownMesh:  # clients push it
            raise unknown from None
        except NoTelemetry as error:
            raise UnknownInstant(f"{unknown}; {error}") from error
        return await caller.ask(draw, mesh, at, names, snapshot)


@router.get("/v1/meshes/{mesh}/comparison", response_model=ComparisonDocument, responses=errors_of_mesh())
async def comparison(
    mesh: MeshName,
    backend: UseBackend,
    first_from: Annotated[Instant, Query()],
    first_to: Annotated[Instant, Query()],
    second_from: Annotated[Instant, Query()],
    second_to: Annotated[Instant, Query()],
    service: Annotated[
        AskedService | None, Query(description="compare this service, its other versions and its callers")
    ] = None,
) -> Response:
    """The differences between two periods of the history, largest first, for the mesh or one service, for example
    before and after a deploy."""
    first, second = (first_from, first_to), (second_from, second_to)
    return json_response(await backend.ask(backend.api(mesh).past.comparison, mesh, first, second, service))
