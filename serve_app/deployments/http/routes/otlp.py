"""The route that takes metrics of an OpenTelemetry collector."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from serve_app.collect.otlp.decode import JSON, PROTOBUF, encode_response
from serve_app.deployments.http import problems
from serve_app.deployments.http.bodies import read_metrics
from serve_app.deployments.http.interface import MeshName
from serve_app.deployments.http.routes.dependencies import OF_A_MESH, WITH_A_BODY, UseBackend
from serve_app.errors import AheadOfClock, SameTimeOtherContent, StaleSnapshot, StoreFull, TooManyMeshes
from serve_app.observability.spans import span, traceparent
from serve_app.runtime.rpc import Caller

router = APIRouter(tags=["Snapshots and verdicts"])
MESSAGES = {PROTOBUF: {"schema": {"type": "string", "format": "binary"}}, JSON: {"schema": {"type": "object"}}}


@router.post(
    "/v1/meshes/{mesh}/otlp/v1/metrics",
    operation_id="metrics_of_calls",
    response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": MESSAGES}},
    responses={
        200: {"content": MESSAGES, "description": "`ExportMetricsServiceResponse`"},
        **problems.describe_errors(
            *OF_A_MESH, *WITH_A_BODY, AheadOfClock, StaleSnapshot, SameTimeOtherContent, TooManyMeshes, StoreFull
        ),
    },
)
async def take_metrics(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Take metrics of a service graph from an OpenTelemetry collector (OTLP over HTTP, `ExportMetricsServiceRequest`).
    When an interval ends, its rates become a snapshot of the mesh. Other metrics are ignored and counted in the
    answer."""
    caller, session = Caller(backend.deadline(request)), backend.session_of(mesh)
    with span("ingress.decode"):
        points, ignored, media_type = await read_metrics(request, backend.settings.limits, datetime.now(UTC))
    if points:
        await caller.ask(session.add_metrics, mesh, points, caller.deadline, traceparent())
    return Response(encode_response(media_type, ignored), media_type=media_type)
