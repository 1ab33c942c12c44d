"""Routes that accept snapshots: push, baseline, score, and an OpenTelemetry collector's metrics."""

import time
from collections import Counter
from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from serve_app.api.schemas.snapshot import SnapshotDocument
from serve_app.api.schemas.verdict import ScoreDocument, VerdictDocument
from serve_app.collect.otlp.decode import JSON, PROTOBUF, encode_response
from serve_app.deployments.http import problems
from serve_app.deployments.http.bodies import read_metrics, read_snapshot, read_snapshots
from serve_app.deployments.http.interface import (
    MeshName,
    describe_body,
    describe_json_body,
    json_response,
    server_timing,
)
from serve_app.deployments.http.routes.dependencies import BODY_ERRORS, BUSY, MESH_ERRORS, UseBackend
from serve_app.errors import (
    AheadOfClock,
    BaselineTooLate,
    SameTimeOtherContent,
    StaleSnapshot,
    StoreFull,
    TooManyMeshes,
)
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import RETRIES, STAGE
from serve_app.observability.spans import span, traceparent
from serve_app.runtime.rpc import Caller

router = APIRouter(tags=["Snapshots and verdicts"])
MESSAGES = {PROTOBUF: {"schema": {"type": "string", "format": "binary"}}, JSON: {"schema": {"type": "object"}}}


@router.post(
    "/v1/meshes/{mesh}/snapshots",
    response_model=VerdictDocument,
    openapi_extra=describe_body(SnapshotDocument),
    responses=problems.describe_errors(
        *MESH_ERRORS, *BODY_ERRORS, AheadOfClock, StaleSnapshot, SameTimeOtherContent, TooManyMeshes, StoreFull
    ),
)
async def push(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Push one snapshot and get its verdict. Repeating the same snapshot returns the same verdict; it counts once."""
    caller, start = Caller(backend.deadline(request)), time.perf_counter()
    session = backend.session_of(mesh)
    with span("ingress.decode"):
        body = await read_snapshot(request, backend.settings.limits, now=datetime.now(UTC))
    decode_seconds = time.perf_counter() - start
    answer = await caller.ask(session.push, mesh, body.packed, caller.deadline, trace=traceparent())
    seconds = {"decode": decode_seconds, **answer.seconds, "total": time.perf_counter() - start}
    instruments: PrometheusInstruments = request.app.state.instruments
    for deployment, count in (caller.retries + Counter(answer.retries)).items():
        instruments.count(RETRIES, count, callee=deployment)
    if answer.seconds:  # the session counts its stages and the verdict; a repeated snapshot was already counted
        for stage in ("decode", "total"):
            instruments.observe(STAGE, seconds[stage], stage=stage)
    return json_response(answer.verdict, {"server-timing": server_timing(seconds), **body.headers})


@router.post(
    "/v1/meshes/{mesh}/baseline",
    status_code=204,
    response_class=Response,
    openapi_extra=describe_body(SnapshotDocument),
    responses=problems.describe_errors(*MESH_ERRORS, *BODY_ERRORS, BaselineTooLate, TooManyMeshes, StoreFull),
)
async def baseline(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Learn baselines and calibration from a snapshot. It can have any time and does not move the mesh's clock. A mesh
    with verdicts refuses it (409), because it learns from its snapshots."""
    caller, session = Caller(backend.deadline(request)), backend.session_of(mesh)
    with span("ingress.decode"):
        body = await read_snapshot(request, backend.settings.limits)
    await caller.ask(session.baseline, mesh, body.packed, caller.deadline, traceparent())
    return Response(status_code=204, headers=body.headers)


@router.post(
    "/v1/score",
    response_model=VerdictDocument,
    openapi_extra=describe_json_body(ScoreDocument),
    responses=problems.describe_errors(*BUSY, *BODY_ERRORS),
)
async def score(request: Request, backend: UseBackend) -> Response:
    """Score the last of 10 to 120 snapshots of one mesh against those before it. Nothing is stored."""
    caller, start = Caller(backend.deadline(request)), time.perf_counter()
    with span("ingress.decode"):
        snapshots = await read_snapshots(
            request, backend.settings.limits, min_count=backend.settings.model.warm_up_snapshots
        )
    decode_seconds = time.perf_counter() - start
    answer = await caller.ask(backend.sessions.score, snapshots, caller.deadline, traceparent())
    seconds = {"decode": decode_seconds, **answer.seconds, "total": time.perf_counter() - start}
    return json_response(answer.verdict, {"server-timing": server_timing(seconds)})


@router.post(
    "/v1/meshes/{mesh}/otlp/v1/metrics",
    operation_id="metrics_of_calls",
    response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": MESSAGES}},
    responses={
        200: {"content": MESSAGES, "description": "`ExportMetricsServiceResponse`"},
        **problems.describe_errors(
            *MESH_ERRORS, *BODY_ERRORS, AheadOfClock, StaleSnapshot, SameTimeOtherContent, TooManyMeshes, StoreFull
        ),
    },
)
async def take_metrics(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Accept service graph metrics from an OpenTelemetry collector (OTLP over HTTP, `ExportMetricsServiceRequest`).
    When an interval ends, its rates become a snapshot of the mesh. Other metrics are ignored and counted in the
    answer."""
    caller, session = Caller(backend.deadline(request)), backend.session_of(mesh)
    with span("ingress.decode"):
        points, ignored_count, media_type = await read_metrics(request, backend.settings.limits, datetime.now(UTC))
    if points:
        await caller.ask(session.add_metrics, mesh, points, caller.deadline, traceparent())
    return Response(encode_response(media_type, ignored_count), media_type=media_type)
