"""Routes that read: verdicts, graph, plan, embeddings, the list of meshes, the model."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from model.verdict import Status
from serve_app.alerts.links import Links
from serve_app.api.codec import ARROW
from serve_app.api.graph_formats import GRAPHML, GraphFormat, write_graphml
from serve_app.api.schemas.base import MAX_SERVICE, AskedService, Instant, Text
from serve_app.api.schemas.drift import DriftDocument
from serve_app.api.schemas.verdict import VerdictDocument, VerdictsDocument
from serve_app.api.schemas.views import (
    GraphDocument,
    MeshDocument,
    ModelDocument,
    OneMeshDocument,
    PlanDocument,
    SourceDocument,
)
from serve_app.api.views import graph_document
from serve_app.collect.loop import CollectorState
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import principal_of
from serve_app.deployments.http.interface import MeshName, describe_text, json_response
from serve_app.deployments.http.routes.dependencies import BUSY, At, UseBackend, errors_of_mesh
from serve_app.errors import InvalidParameter, ServeError, UnknownInstant, UnknownMesh
from serve_app.metrics import MeshGauges
from serve_app.settings.base import check_mesh_name
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.documents import (
    DetailsDocument,
    ServicesDocument,
    TimelineDocument,
)
from serve_app.web.period import Subject
from serve_app.web.tools import add_answers, question_of, subject_of

MAX_VERDICTS = 1000  # in one answer
MAX_SERVICES = 1000  # services in one answer
ROW = {"type": "string", "format": "binary", "description": "one row per service"}

router = APIRouter(tags=["Meshes"])


@router.get("/v1/meshes/{mesh}/verdict", response_model=VerdictDocument, responses=errors_of_mesh(UnknownInstant))
async def verdict(mesh: MeshName, backend: UseBackend, at: At = None) -> Response:
    """The newest verdict, or a stored one."""
    return json_response(await backend.ask(backend.api(mesh).meshes.verdict, mesh, at))


@router.get("/v1/meshes/{mesh}/verdicts", response_model=VerdictsDocument, responses=errors_of_mesh())
async def verdicts(
    mesh: MeshName,
    backend: UseBackend,
    since: Annotated[Instant | None, Query(description="only verdicts of later snapshots")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_VERDICTS, description="maximum number, the oldest first")] = 120,
) -> Response:
    """The stored verdicts in the window, oldest first. For the next page, pass the last time as `since`."""
    documents = await backend.ask(backend.api(mesh).meshes.verdicts, mesh, since, limit)
    return json_response(b'{"verdicts":[' + b",".join(documents) + b"]}")


@router.get("/v1/meshes/{mesh}/plan", response_model=PlanDocument, responses=errors_of_mesh())
async def plan(
    mesh: MeshName,
    backend: UseBackend,
    members: Annotated[bool, Query(description="list the services of each part")] = False,
) -> Response:
    """How the newest snapshot is cut into parts, and the quality of the cut."""
    return json_response(await backend.ask(backend.api(mesh).meshes.plan, mesh, members))


@router.get(
    "/v1/meshes/{mesh}/graph",
    response_model=GraphDocument,
    responses=errors_of_mesh(UnknownInstant) | describe_text(GRAPHML),
)
async def graph(
    mesh: MeshName,
    backend: UseBackend,
    at: At = None,
    service: Annotated[
        AskedService | None, Query(description="only this service, its callers and the services that it calls")
    ] = None,
    incidents: Annotated[
        bool, Query(description="only the services of open incidents, their callers and the services that they call")
    ] = False,
    format: Annotated[GraphFormat, Query(description="json, or GraphML for graph programs")] = GraphFormat.JSON,
) -> Response:
    """The services and calls in the newest or a stored snapshot, with their metrics and how unusual each one is. For
    more than 20,000 services, only the surroundings of a service or of the open incidents."""
    if service is not None and incidents:
        raise InvalidParameter(
            "incidents: expected a service or the open incidents, got both; leave out one", pointer="/incidents"
        )
    if service is not None or incidents:
        document = await backend.ask(backend.api(mesh).pages.graph, mesh, at, service)
    else:
        document = await asyncio.to_thread(_encode_whole, await backend.ask(backend.api(mesh).meshes.graph, mesh, at))
    if format is GraphFormat.JSON:
        return json_response(document)
    return Response(await asyncio.to_thread(write_graphml, document), media_type=GRAPHML)


@router.get("/v1/meshes/{mesh}/timeline", response_model=TimelineDocument, responses=errors_of_mesh())
async def timeline(
    mesh: MeshName,
    backend: UseBackend,
    since: Annotated[Instant | None, Query(description="only verdicts of later snapshots")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="maximum number, the oldest first")] = 1000,
) -> Response:
    """The stored verdicts as columns, with the incidents and planned changes of that time."""
    return json_response(await backend.ask(backend.api(mesh).pages.timeline, mesh, since, limit))


@router.get("/v1/meshes/{mesh}/services", response_model=ServicesDocument, responses=errors_of_mesh())
async def services(
    mesh: MeshName,
    backend: UseBackend,
    text: Annotated[Text, Query(max_length=MAX_SERVICE, description="part of the name, in any case")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_SERVICES, description="maximum number")] = 100,
) -> Response:
    """The services in the stored snapshots whose names contain a text."""
    return json_response(await backend.ask(backend.api(mesh).pages.services, mesh, text, limit))


@router.get(
    "/v1/meshes/{mesh}/details",
    operation_id="details",
    response_model=DetailsDocument,
    responses=errors_of_mesh(UnknownInstant),
)
async def details(
    mesh: MeshName,
    backend: UseBackend,
    service: Annotated[AskedService, Query()],
    source: Annotated[AskedService | None, Query(description="caller; return its calls to the service")] = None,
    at: At = None,
    tools: Annotated[
        bool,
        Query(description="also read its newest error lines and a failing trace from Loki, Tempo or Jaeger; up to 3 s"),
    ] = False,
) -> Response:
    """A service, or the calls to it from one caller: metrics with expected values, callers and callees, changes,
    events, incidents and mutes."""
    subject, links = Subject(service, source), Links.from_settings(backend.settings)
    document = await backend.ask(backend.api(mesh).pages.details, mesh, subject, at, links)
    if tools:
        tool_subject = subject_of(document, mesh)
        question = question_of(tool_subject, is_live=at is None)
        answers = await backend.tools.find(mesh, backend.settings.mesh(mesh), question, at)
        document = add_answers(document, answers, tool_subject, links)
    return json_response(document)


@router.get("/v1/meshes/{mesh}/drift", response_model=DriftDocument, responses=errors_of_mesh())
async def drift(mesh: MeshName, backend: UseBackend) -> Response:
    """How far the mesh is from the training meshes and from its own last week: its channels, tails, calls and missing
    values, what to do about it, and badly measured series."""
    return json_response(await backend.ask(backend.api(mesh).meshes.drift, mesh))


@router.get(
    "/v1/meshes/{mesh}/embeddings",
    response_class=Response,
    responses={**errors_of_mesh(), 200: {"content": {ARROW: {"schema": ROW}}}},
)
async def embeddings(mesh: MeshName, backend: UseBackend) -> Response:
    """The embeddings of the services in the newest snapshot, and how unusual each one is: an Arrow stream with the
    columns `service`, `deviation` and `embedding`. Time, model, status and score are in its schema's metadata."""
    return Response(await backend.ask(backend.api(mesh).meshes.embeddings, mesh), media_type=ARROW)


