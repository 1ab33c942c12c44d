"""Ingress: HTTP in, HTTP out. Stateless; it parses a body once and hands packed arrays on."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from ray import serve

from model.verdict import Status
from serve_app.api.codec import ARROW, JSON, MESSAGEPACK, unpack_snapshot
from serve_app.api.schemas.actions import FeedbackListDocument, KeptFeedbackDocument, KeptMuteDocument, MuteListDocument
from serve_app.api.schemas.base import Id, Instant
from serve_app.api.schemas.verdict import VerdictDocument, VerdictsDocument
from serve_app.api.schemas.views import (
    AdaptationDocument,
    GraphDocument,
    HealthDocument,
    IncidentsDocument,
    MeshDocument,
    ModelDocument,
    PlanDocument,
    SourceDocument,
)
from serve_app.api.views import Deviations, graph_document
from serve_app.collect.loop import CollectorState
from serve_app.deployments import problems
from serve_app.deployments.access_control import principal_of
from serve_app.deployments.bodies import read_feedback, read_mute, read_nothing, read_snapshot, read_snapshots
from serve_app.deployments.http import VERSION, MeshName, http, timing
from serve_app.deployments.messages import Equipment, Judged
from serve_app.deployments.page_routes import At, PageRoutes
from serve_app.deployments.rpc import ask
from serve_app.deployments.single_flight import SingleFlight
from serve_app.errors import (
    AheadOfClock,
    BadMeshName,
    DeadlineExceeded,
    DocumentTooLarge,
    InvalidDocument,
    InvalidParameter,
    MalformedDocument,
    NoAdapter,
    NoCapacity,
    Overloaded,
    SameTimeOtherContent,
    ServeError,
    StaleSnapshot,
    StoreConflict,
    StoreFull,
    StoreGone,
    TooManyMeshes,
    TooManyMutes,
    TooMuchFeedback,
    UnknownIncident,
    UnknownInstant,
    UnknownMesh,
    UnknownMute,
    UnsupportedMediaType,
)
from serve_app.exporter import CONTENT_TYPE, PrometheusInstruments
from serve_app.metrics import ADAPTERS, INFERENCE, PARTS_MISSING, PARTS_SCORED, PREDICTIONS, RETRIES, STAGE, MeshGauges
from serve_app.settings import Settings
from serve_app.settings.base import check_mesh_name
from serve_app.stores.record import Seen

HEALTH_SECONDS = 0.5  # a probe does not wait longer for the replicas behind
READY_SECONDS = 2.0  # for which an answer of the replicas behind holds, so that a flood of probes costs nothing
MOST_VERDICTS = 1000  # of one answer
_BUSY = (Overloaded, NoCapacity, StoreGone, DeadlineExceeded)
_ALWAYS = (BadMeshName, InvalidParameter, *_BUSY)
_DOCUMENT = (MalformedDocument, InvalidDocument, DocumentTooLarge, UnsupportedMediaType)


def _body(document: str) -> dict[str, Any]:
    """For OpenAPI: what a route reads."""
    forms = {
        JSON: {"schema": {"$ref": f"#/components/schemas/{document}"}},
        ARROW: {
            "schema": {"type": "string", "format": "binary", "description": "`Table.from_pylist([snapshot, ...])`"}
        },
        MESSAGEPACK: {"schema": {"type": "string", "format": "binary", "description": "as JSON, rows or columns"}},
    }
    return {"requestBody": {"required": True, "content": forms}}


def _json_body(*documents: str) -> dict[str, Any]:
    """Likewise, one of these documents and JSON alone."""
    schemas = [{"$ref": f"#/components/schemas/{document}"} for document in documents]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


# Serve copies the application as it is when the class is made: what the routes use is defined above them.


def _measure(instruments: PrometheusInstruments, judged: Judged, seconds: Mapping[str, float]) -> None:
    """What one snapshot was; a repeat was counted before."""
    for deployment, repeats in judged.lost.items():
        instruments.count(RETRIES, repeats, callee=deployment)
    if not judged.status:
        return
    instruments.count(PREDICTIONS, model_version=judged.model, status=judged.status)
    for scorer, parts in judged.scorers.items():
        instruments.count(PARTS_SCORED, parts, scorer=scorer)
    instruments.count(PARTS_MISSING, judged.missing)
    for stage, taken in seconds.items():
        if stage == "inference":
            instruments.observe(INFERENCE, taken, model_version=judged.model)
        else:
            instruments.observe(STAGE, taken, stage=stage)


def _health(status: str, equipment: Equipment | None) -> HealthDocument:
    if equipment is None:
        return HealthDocument(status=status, version=VERSION)
    return HealthDocument(
        status=status,
        version=VERSION,
        device=equipment.device,
        kernels=equipment.kernels,
        model=equipment.model,
        refused=equipment.refused or None,
    )


def _json(document: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(document, headers=headers, media_type="application/json")


def _source(found: CollectorState | None) -> SourceDocument:
    if found is None:
        return SourceDocument(collected=False)
    return SourceDocument(
        collected=True,
        handed_on=None if found.handed_on is None else datetime.fromtimestamp(found.handed_on, UTC),
        stale_seconds=found.stale_seconds,
        masked=list(found.masked),
        problem=found.problem,
    )


def _graph(seen: Seen) -> bytes:
    snapshot = unpack_snapshot(seen.snapshot)
    verdict = VerdictDocument.model_validate_json(seen.verdict)
    document = graph_document(snapshot, Deviations.unpack(seen.deviations, snapshot), verdict)
    return document.model_dump_json().encode()


@serve.ingress(http)
class Ingress(PageRoutes):
    """The routes.

    Args:
        settings: its ``serve`` and ``limits``, and how many snapshots a judgement takes.
        sessions: handle of the sessions.
        collector: handle; None: nothing is collected.
    """

    def __init__(self, settings: Settings, sessions: Any, collector: Any = None) -> None:
        super().__init__(settings, sessions)
        self._limits = settings.limits
        self._score_deadline_seconds = settings.serve.score_deadline_seconds
        self._fewest_snapshots = settings.model.warm_up_snapshots
        self._collector = collector
        self._seen: Equipment | None = None  # what the scorers worked with when they last answered
        self._seen_at = -math.inf  # when that was, s of the monotonic clock
        self._shared_equipment: SingleFlight[Equipment] = SingleFlight()
        self._refreshing: asyncio.Task[None] | None = None

    @http.post(
        "/v1/meshes/{mesh}/snapshots",
        response_model=VerdictDocument,
        openapi_extra=_body("SnapshotDocument"),
        responses=problems.documented(
            *_ALWAYS, *_DOCUMENT, AheadOfClock, StaleSnapshot, SameTimeOtherContent, TooManyMeshes, StoreFull
        ),
    )
    async def push(self, mesh: MeshName, request: Request) -> Response:
        """Push one snapshot, get the verdict. The same snapshot again gets the same verdict and counts once."""
        expires_at, started = self._expires_at(request), time.perf_counter()
        owner = self._owner(mesh)
        packed = await read_snapshot(request, self._limits, now=datetime.now(UTC))
        decoded = time.perf_counter() - started
        lost: Counter[str] = Counter()
        judged: Judged = await ask(owner.push, mesh, packed, expires_at, expires_at=expires_at, lost=lost)
        for deployment, repeats in lost.items():
            request.app.state.instruments.count(RETRIES, repeats, callee=deployment)
        seconds = {"decode": decoded, **judged.seconds, "total": time.perf_counter() - started}
        _measure(request.app.state.instruments, judged, seconds)
        return _json(judged.verdict, {"server-timing": timing(seconds)})

    @http.post(
        "/v1/meshes/{mesh}/baseline",
        status_code=204,
        response_class=Response,
        openapi_extra=_body("SnapshotDocument"),
        responses=problems.documented(*_ALWAYS, *_DOCUMENT, TooManyMeshes, StoreFull),
    )
    async def baseline(self, mesh: MeshName, request: Request) -> Response:
        """Let a snapshot set baselines and calibration. The mesh's clock stands: it may be of any time."""
        expires_at, owner = self._expires_at(request), self._owner(mesh)
        packed = await read_snapshot(request, self._limits)
        await ask(owner.baseline, mesh, packed, expires_at, expires_at=expires_at)
        return Response(status_code=204)

    @http.get(
        "/v1/meshes/{mesh}/verdict",
        response_model=VerdictDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh, UnknownInstant),
    )
    async def verdict(self, mesh: MeshName, at: At = None) -> Response:
        """The newest verdict, or a kept one."""
        return _json(await ask(self._owner(mesh).verdict, mesh, at, expires_at=self._expires_at()))

    @http.get(
        "/v1/meshes/{mesh}/verdicts",
        response_model=VerdictsDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def verdicts(
        self,
        mesh: MeshName,
        since: Annotated[Instant | None, Query(description="only verdicts of later snapshots")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_VERDICTS, description="at most so many, the oldest")] = 120,
    ) -> Response:
        """The kept verdicts, those of the window, oldest first. For the next page give the last time as `since`."""
        kept: list[bytes] = await ask(self._owner(mesh).verdicts, mesh, since, limit, expires_at=self._expires_at())
        return _json(b'{"verdicts":[' + b",".join(kept) + b"]}")

    @http.get("/v1/meshes/{mesh}/source", responses=problems.documented(*_ALWAYS))
    async def source(self, mesh: MeshName) -> SourceDocument:
        """Where its snapshots come from, and how that goes."""
        check_mesh_name(mesh)
        return _source(next((one for one in await self._collected(self._deadline_seconds) if one.mesh == mesh), None))

    @http.get(
        "/v1/meshes/{mesh}/plan", response_model=PlanDocument, responses=problems.documented(*_ALWAYS, UnknownMesh)
    )
    async def plan(
        self,
        mesh: MeshName,
        members: Annotated[bool, Query(description="name the services of each part")] = False,
    ) -> Response:
        """How the mesh is cut into parts as of its newest snapshot, and how well."""
        return _json(await ask(self._owner(mesh).plan, mesh, members, expires_at=self._expires_at()))

    @http.get(
        "/v1/meshes/{mesh}/graph",
        response_model=GraphDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh, UnknownInstant),
    )
    async def graph(self, mesh: MeshName, at: At = None) -> Response:
        """The services and calls of the newest snapshot, or of a kept one, with their metrics, and how strange each
        is."""
        seen: Seen = await ask(self._owner(mesh).graph, mesh, at, expires_at=self._expires_at())
        return _json(await asyncio.to_thread(_graph, seen))

    @http.get("/v1/meshes/{mesh}/incidents", responses=problems.documented(*_ALWAYS, UnknownMesh))
    async def incidents(self, mesh: MeshName) -> IncidentsDocument:
        """The incidents that are open as of the newest verdict."""
        document = await ask(self._owner(mesh).verdict, mesh, expires_at=self._expires_at())
        verdict = VerdictDocument.model_validate_json(document)
        return IncidentsDocument(observed_at=verdict.observed_at, incidents=verdict.incidents)

    @http.post(
        "/v1/meshes/{mesh}/feedback",
        response_model=KeptFeedbackDocument,
        openapi_extra=_json_body("FeedbackDocument", "MissedDocument"),
        responses=problems.documented(
            *_ALWAYS, *_DOCUMENT, UnknownMesh, UnknownIncident, TooMuchFeedback, StoreConflict, StoreFull
        ),
    )
    async def tell(self, mesh: MeshName, request: Request) -> Response:
        """Say of an incident that it was none, that it was one, whose doing it was, or that it was missed. What is said
        is heeded from the next snapshot on, and replaces what was said of the same incident before."""
        expires_at, owner = self._expires_at(), self._owner(mesh)
        said = await read_feedback(request, self._limits)
        return _json(await ask(owner.tell, mesh, said, expires_at=expires_at))

    @http.get(
        "/v1/meshes/{mesh}/feedback",
        response_model=FeedbackListDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def feedback(self, mesh: MeshName) -> Response:
        """What people said of incidents of this mesh, and what it does."""
        return _json(await ask(self._owner(mesh).feedback, mesh, expires_at=self._expires_at()))

    @http.delete(
        "/v1/meshes/{mesh}/feedback/{incident}",
        status_code=204,
        response_class=Response,
        responses=problems.documented(*_ALWAYS, UnknownMesh, UnknownIncident, StoreConflict, StoreFull),
    )
    async def take_back(
        self, mesh: MeshName, incident: Annotated[Id, Path(description="id that the feedback is kept under")]
    ) -> Response:
        """Take back what was said of an incident: from the next snapshot on it is as if nobody had."""
        await ask(self._owner(mesh).take_back, mesh, incident, expires_at=self._expires_at())
        return Response(status_code=204)

    @http.post(
        "/v1/meshes/{mesh}/mutes",
        response_model=KeptMuteDocument,
        openapi_extra=_json_body("MuteDocument"),
        responses=problems.documented(*_ALWAYS, *_DOCUMENT, UnknownMesh, TooManyMutes, StoreConflict, StoreFull),
    )
    async def mute(self, mesh: MeshName, request: Request) -> Response:
        """Let some services, or the whole mesh, page nobody for a while. They are judged as ever, and may be suspected
        of the incidents of others. The same again is the same mute."""
        expires_at, owner = self._expires_at(), self._owner(mesh)
        said = await read_mute(request, self._limits)
        return _json(await ask(owner.mute, mesh, said, expires_at=expires_at))

    @http.get(
        "/v1/meshes/{mesh}/mutes",
        response_model=MuteListDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def mutes(self, mesh: MeshName) -> Response:
        """The mutes that were given here, in force and to come; verdicts tell all that are in force."""
        return _json(await ask(self._owner(mesh).mutes, mesh, expires_at=self._expires_at()))

    @http.delete(
        "/v1/meshes/{mesh}/mutes/{mute}",
        status_code=204,
        response_class=Response,
        responses=problems.documented(*_ALWAYS, UnknownMesh, UnknownMute, StoreConflict, StoreFull),
    )
    async def lift(self, mesh: MeshName, mute: Annotated[Id, Path(description="id that it is kept under")]) -> Response:
        """Take a mute back: from the next snapshot on there is none."""
        await ask(self._owner(mesh).lift, mesh, mute, expires_at=self._expires_at())
        return Response(status_code=204)

    @http.get(
        "/v1/meshes/{mesh}/adapter",
        response_model=AdaptationDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def adaptation(self, mesh: MeshName) -> Response:
        """What the mesh has adapted to: fitted when, on how much, and how much better it was."""
        return _json(await ask(self._owner(mesh).adaptation, mesh, expires_at=self._expires_at()))

    @http.post(
        "/v1/meshes/{mesh}/adapter/rollback",
        response_model=AdaptationDocument,
        responses=problems.documented(*_ALWAYS, *_DOCUMENT, UnknownMesh, NoAdapter, StoreConflict, StoreFull),
    )
    async def roll_back(self, mesh: MeshName, request: Request) -> Response:
        """Take back the adapter in use: from the next snapshot on the one before it is, or none. What taught it teaches
        nothing any more, so it does not come back."""
        expires_at, owner = self._expires_at(), self._owner(mesh)
        await read_nothing(request, self._limits)
        found = await ask(owner.adaptation, mesh, expires_at=expires_at)
        adapter = AdaptationDocument.model_validate_json(found).adapter
        after = await ask(owner.roll_back, mesh, adapter and adapter.fitted_at, expires_at=expires_at)
        request.app.state.instruments.count(ADAPTERS, outcome="rolled_back")
        return _json(after)

    @http.delete(
        "/v1/meshes/{mesh}",
        status_code=204,
        response_class=Response,
        responses=problems.documented(*_ALWAYS, UnknownMesh, StoreFull),
    )
    async def delete(self, mesh: MeshName) -> Response:
        """Forget a mesh: its state, its snapshots, its verdicts."""
        await ask(self._owner(mesh).delete, mesh, expires_at=self._expires_at())
        return Response(status_code=204)

    @http.post(
        "/v1/score",
        response_model=VerdictDocument,
        openapi_extra=_body("ScoreDocument"),
        responses=problems.documented(InvalidParameter, *_BUSY, *_DOCUMENT),
    )
    async def score(self, request: Request) -> Response:
        """Judge the last of 10 to 120 snapshots of one mesh by those before it; nothing is kept."""
        started, expires_at = time.perf_counter(), time.time() + self._score_deadline_seconds
        packed = await read_snapshots(request, self._limits, fewest=self._fewest_snapshots)
        decoded = time.perf_counter() - started
        judged: Judged = await ask(self._sessions.score, packed, expires_at, expires_at=expires_at)
        seconds = {"decode": decoded, **judged.seconds, "total": time.perf_counter() - started}
        return _json(judged.verdict, {"server-timing": timing(seconds)})

    @http.get("/v1/model", response_model=ModelDocument, responses=problems.documented(InvalidParameter, *_BUSY))
    async def model(self) -> Response:
        """The weights in use: what they see, how large they are, and how they were made."""
        return _json(await ask(self._sessions.model, expires_at=self._expires_at()))

    @http.get("/v1/meshes", responses=problems.documented(InvalidParameter, *_BUSY))
    async def meshes(self, request: Request) -> list[MeshDocument]:
        """All meshes by name that the caller may see; those too whose first snapshot is still to be collected."""
        found: list[MeshGauges] = await ask(self._sessions.meshes, expires_at=self._expires_at())
        lines = {
            m.mesh: MeshDocument(
                mesh=m.mesh, services=m.services, sequence=m.sequence, observed_at=m.observed_at, status=m.status
            )
            for m in found
        }
        with suppress(ServeError):  # the collector is away: what was seen is told all the same
            for one in await self._collected(HEALTH_SECONDS):
                unseen = MeshDocument(mesh=one.mesh, services=0, sequence=0, observed_at=None, status=Status.WARMING_UP)
                lines.setdefault(one.mesh, unseen)
        principal = principal_of(request)
        return [lines[name] for name in sorted(lines) if principal.can_see(name)]

    @http.get("/healthz")
    async def healthz(self) -> HealthDocument:
        """This process lives; what the scorers work with, or worked with when they last answered at once."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        if self._seen is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._refreshing), HEALTH_SECONDS)
        return _health("ok", self._seen)

    @http.get("/readyz", responses=problems.documented(*_BUSY))
    async def readyz(self) -> HealthDocument:
        """The store, a session, a scorer and the meta-model answer."""
        if self._seen is not None and time.monotonic() - self._seen_at < READY_SECONDS:
            return _health("ready", self._seen)
        return _health("ready", await self._equipment())

    @http.get("/metrics", response_class=Response, responses=problems.documented(*_BUSY))
    async def metrics(self, request: Request) -> Response:
        """Prometheus' text form: the meshes' gauges, how collecting goes, and what passed through this replica."""
        meshes: list[MeshGauges] = []
        with suppress(StoreGone):  # `tagae_store_gone` says so; what passed through this replica is worth a scrape
            meshes = await ask(self._sessions.meshes, expires_at=self._expires_at())
        instruments: PrometheusInstruments = request.app.state.instruments
        collected: list[CollectorState] = []
        with suppress(ServeError):  # the collector is away: that nothing is told tells it
            collected = await self._collected(HEALTH_SECONDS)
        return Response(instruments.text(meshes, collected), media_type=CONTENT_TYPE)

    async def _collected(self, seconds: float) -> list[CollectorState]:
        """How collecting goes; nothing where nothing is collected."""
        if self._collector is None:
            return []
        found: list[CollectorState] = await ask(self._collector.collected, expires_at=time.time() + seconds)
        return found

    async def _equipment(self) -> Equipment:
        """What the scorers work with. Probes that come together share one look."""

        async def look() -> Equipment:
            expires_at = time.time() + self._deadline_seconds
            found: Equipment = await ask(self._sessions.ready, expires_at, expires_at=expires_at)
            self._seen, self._seen_at = found, time.monotonic()
            return found

        return await self._shared_equipment.do("equipment", look)

    async def _refresh(self) -> None:
        with suppress(ServeError):  # a probe of liveness does not ask for the replicas behind
            await self._equipment()
