"""Routes for probes and for Prometheus."""

from collections.abc import Sequence
from contextlib import suppress

from fastapi import APIRouter, Request, Response

from serve_app.access import Scope
from serve_app.api.schemas.views import HealthDocument
from serve_app.collect.loop import CollectorState
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import access_rules
from serve_app.deployments.http.interface import VERSION
from serve_app.deployments.http.routes.dependencies import BUSY, UseBackend, UseHealth
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.errors import ServeError, StoreGone
from serve_app.exporter import CONTENT_TYPE, PrometheusInstruments
from serve_app.metrics import MeshGauges

OF_A_MESH = "meshes."  # begins the name of a setting of one mesh
router = APIRouter(tags=["Service"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz(request: Request, health: UseHealth) -> HealthDocument:
    """This process is alive. Also says what the scorers worked with when they last answered, and which receivers of
    notifications have a problem."""
    return _document("ok", await health.last_scorer_info(), sees_all=_sees_all_meshes(request))


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=problems.describe_errors(*BUSY))
async def readyz(request: Request, health: UseHealth) -> HealthDocument:
    """The store, a session, a scorer and the meta-model answer."""
    return _document("ready", await health.ready_scorer_info(), sees_all=_sees_all_meshes(request))


@router.get("/metrics", response_class=Response, responses=problems.describe_errors(*BUSY))
async def metrics(request: Request, backend: UseBackend) -> Response:
    """Metrics in Prometheus' text format: the meshes, the collector, and the requests to this replica."""
    meshes: list[MeshGauges] = []
    with suppress(StoreGone):  # `tagae_store_gone` reports it; the metrics of this replica are still of use
        meshes = await backend.ask(backend.doors.meshes.gauges)
    states: list[CollectorState] = []
    with suppress(ServeError):  # the missing metrics of the collector show that it does not answer
        states = await backend.collector_states()
    instruments: PrometheusInstruments = request.app.state.instruments
    return Response(instruments.text(meshes, states), media_type=CONTENT_TYPE)


def _sees_all_meshes(request: Request) -> bool:
    """Whether the caller, who needs no token here, may know the names of all meshes."""
    caller = access_rules().identify(request.scope["headers"], request.scope.get("client"))
    return caller is not None and caller.meshes is None and caller.has(Scope.READ)


def describe_refused(refused: Sequence[str], *, sees_all: bool) -> str | None:
    """Why configured weights are not in use; for callers who may not see all meshes, without the names of meshes."""
    visible = [one for one in refused if sees_all or not one.startswith(OF_A_MESH)]
    hidden = len(refused) - len(visible)
    if hidden:
        visible.append(
            "weights of 1 mesh: refused; the log names it"
            if hidden == 1
            else f"weights of {hidden} meshes: refused; the log names them"
        )
    return "; ".join(visible) or None


def _document(status: str, scorer: ScorerInfo | None, *, sees_all: bool) -> HealthDocument:
    if scorer is None:
        return HealthDocument(status=status, version=VERSION)
    return HealthDocument(
        status=status,
        version=VERSION,
        device=scorer.device,
        kernels=scorer.kernels,
        model=scorer.model,
        refused=describe_refused(scorer.refused, sees_all=sees_all),
        receivers=[full if sees_all else public for public, full in scorer.receivers],
    )