@router.get("/v1/meshes", responses=problems.describe_errors(InvalidParameter, *BUSY))
async def meshes(request: Request, backend: UseBackend) -> list[MeshDocument]:
    """The meshes that the caller may see, by name. Includes collected meshes that have no snapshot yet."""
    return await _list_meshes(request, backend, await _collectors(backend))


@router.get("/v1/model", response_model=ModelDocument, responses=problems.describe_errors(InvalidParameter, *BUSY))
async def model(request: Request, backend: UseBackend) -> Response:
    """The weights in use: their inputs, their size, and how they were trained."""
    return json_response(await backend.ask(backend.any_session.models.in_use, principal_of(request).meshes))


async def _collectors(backend: UseBackend) -> list[CollectorState] | None:
    """The states of all collected meshes; None: the collector does not answer."""
    with suppress(ServeError):
        return await backend.collector_states()
    return None


async def _list_meshes(
    request: Request, backend: UseBackend, collectors: list[CollectorState] | None
) -> list[MeshDocument]:
    """The meshes that the caller may see; without the collector, only meshes with snapshots."""
    now, budget = time.time(), backend.settings.alert.budget
    warm_up = backend.settings.model.warm_up_snapshots
    gauges = await backend.ask(backend.any_session.meshes.gauges)
    documents = {mesh.mesh: mesh_document(mesh, now, budget) for mesh in gauges}
    for state in collectors or ():
        empty = MeshDocument(mesh=state.mesh, services=0, sequence=0, observed_at=None, status=Status.WARMING_UP)
        documents[state.mesh] = documents.get(state.mesh, empty).model_copy(update={"problem": state.problem})
    visible = principal_of(request).meshes
    names = sorted(name for name in documents if visible is None or name in visible)
    return [documents[name].model_copy(update={"warm_up_snapshots": warm_up}) for name in names]


@router.get("/v1/meshes/{mesh}", responses=errors_of_mesh())
async def mesh(mesh: MeshName, request: Request, backend: UseBackend) -> OneMeshDocument:
    """One mesh as in the list, the source of its snapshots, and how the newest one was scored."""
    check_mesh_name(mesh)
    collectors = await _collectors(backend)
    documents = {document.mesh: document for document in await _list_meshes(request, backend, collectors)}
    if mesh not in documents:
        raise UnknownMesh(
            f"mesh {mesh!r}: nothing is stored under this name; push a snapshot first, or correct the name"
        )
    scoring = await backend.ask(backend.api(mesh).meshes.scoring, mesh)
    source = None
    if collectors is not None:
        source = source_document(next((state for state in collectors if state.mesh == mesh), None))
    return OneMeshDocument.from_object(documents[mesh], source=source, scoring=scoring)


def mesh_document(mesh: MeshGauges, now: float, budget: Callable[[int], float]) -> MeshDocument:
    """A stored mesh's line in the list; ``now`` is Unix time, ``budget`` the alerts per day for a number of
    services."""
    return MeshDocument.from_object(
        mesh,
        age_seconds=None if mesh.made_at is None else max(0.0, round(now - mesh.made_at, 3)),
        mesh_score=mesh.score,
        alert_budget_per_day=budget(mesh.services) if mesh.sequence else None,
    )


def source_document(state: CollectorState | None) -> SourceDocument:
    """The answer about a mesh's source; None: the mesh is not collected."""
    if state is None:
        return SourceDocument(collected=False)
    return SourceDocument.from_object(
        state,
        collected=True,
        handed_on=None if state.handed_on is None else datetime.fromtimestamp(state.handed_on, UTC),
    )


def _encode_whole(snapshot: ScoredSnapshot) -> bytes:
    return msgspec.json.encode(graph_document(snapshot.snapshot, snapshot.deviations, snapshot.verdict))
