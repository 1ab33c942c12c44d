"""The past of a mesh: ranges, maps of past moments, and comparisons with them."""

import zlib
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import NODE_METRICS, MeshSnapshot, NodeMetric
from serve_app.api.schemas.history import RangeDocument
from serve_app.errors import InvalidParameter, UnknownInstant, UnknownMesh
from serve_app.stores.history_files import ROUNDING, PastSeries
from serve_app.web.documents import ComparisonDocument, PastMapDocument
from serve_app.web.history import instant
from serve_app.web.period import RangeSteps, Subject, TimeRange
from serve_app.web.range import DAY, usual_range
from tests.serve_app.running import failing
from tests.serve_app.web.watching import Watched

SPEC = MeshSpec(services=40, seed=3, dropout=0.02)
CULPRIT = failing(SPEC, "latency_injection")
MESH, WINDOW = "shop", 96  # 24 minutes, so that most of the recording has left the window
FAULT_FROM, FAULT_TO, LENGTH = 150, 166, 420
SLOWER = 8.0  # times its usual latency on top, about 100 ms: users notice it
ROUNDED = 2.0 ** (ROUNDING - 24)  # share of a value


@pytest.fixture(scope="module")
def snapshots() -> list[MeshSnapshot]:
    """A recording with a deploy, a service that is slow for a while, and a gap of five minutes."""
    fault = Fault("latency_injection", CULPRIT, FAULT_FROM, FAULT_TO, SLOWER)
    deploy = BenignChange("deploy", Simulator(SPEC).node_ids[5], 90)
    made = list(Simulator(SPEC, [fault], [deploy], snapshots=LENGTH).snapshots())
    return made[:200] + made[220:]


@pytest.fixture(scope="module")
def watched_mesh(tmp_path_factory: pytest.TempPathFactory, snapshots: list[MeshSnapshot]) -> Iterator[Watched]:
    kept = Watched(tmp_path_factory.mktemp("past"))
    with closing(kept.store):
        kept.see(MESH, snapshots, window=WINDOW)
        yield kept


def read_range(
    watched_mesh: Watched, start: datetime, end: datetime, points: int = 600, subject: Subject | None = None
) -> RangeDocument:
    return RangeDocument.model_validate_json(watched_mesh.past.range(MESH, TimeRange(start, end, points), subject))


