"""Routes for the whole service: probes, metrics, the audit log, test alerts."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.schemas.actions import ReceiverResult, TestAlertDocument, TestResultsDocument
from serve_app.api.schemas.audit import AuditDocument
from serve_app.api.schemas.base import Instant
from serve_app.api.schemas.views import HealthDocument, ReplayProgress
from serve_app.collect.loop import CollectorState
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import access_rules
from serve_app.deployments.http.audit import MAX_TEXT, note_names
from serve_app.deployments.http.bodies import read_document, schema_decoder
from serve_app.deployments.http.interface import VERSION, describe_json_body, json_response
from serve_app.deployments.http.routes.dependencies import BODY_ERRORS, BUSY, UseBackend, UseHealth
from serve_app.deployments.scoring.messages import ScorerInfo
from serve_app.errors import InvalidParameter, ServeError, StoreGone, UnknownReceiver
from serve_app.exporter import CONTENT_TYPE, PrometheusInstruments
from serve_app.metrics import MeshGauges
from serve_app.stores.audit import AuditFilter

MESH_PREFIX = "meshes."  # begins the names of a mesh's settings
MAX_RECORDS = 1000
CURSOR = r"^[0-9]{18}-[A-Za-z0-9_-]{1,64}$"
Text = Annotated[str | None, Query(max_length=MAX_TEXT)]

router = APIRouter(tags=["Service"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz(request: Request, health: UseHealth) -> HealthDocument:
    """This process is alive; its status is `ok` once the scorers have answered. Also reports their device and weights
    in their last answer, receivers of notifications with problems, and new meshes whose past is being read."""
    scorer, replays = await asyncio.gather(health.scorers.newest_answer(), health.replays.newest_answer())
    return health_document("ok", scorer, replays or {}, sees_all=_sees_all_meshes(request))


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=problems.describe_errors(*BUSY))
async def readyz(request: Request, health: UseHealth) -> HealthDocument:
    """Whether the store, a session, a scorer and the meta-model answer."""
    return health_document("ready", await health.scorers.recent_answer(), {}, sees_all=_sees_all_meshes(request))


@router.get("/metrics", response_class=Response, responses=problems.describe_errors(*BUSY))
async def metrics(request: Request, backend: UseBackend) -> Response:
    """Metrics in Prometheus' text format: the meshes, the collector, and the requests to this replica."""
    meshes: list[MeshGauges] = []
    with suppress(StoreGone):  # `tagae_store_gone` reports it; the metrics of this replica are still of use
        meshes = await backend.ask(backend.any_session.meshes.gauges)
    states: list[CollectorState] = []
    with suppress(ServeError):  # the collector's missing metrics show that it does not answer
        states = await backend.collector_states()
    instruments: PrometheusInstruments = request.app.state.instruments
    return Response(instruments.text(meshes, states), media_type=CONTENT_TYPE)


@router.get("/v1/audit", response_model=AuditDocument, responses=problems.describe_errors(InvalidParameter, *BUSY))
async def audit(
    backend: UseBackend,
    since: Annotated[Instant | None, Query(description="only records from this time on")] = None,
    until: Annotated[Instant | None, Query(description="only records before this time")] = None,
    user: Text = None,
    mesh: Text = None,
    action: Text = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS, description="maximum number")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=CURSOR, description="`next` of the previous answer; repeat the other parameters")
    ] = None,
) -> AuditDocument:
    """Who changed what, when and from where, and who signed in; the newest records first. An answer may have fewer
    records than `limit` before the list ends. Needs the scope `admin` for all meshes."""
    criteria = AuditFilter(since, until, user, mesh, action, limit, cursor)
    return await backend.ask(backend.records.audit.page, criteria)


@router.post(
    "/v1/receivers/test",
    operation_id="send_test_alert",
    response_model=TestResultsDocument,
    openapi_extra=describe_json_body(TestAlertDocument, is_required=False),
    responses=problems.describe_errors(InvalidParameter, *BUSY, *BODY_ERRORS, UnknownReceiver),
)
async def send_test_alert(request: Request, backend: UseBackend) -> Response:
    """Send a test alert to all or some receivers of notifications, and report which ones accepted it. Needs the scope
    `admin` for all meshes. PagerDuty, Slack and Grafana keep it open until a person closes it."""
    document = await read_document(request, schema_decoder(TestAlertDocument, empty=b"{}"))
    note_names(request, document.receiver)
    statuses = await backend.ask(backend.any_session.receivers.send_test, document.receiver)
    return json_response(TestResultsDocument(receivers=[ReceiverResult.from_object(status) for status in statuses]))


def _sees_all_meshes(request: Request) -> bool:
    """Whether the caller, who needs no token here, may see all mesh names."""
    caller = access_rules().identify(request.scope)
    return caller is not None and caller.meshes is None


def describe_refusals(refusals: Sequence[str], *, sees_all: bool) -> str | None:
    """Why configured weights are not in use; without mesh names for callers who may not see all meshes."""
    visible = [refusal for refusal in refusals if sees_all or not refusal.startswith(MESH_PREFIX)]
    hidden_count = len(refusals) - len(visible)
    if hidden_count:
        visible.append(
            "weights of 1 mesh: refused; the log names it"
            if hidden_count == 1
            else f"weights of {hidden_count} meshes: refused; the log names them"
        )
    return "; ".join(visible) or None


def health_document(
    status: str, scorer: ScorerInfo | None, replays: Mapping[str, float], *, sees_all: bool
) -> HealthDocument:
    """Return the answer to a probe. Until the scorers have answered, there is no model, and nothing is ``ok``."""
    document = HealthDocument(
        status="starting" if scorer is None else status,
        version=VERSION,
        replays=[ReplayProgress(mesh=mesh if sees_all else None, share=share) for mesh, share in replays.items()],
    )
    if scorer is None:
        return document
    fields = {
        "device": scorer.device,
        "kernels": scorer.kernels,
        "model": scorer.model,
        "refused": describe_refusals(scorer.refusals, sees_all=sees_all),
        "receivers": [full if sees_all else public for public, full in scorer.receivers],
    }
    return document.model_copy(update=fields)
