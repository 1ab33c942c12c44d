"""Stored snapshots for the page: columns of verdicts, comparison of periods."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.errors import InvalidParameter, UnknownMesh
from serve_app.stores.scored_snapshot import StoredVerdict
from serve_app.web.comparison import CONTEXT, CONTEXT_WEIGHT, PeriodSample, comparison
from serve_app.web.documents import ComparisonDocument, ComparisonRow, TimelineDocument
from serve_app.web.history import instant, timeline
from tests.builders import mesh_of
from tests.serve_app.web.slow_service import FAULT_FROM, FAULT_TO, LENGTH, MESH, SLOW, SNAPSHOTS, SPEC
from tests.serve_app.web.watching import SECONDS, Watched


@pytest.fixture
def verdicts(seen_mesh: Watched) -> list[dict[str, Any]]:
    return seen_mesh.verdicts[:LENGTH]


def read_timeline(watched: Watched, since: str | None = None, limit: int = 1000) -> TimelineDocument:
    at = None if since is None else datetime.fromisoformat(since)
    return TimelineDocument.model_validate_json(watched.viewing.timeline(MESH, at, limit))


# timeline


def test_columns_match_the_verdicts(seen_mesh: Watched, verdicts: list[dict[str, Any]]) -> None:
    columns = msgspec.json.decode(seen_mesh.viewing.timeline(MESH, None, 1000))
    TimelineDocument.model_validate_json(seen_mesh.viewing.timeline(MESH, None, 1000))
    for name in ("observed_at", "sequence", "status", "mesh_score", "threshold", "probability", "coverage"):
        assert columns[name] == [verdict[name] for verdict in verdicts], name
    assert columns["missing_parts"] == [0] * LENGTH
    assert columns["milliseconds"] == [1e3 * SECONDS] * LENGTH
    assert {"warming_up", "normal", "anomalous"} <= set(columns["status"])
    assert columns["kept_from"] == verdicts[0]["observed_at"]


def test_an_incident_spans_its_first_to_its_last_snapshot(seen_mesh: Watched, verdicts: list[dict[str, Any]]) -> None:
    opened = [(verdict, incident) for verdict in verdicts for incident in verdict["incidents"]]
    incidents = read_timeline(seen_mesh).incidents
    assert [incident.id for incident in incidents] == list(dict.fromkeys(incident["id"] for _, incident in opened))
    assert incidents
    for incident_row in incidents:
        mine = [(verdict, incident) for verdict, incident in opened if incident["id"] == incident_row.id]
        assert (instant(incident_row.first), instant(incident_row.last)) == (
            mine[0][0]["observed_at"],
            mine[-1][0]["observed_at"],
        )
        strongest = max(incident["score"] for _, incident in mine)
        named = {i["suspects"][0]["service"] for _, i in mine if i["score"] == strongest and i["suspects"]}
        assert incident_row.service in named
        assert incident_row.severity == mine[-1][1]["severity"]
    assert SLOW in {incident.service for incident in incidents}


def test_the_last_suspect_can_differ_from_the_suspect_at_the_strongest_moment() -> None:
    def document(second: int, score: float, *suspects: str) -> StoredVerdict:
        incident = {"id": "x", "since": "2026-01-01T00:00:00Z", "severity": "minor", "score": score}
        incident |= {"suspects": [{"service": name, "score": 0.5} for name in suspects], "affected": ["shop/web"]}
        fields = {"observed_at": f"2026-01-01T00:00:{second:02}.500000Z", "sequence": second, "status": "anomalous"}
        fields |= {"mesh_score": 5, "threshold": None, "probability": 0.5, "coverage": 0.5, "missing_parts": [0, 2]}
        return StoredVerdict(1, msgspec.json.encode(fields | {"incidents": [incident]}))

    records = [document(1, 4.0, "shop/a"), document(2, 9.0, "shop/db"), document(3, 5.0, "shop/a")]
    found = TimelineDocument.model_validate_json(timeline(records, SNAPSHOTS))
    assert [(incident.service, incident.score) for incident in found.incidents] == [("shop/db", 9.0)]
    assert (found.missing_parts, found.threshold, found.milliseconds) == ([2] * 3, [None] * 3, [None] * 3)
    (unexplained,) = TimelineDocument.model_validate_json(timeline([document(4, 4.0)], SNAPSHOTS)).incidents
    assert unexplained.service == "shop/web", "without suspects, the first affected service is shown"


def test_changes_belong_to_the_listed_snapshots(seen_mesh: Watched) -> None:
    announced = [
        (snapshot.observed_at, change.kind, change.service, change.reason)
        for snapshot in SNAPSHOTS
        for change in snapshot.changes
    ]
    assert announced
    found = [(change.at, change.kind, change.service, change.reason) for change in read_timeline(seen_mesh).changes]
    assert found == announced
    later = instant(announced[0][0])
    assert all(change.at > announced[0][0] for change in read_timeline(seen_mesh, since=later).changes)


def test_since_and_limit_make_pages_that_join(seen_mesh: Watched, verdicts: list[dict[str, Any]]) -> None:
    whole, first = read_timeline(seen_mesh), read_timeline(seen_mesh, limit=30)
    rest = read_timeline(seen_mesh, since=instant(first.observed_at[-1]))
    assert (first.observed_at + rest.observed_at, len(first.observed_at)) == (whole.observed_at, 30)
    nothing = read_timeline(seen_mesh, since=verdicts[-1]["observed_at"])
    assert (nothing.observed_at, nothing.incidents, nothing.changes) == ([], [], [])
    assert instant(nothing.kept_from) == verdicts[0]["observed_at"], "also if there is nothing new"


def test_times_with_fractions_have_the_format_of_verdicts(seen_mesh: Watched) -> None:
    shifted = [s for s in SNAPSHOTS[20:28] if s.changes] or SNAPSHOTS[25:26]
    late = [replace(s, observed_at=s.observed_at + timedelta(microseconds=120_000)) for s in shifted]
    (verdict, *_) = seen_mesh.see("fractions", late)
    document = TimelineDocument.model_validate_json(seen_mesh.viewing.timeline("fractions", None, 10))
    assert instant(document.observed_at[0]) == verdict["observed_at"]
    assert {change.at for change in document.changes} == {s.observed_at for s in late if s.changes}


def part(snapshot: MeshSnapshot, *, is_platform: bool) -> MeshSnapshot:
    """Return the services of the namespace ``platform``, or all others."""
    rows = [i for i, name in enumerate(snapshot.node_ids) if name.startswith("platform/") == is_platform]
    return snapshot.take(rows, np.flatnonzero(np.isin(snapshot.edge_index, rows).all(axis=0)))


def test_an_unknown_mesh_is_refused(seen_mesh: Watched) -> None:
    at = SNAPSHOTS[0].observed_at
    with pytest.raises(UnknownMesh):
        seen_mesh.viewing.timeline("nowhere", None, 10)
    with pytest.raises(UnknownMesh):
        seen_mesh.past.comparison("nowhere", (at, at), (at, at))


# comparison


def differing(first: list[MeshSnapshot], second: list[MeshSnapshot]) -> list[ComparisonRow]:
    document = ComparisonDocument.model_validate_json(
        comparison(PeriodSample(first, SPEC.interval_seconds), PeriodSample(second, SPEC.interval_seconds))
    )
    assert (document.first_snapshots, document.second_snapshots) == (len(first), len(second))
    strengths = [abs(row.strength) * (CONTEXT_WEIGHT if row.metric in CONTEXT else 1.0) for row in document.rows]
    assert strengths == sorted(strengths, reverse=True)
    return document.rows


def test_the_service_that_became_slow_differs_most(seen_mesh: Watched) -> None:
    calm, slow = (
        (SNAPSHOTS[a].observed_at, SNAPSHOTS[b].observed_at) for a, b in ((10, 38), (FAULT_FROM + 3, FAULT_TO - 1))
    )
    document = ComparisonDocument.model_validate_json(seen_mesh.past.comparison(MESH, calm, slow))
    assert (document.first_snapshots, document.second_snapshots) == (29, FAULT_TO - 1 - FAULT_FROM - 3 + 1)
    strongest = document.rows[0]
    assert strongest.service == SLOW
    assert strongest.metric in {"p50_latency", "p99_latency"}
    assert strongest.first is not None
    assert strongest.second is not None
    assert strongest.second > 1.5 * strongest.first
    assert strongest.strength > 5
    back = differing(SNAPSHOTS[FAULT_FROM + 3 : FAULT_TO], SNAPSHOTS[10:39])
    assert (back[0].service, back[0].strength) == (strongest.service, -strongest.strength)


def test_two_quiet_periods_hardly_differ() -> None:
    """At most ten of about 900 series are listed, and none differs as much as in a fault."""
    quiet = list(Simulator(SPEC, snapshots=60).snapshots())
    rows = differing(quiet[:30], quiet[30:])
    assert len(rows) <= 10
    assert all(abs(row.strength) < 5 for row in rows)
    assert differing(quiet[:30], quiet[:30]) == []


def test_periods_of_a_snapshot_and_of_meshes_with_nothing_in_common_are_compared() -> None:
    assert differing([part(SNAPSHOTS[0], is_platform=False)], [part(SNAPSHOTS[1], is_platform=True)]) == []
    assert differing([SNAPSHOTS[0]], [SNAPSHOTS[0]]) == []


def test_medians_are_of_observed_values() -> None:
    nothing = np.array([SNAPSHOTS[0].node_features[0], SNAPSHOTS[0].node_features[1]]) * np.nan
    times = [SNAPSHOTS[0].observed_at + timedelta(seconds=15 * i) for i in range(6)]

    def snapshots(*rates: float) -> list[MeshSnapshot]:
        made = []
        for at, rate in zip(times, rates, strict=False):
            features = nothing.copy()
            features[0, 0] = rate
            made.append(mesh_of(["a/x", "a/y"], at=at, nodes=features))
        return made

    nan = float("nan")
    (row,) = differing(snapshots(100, nan, 110, 104, 1000), snapshots(nan, 500, nan, 520))
    assert (row.service, row.source, row.metric) == ("a/x", None, "request_rate")
    assert (row.first, row.second) == (107.0, 510.0)


def test_a_period_without_a_snapshot_is_refused(seen_mesh: Watched) -> None:
    begin = SNAPSHOTS[0].observed_at
    read = ComparisonDocument.model_validate_json(seen_mesh.past.comparison(MESH, (begin, begin), (begin, begin)))
    assert (read.first_snapshots, read.second_snapshots, read.rows) == (1, 1, [])
    for ends in ((begin - timedelta(days=1), begin - timedelta(seconds=1)), (SNAPSHOTS[3].observed_at, begin)):
        with pytest.raises(InvalidParameter, match=f"a second period.*the kept snapshots are {instant(begin)}"):
            seen_mesh.past.comparison(MESH, (begin, begin), ends)