def test_a_range_of_kept_snapshots_has_each_of_them(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    kept = snapshots[-WINDOW + 10 :]
    read = read_range(watched_mesh, kept[0].observed_at, kept[-1].observed_at)
    assert (read.source, read.step_seconds) == ("snapshots", SPEC.interval_seconds)
    assert read.observed_at == [snapshot.observed_at for snapshot in kept]
    assert read.mesh.score == pytest.approx(
        [verdict["mesh_score"] for verdict in watched_mesh.verdicts[-len(kept) :]], abs=1e-3
    )
    assert read.mesh.status == [verdict["status"] for verdict in watched_mesh.verdicts[-len(kept) :]]
    assert read.service is None


def test_a_range_of_the_past_has_the_means_of_minutes(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    name = CULPRIT
    first, last = snapshots[20].observed_at, snapshots[180].observed_at
    read = read_range(watched_mesh, first, last, 2000, Subject(name))
    assert (read.source, read.step_seconds) == ("archive", 60)
    assert read.service is not None
    by_minute: dict[datetime, list[MeshSnapshot]] = {}
    for snapshot in snapshots:
        by_minute.setdefault(snapshot.observed_at.replace(second=0, microsecond=0), []).append(snapshot)
    whole = [at for at in read.observed_at if at in by_minute]
    assert len(whole) == len(read.observed_at) >= 40
    for at, value, score in zip(
        read.observed_at, read.service.metrics["request_rate"].values, read.mesh.highest_score, strict=True
    ):
        rows = [snapshot.node_ids.index(name) for snapshot in by_minute[at]]
        observed = [
            float(snapshot.node_features[row, NodeMetric.REQUEST_RATE])
            for snapshot, row in zip(by_minute[at], rows, strict=True)
            if snapshot.node_observed[row, NodeMetric.REQUEST_RATE]
        ]
        assert value == (pytest.approx(np.mean(observed), rel=ROUNDED) if observed else None)
        times = {instant(snapshot.observed_at) for snapshot in by_minute[at]}
        verdicts = [verdict["mesh_score"] for verdict in watched_mesh.verdicts if verdict["observed_at"] in times]
        assert score == pytest.approx(max(verdicts), abs=1e-3)
    assert {"anomalous"} <= set(read.mesh.status)


def test_a_gap_stays_a_gap_and_a_spike_stays_a_spike(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    """Also with few steps, of which each has several rows."""
    begin, end = snapshots[0].observed_at, snapshots[-1].observed_at
    fine, coarse = (read_range(watched_mesh, begin, end, points, Subject(CULPRIT)) for points in (2000, 20))
    assert len(coarse.observed_at) <= 20 < len(fine.observed_at) <= 2000
    assert [at for at, score in zip(fine.observed_at, fine.mesh.score, strict=True) if score is None]
    highest = max(verdict["mesh_score"] for verdict in watched_mesh.verdicts)
    for read in (fine, coarse):
        assert max(score for score in read.mesh.highest_score if score is not None) == pytest.approx(highest, abs=1e-3)
        assert read.service is not None
        assert all(len(column) == len(read.observed_at) for column in (read.service.score, read.mesh.status))
    assert coarse.service is not None
    rates = coarse.service.metrics["request_rate"]
    assert rates.low is not None
    assert rates.high is not None
    for low, value, high in zip(rates.low, rates.values, rates.high, strict=True):
        assert value is None or (
            low is not None and high is not None and low <= value * (1 + 1e-4) <= high * (1 + 2e-4)
        )


def test_a_range_has_its_incidents_and_changes(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    read = read_range(watched_mesh, snapshots[0].observed_at, snapshots[-1].observed_at)
    assert CULPRIT in {incident.service for incident in read.incidents}
    announced = [(snapshot.observed_at, change.service) for snapshot in snapshots for change in snapshot.changes]
    assert announced
    assert [(change.at, change.service) for change in read.changes] == announced
    assert CULPRIT in [row.service for row in read.unusual[:3]]
    assert [row.highest_score for row in read.unusual] == sorted(
        (row.highest_score for row in read.unusual), reverse=True
    )
    before = read_range(watched_mesh, snapshots[0].observed_at, snapshots[30].observed_at)
    assert (before.incidents, before.changes) == ([], [])
    assert before.complete_from == snapshots[0].observed_at.replace(second=0, microsecond=0)


def test_a_range_before_all_data_is_empty(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    begin = snapshots[0].observed_at
    read = read_range(watched_mesh, begin - timedelta(days=3), begin - timedelta(days=2), 100, Subject(CULPRIT))
    assert read.source == "archive"
    assert set(read.mesh.score) == {None}
    assert read.service is not None
    assert all(set(metric.values) == {None} for metric in read.service.metrics.values())
    with pytest.raises(UnknownMesh):
        watched_mesh.past.range("nowhere", TimeRange(begin, begin + timedelta(hours=1), 10), None)


def test_calls_have_a_range_too(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    snapshot = snapshots[100]
    source, end = (snapshot.node_ids[i] for i in snapshot.edge_index[:, 7])
    read = read_range(watched_mesh, snapshots[60].observed_at, snapshots[140].observed_at, 600, Subject(end, source))
    assert read.service is not None
    rates = [rate for rate in read.service.metrics["requests_per_second"].values if rate is not None]
    assert np.median(rates) == pytest.approx(float(snapshot.edge_features[7, 0]), rel=0.5)


def unzip(zipped: bytes) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(zlib.decompress(zipped, 31))
    return read


def test_the_map_of_a_past_moment_has_its_services_metrics_and_incidents(
    watched_mesh: Watched, snapshots: list[MeshSnapshot]
) -> None:
    at = snapshots[FAULT_FROM + 8].observed_at
    read = PastMapDocument.model_validate(unzip(watched_mesh.viewing.past_map(MESH, at, ())))
    assert (read.source, read.step_seconds) == ("archive", 60)
    assert read.observed_at == at.replace(second=0, microsecond=0)
    assert set(read.nodes.name) >= set(snapshots[FAULT_FROM + 8].node_ids)
    place = read.nodes.name.index(CULPRIT)
    assert read.nodes.incident[place] is not None
    assert tuple(read.metrics) == NODE_METRICS
    median = {name: read.metrics["p50_latency"][i] for i, name in enumerate(read.nodes.name)}
    calm = PastMapDocument.model_validate(unzip(watched_mesh.viewing.past_map(MESH, snapshots[60].observed_at, ())))
    assert (median[CULPRIT] or 0) > 1.3 * (calm.metrics["p50_latency"][calm.nodes.name.index(CULPRIT)] or 1e9)
    newest = PastMapDocument.model_validate(unzip(watched_mesh.viewing.past_map(MESH, snapshots[-1].observed_at, ())))
    assert (newest.source, newest.observed_at) == ("snapshots", snapshots[-1].observed_at)
    positions = dict(zip(read.nodes.name, zip(read.nodes.x, read.nodes.y, strict=True), strict=True))
    assert all(
        positions.get(name, (x, y)) == (x, y)
        for name, x, y in zip(newest.nodes.name, newest.nodes.x, newest.nodes.y, strict=True)
    )
    with pytest.raises(UnknownInstant, match="its history begins at"):
        watched_mesh.viewing.past_map(MESH, snapshots[0].observed_at - timedelta(days=1), ())


def test_two_periods_of_the_past_are_compared(watched_mesh: Watched, snapshots: list[MeshSnapshot]) -> None:
    calm, slow = (
        (snapshots[a].observed_at, snapshots[b].observed_at) for a, b in ((60, 140), (FAULT_FROM + 4, FAULT_TO - 1))
    )
    read = ComparisonDocument.model_validate_json(watched_mesh.past.comparison(MESH, calm, slow))
    assert read.first_step_seconds == read.second_step_seconds == 60
    assert read.rows[0].service == CULPRIT
    assert read.rows[0].significant
    of_service = ComparisonDocument.model_validate_json(watched_mesh.past.comparison(MESH, calm, slow, CULPRIT))
    assert of_service.versions == [CULPRIT]
    rows = {(row.service, row.source, row.metric): row for row in of_service.rows}
    assert {metric for service, source, metric in rows if (service, source) == (CULPRIT, None)} >= {
        "request_rate", "error_rate", "p50_latency", "p99_latency",
    }  # fmt: skip
    assert rows[CULPRIT, None, "p50_latency"].significant
    quiet = ComparisonDocument.model_validate_json(watched_mesh.past.comparison(MESH, calm, calm, CULPRIT))
    assert quiet.rows
    assert not any(row.significant for row in quiet.rows)
    with pytest.raises(InvalidParameter, match="expected a service of one of the periods"):
        watched_mesh.past.comparison(MESH, calm, slow, "shop/nobody")


def test_the_usual_range_follows_the_time_of_day_and_needs_three_days() -> None:
    random = np.random.default_rng(0)
    times = np.arange(0.0, 5 * DAY, 600)
    rate = 100 + 50 * np.sin(2 * np.pi * times / DAY) + random.normal(0, 2, len(times))
    values = np.full((len(times), len(NODE_METRICS)), np.nan, np.float32)
    values[:, 0] = rate
    unknown = np.full(len(times), np.nan, np.float32)
    cut = times < 4 * DAY
    before = PastSeries(NODE_METRICS, times[cut], values[cut], unknown[cut])
    low, high = usual_range(before, RangeSteps(600, times[~cut]))
    inside = (rate[~cut] >= low[:, 0]) & (rate[~cut] <= high[:, 0])
    assert inside.mean() > 0.85
    assert np.median(high[:, 0] - low[:, 0]) < 40, "less than half of the daily swing"
    assert np.isnan(low[:, 1:]).all()
    short = PastSeries(NODE_METRICS, times[6:282], values[6:282], unknown[6:282])
    assert np.isnan(usual_range(short, RangeSteps(600, times[~cut]))[0]).all()
