"""Verdicts made by hand, and the scoring route without Ray, for the tests of the demo."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx

from lab.demo.state import ScoredSnapshot
from model.checkpoint import load
from serve_app.api.codec import decode_snapshot, encode_verdict
from serve_app.api.schemas.verdict import IncidentDocument, ReasonDocument, SuspectDocument, VerdictDocument
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings

START = datetime(2026, 1, 1, tzinfo=UTC)


def verdict(
    index: int = 0, status: str = "normal", score: float = 1.0, *incidents: IncidentDocument
) -> VerdictDocument:
    """Return a verdict on snapshot ``index``, with a threshold of 4."""
    return VerdictDocument(
        observed_at=START + timedelta(seconds=15 * index),
        sequence=index + 1,
        status=status,
        mesh_score=score,
        threshold=4.0,
        probability=0.5,
        suspects=[],
        incidents=list(incidents),
        coverage=1.0,
        missing_parts=[],
        model="abc",
    )


def incident(name: str, score: float, *suspects: str, severity: str = "major") -> IncidentDocument:
    """Return an incident whose first suspect has a reason."""
    reason = ReasonDocument(
        metric="error_rate",
        observed=0.31,
        expected=0.003,
        since=START,
        text="error rate 31%, expected 0.3%, since 00:00 UTC",
    )
    return IncidentDocument(
        id=name,
        since=START,
        severity=severity,
        score=score,
        suspects=[
            SuspectDocument(service=service, score=0.9 / rank, reasons=[reason] if rank == 1 else [])
            for rank, service in enumerate(suspects, 1)
        ],
        affected=list(suspects),
        changes=[],
        headline=f"{suspects[0]} is failing: 31% of its requests, usually 0.3%. 1 service affected.",
    )


def scored_snapshot(
    index: int, status: str = "normal", score: float = 1.0, *incidents: IncidentDocument
) -> ScoredSnapshot:
    """A scored snapshot."""
    return ScoredSnapshot(index, verdict(index, status, score, *incidents), 3.0)


def transport() -> httpx.MockTransport:
    """The service's scoring route without Ray: codec and pipeline."""
    return httpx.MockTransport(_route())


def _route() -> Callable[[httpx.Request], httpx.Response]:
    checkpoint, mesh_options, mesh = load(), options(Settings()), Mesh()

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal mesh
        verdict, mesh = advance(
            checkpoint, mesh, decode_snapshot(request.content, request.headers["content-type"]), mesh_options
        )
        return httpx.Response(200, content=encode_verdict(verdict).model_dump_json())

    return answer
