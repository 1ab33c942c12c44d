"""Ingress: HTTP in, HTTP out. Stateless; it parses a body once and hands packed arrays on."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from ray import serve

from serve_app.codec import decode_snapshot_json, pack_snapshot
from serve_app.deployments import problems
from serve_app.deployments.calling import ask
from serve_app.deployments.messages import Equipment, Judged
from serve_app.errors import (
    BadMeshName,
    DeadlineExceeded,
    DocumentTooLarge,
    InvalidDocument,
    MalformedDocument,
    NoCapacity,
    Overloaded,
    SameTimeOtherContent,
    ServeError,
    StaleSnapshot,
    UnknownMesh,
)
from serve_app.metrics import (
    CONTENT_TYPE,
    INFERENCE,
    PARTS_MISSING,
    PARTS_SCORED,
    STAGE,
    VERDICTS,
    MeshGauges,
    PrometheusInstruments,
)
from serve_app.schemas import (
    HealthDocument,
    IncidentsDocument,
    MeshDocument,
    Problem,
    SnapshotDocument,
    VerdictDocument,
)
from serve_app.settings import LimitSettings, Settings
from serve_app.stores.base import check_mesh_name

VERSION = version("tagae")
OFF_LOOP_BYTES = 2**16  # a body that takes about a millisecond to decode
HEALTH_SECONDS = 1.0  # a probe does not wait longer for the replicas behind
_SCHEMA = {"$ref": "#/components/schemas/SnapshotDocument"}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}
_BUSY = (Overloaded, NoCapacity, DeadlineExceeded)
_ALWAYS = (BadMeshName, *_BUSY)
_DOCUMENT = (MalformedDocument, InvalidDocument, DocumentTooLarge)


class Http(FastAPI):
    """The HTTP interface. OpenAPI is told here what FastAPI cannot see: the codec decodes the bodies, and errors are
    problems, never FastAPI's own."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema:
            return self.openapi_schema
        schema = super().openapi()
        documents = schema["components"]["schemas"]
        for document in (SnapshotDocument, Problem):
            described = document.model_json_schema(ref_template="#/components/schemas/{model}")
            documents |= described.pop("$defs", {}) | {document.__name__: described}
        for operation in (o for methods in schema["paths"].values() for o in methods.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
        del documents["HTTPValidationError"], documents["ValidationError"]
        return schema


@asynccontextmanager
async def _lifespan(http: FastAPI) -> AsyncIterator[None]:
    """Instruments are made where they count: they do not travel between processes."""
    http.state.instruments = PrometheusInstruments(replica=serve.get_replica_context().replica_id.unique_id)
    yield


http = Http(
    title="TAGAE",
    summary="Anomaly detection for service meshes",
    version=VERSION,
    lifespan=_lifespan,
    docs_url=None,  # its scripts come from other people's servers
    redoc_url=None,
)
problems.install(http)


# Serve copies the application as it is when the class is made: what the routes use is defined above them.


async def read_snapshot(request: Request, limits: LimitSettings) -> bytes:
    """The snapshot of a body, packed; a large one is decoded off the event loop.

    Raises:
        InvalidDocument: what is wrong, and where.
        DocumentTooLarge: more bytes, services or calls than ``limits`` allow.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.max_body_bytes:
            raise DocumentTooLarge(
                f"body: expected at most {limits.max_body_bytes} bytes, came more; raise limits.max_body_bytes or "
                "split the mesh"
            )
    if len(body) < OFF_LOOP_BYTES:
        return _packed(bytes(body), limits)
    return await asyncio.to_thread(_packed, bytes(body), limits)


def timed(seconds: Mapping[str, float]) -> dict[str, str]:
    """The ``Server-Timing`` header: stages in ms."""
    return {"server-timing": ", ".join(f"{stage};dur={1000 * taken:.2f}" for stage, taken in seconds.items())}


def _packed(body: bytes, limits: LimitSettings) -> bytes:
    return pack_snapshot(decode_snapshot_json(body, max_services=limits.max_services, max_calls=limits.max_calls))


def _measure(instruments: PrometheusInstruments, judged: Judged, seconds: Mapping[str, float]) -> None:
    """What one snapshot was; a repeat was counted before."""
    if not judged.status:
        return
    instruments.count(VERDICTS, status=judged.status)
    for scorer, parts in judged.scorers.items():
        instruments.count(PARTS_SCORED, parts, scorer=scorer)
    instruments.count(PARTS_MISSING, judged.missing)
    for stage, taken in seconds.items():
        if stage == "inference":
            instruments.observe(INFERENCE, taken)
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
    )


@serve.ingress(http)
class Ingress:
    """The routes.

    Args:
        settings: its ``serve`` and ``limits``.
        sessions: handle of the sessions.
    """

    def __init__(self, settings: Settings, sessions: Any) -> None:
        self._limits = settings.limits
        self._deadline_seconds = settings.serve.deadline_seconds
        self._sessions = sessions
        self._seen: Equipment | None = None  # what the scorers worked with when they last answered

    @http.post(
        "/v1/meshes/{mesh}/snapshots",
        response_model=VerdictDocument,
        openapi_extra=_BODY,
        responses=problems.documented(*_ALWAYS, *_DOCUMENT, StaleSnapshot, SameTimeOtherContent),
    )
    async def push(self, mesh: str, request: Request) -> Response:
        """Push one snapshot, get the verdict. The same snapshot again gets the same verdict and counts once."""
        expires_at, started = self._expires_at(), time.perf_counter()
        owner = self._owner(mesh)
        packed = await read_snapshot(request, self._limits)
        decoded = time.perf_counter() - started
        judged: Judged = await ask(owner.push, mesh, packed, expires_at, expires_at=expires_at)
        seconds = {"decode": decoded, **judged.seconds, "total": time.perf_counter() - started}
        _measure(request.app.state.instruments, judged, seconds)
        return Response(judged.verdict, headers=timed(seconds), media_type="application/json")

    @http.post(
        "/v1/meshes/{mesh}/baseline",
        status_code=204,
        response_class=Response,
        openapi_extra=_BODY,
        responses=problems.documented(*_ALWAYS, *_DOCUMENT),
    )
    async def baseline(self, mesh: str, request: Request) -> Response:
        """Let a snapshot set baselines and calibration. The mesh's clock stands: it may be of any time."""
        expires_at, owner = self._expires_at(), self._owner(mesh)
        packed = await read_snapshot(request, self._limits)
        await ask(owner.baseline, mesh, packed, expires_at, expires_at=expires_at)
        return Response(status_code=204)

    @http.get(
        "/v1/meshes/{mesh}/verdict",
        response_model=VerdictDocument,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def verdict(self, mesh: str) -> Response:
        """The newest verdict."""
        document = await ask(self._owner(mesh).verdict, mesh, expires_at=self._expires_at())
        return Response(document, media_type="application/json")

    @http.get("/v1/meshes/{mesh}/incidents", responses=problems.documented(*_ALWAYS, UnknownMesh))
    async def incidents(self, mesh: str) -> IncidentsDocument:
        """The incidents that are open as of the newest verdict."""
        document = await ask(self._owner(mesh).verdict, mesh, expires_at=self._expires_at())
        verdict = VerdictDocument.model_validate_json(document)
        return IncidentsDocument(observed_at=verdict.observed_at, incidents=verdict.incidents)

    @http.delete(
        "/v1/meshes/{mesh}",
        status_code=204,
        response_class=Response,
        responses=problems.documented(*_ALWAYS, UnknownMesh),
    )
    async def delete(self, mesh: str) -> Response:
        """Forget a mesh: its state, its snapshots, its verdicts."""
        await ask(self._owner(mesh).delete, mesh, expires_at=self._expires_at())
        return Response(status_code=204)

    @http.get("/v1/meshes", responses=problems.documented(*_BUSY))
    async def meshes(self) -> list[MeshDocument]:
        """All meshes by name."""
        found: list[MeshGauges] = await ask(self._sessions.meshes, expires_at=self._expires_at())
        return [
            MeshDocument(
                mesh=m.mesh, services=m.services, sequence=m.sequence, observed_at=m.observed_at, status=m.status
            )
            for m in found
        ]

    @http.get("/healthz")
    async def healthz(self) -> HealthDocument:
        """This process lives; what the scorers work with, or worked with when they last answered at once."""
        try:
            self._seen = await self._equipment(HEALTH_SECONDS)
        except ServeError:
            return _health("ok", self._seen)
        return _health("ok", self._seen)

    @http.get("/readyz", responses=problems.documented(*_BUSY))
    async def readyz(self) -> HealthDocument:
        """The store, a session, a scorer and the meta-model answer."""
        return _health("ready", await self._equipment(self._deadline_seconds))

    @http.get("/metrics", response_class=Response, responses=problems.documented(*_BUSY))
    async def metrics(self, request: Request) -> Response:
        """Prometheus' text form: the meshes' gauges, and what passed through this replica of the ingress."""
        meshes: list[MeshGauges] = await ask(self._sessions.meshes, expires_at=self._expires_at())
        instruments: PrometheusInstruments = request.app.state.instruments
        return Response(instruments.text(meshes), media_type=CONTENT_TYPE)

    def _owner(self, mesh: str) -> Any:
        """Handle that routes to the session which holds the mesh, if the name can be one."""
        return self._sessions.options(session_id=check_mesh_name(mesh))

    def _expires_at(self) -> float:
        return time.time() + self._deadline_seconds

    async def _equipment(self, seconds: float) -> Equipment:
        expires_at = time.time() + seconds
        found: Equipment = await ask(self._sessions.ready, expires_at, expires_at=expires_at)
        return found
