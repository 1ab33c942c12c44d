"""A recorded incident, replayed through a real Prometheus, has the recording's verdicts within stated tolerances.

``pytest -m live -s tests/live/test_replayed_incident.py`` prints the figures that docs/research-log.md has.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.cli import app
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.writer import RecordingWriter
from tests.live.history import prometheus_with_history
from tests.live.programs import needs
from tests.live.series import COARSE_MS, FINE_MS, Export
from tests.serve_app.collect.prometheus.cluster import Cluster

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
BOUTIQUE = Path(__file__).parents[3] / "shared" / "recordings" / "nezha-onlineboutique" / "2022-08-22"
USUAL_TAIL = 3.2  # p99 over p50
SNAPSHOTS = 200
Line = dict[str, Any]


@dataclass(frozen=True)
class Tolerance:
    """How much a replay may differ from its recording.

    Attributes:
        status: least share of snapshots with the same status.
        suspect: least share of snapshots, of those in which both have an incident, with the same first suspect.
        late: most snapshots between the two beginnings of an incident.
        longer: most snapshots between its two ends. One more snapshot above the page level can move the end by eight
            snapshots, because an incident ends after eight quiet ones.
        score: largest median difference of mesh scores, relative to the larger of score and 1.
    """

    status: float
    suspect: float
    late: int
    longer: int
    score: float


@dataclass(frozen=True)
class Likeness:
    """Differences between a replay and its recording; fields as in ``Tolerance``."""

    status: float
    suspect: float
    late: int
    longer: int
    score: float
    score_of_nine_in_ten: float

    def __str__(self) -> str:
        return (
            f"status equal {self.status:.3f}, first suspect {self.suspect:.3f}, "
            f"incidents begin at most {self.late} and end at most {self.longer} snapshots off, "
            f"mesh score differs by {self.score:.1%} at the median, {self.score_of_nine_in_ten:.1%} at nine in ten"
        )

    def within(self, tolerance: Tolerance) -> bool:
        least = self.status >= tolerance.status and self.suspect >= tolerance.suspect
        most = self.late <= tolerance.late and self.longer <= tolerance.longer and self.score <= tolerance.score
        return least and most


def tagae(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.stderr


def lines(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def incidents(verdicts: list[Line]) -> list[tuple[int, int]]:
    """Return the first and last snapshot of each incident."""
    found: dict[str, tuple[int, int]] = {}
    for i, verdict in enumerate(verdicts):
        for incident in verdict["incidents"]:
            found[incident["id"]] = (found.get(incident["id"], (i, i))[0], i)
    return list(found.values())


def likeness(recorded: list[Line], replayed: list[Line]) -> Likeness:
    """Compare verdicts of the same instants, which must have the same incidents."""
    assert [line["observed_at"] for line in recorded] == [line["observed_at"] for line in replayed]
    wanted, got = incidents(recorded), incidents(replayed)
    assert len(got) == len(wanted), (wanted, got)
    late, longer = (max((abs(a[end] - b[end]) for a, b in zip(wanted, got, strict=True)), default=0) for end in (0, 1))
    pairs = list(zip(recorded, replayed, strict=True))
    suspected = [
        a["incidents"][0]["suspects"][0]["service"] == b["incidents"][0]["suspects"][0]["service"]
        for a, b in pairs
        if a["incidents"] and b["incidents"]
    ]
    scores = np.array([(a["mesh_score"], b["mesh_score"]) for a, b in pairs if a["status"] != "warming_up"])
    apart = np.abs(scores[:, 1] - scores[:, 0]) / np.maximum(scores[:, 0], 1)
    return Likeness(
        float(np.mean([a["status"] == b["status"] for a, b in pairs])),
        float(np.mean(suspected)) if suspected else 1.0,
        late,
        longer,
        float(np.median(apart)),
        float(np.quantile(apart, 0.9)),
    )


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record 60 services with changes that kube-state-metrics reports; one service is slow, later another fails."""
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    spec = MeshSpec(services=60, seed=7, start=start)
    faults, changes = plan_scenario(
        spec,
        ("latency_injection", "error_burst"),
        seed=7,
        snapshots=240,
        first=100,
        quiet=(20, 30),
        minimum_rate=10.0,
        levels=("major", "critical"),
    )
    reported = [change for change in changes if change.kind not in ("canary", "node_drain")]
    folder = tmp_path_factory.mktemp("recording") / "mesh"
    with RecordingWriter(folder, spec.interval_seconds) as writer:
        for snapshot in Simulator(spec, faults, reported, SNAPSHOTS).snapshots():
            writer.write(snapshot)
    return folder


def replay_verdicts(
    snapshots: list[MeshSnapshot], folder: Path, export: Export, windows: tuple[float, ...]
) -> Iterator[list[Line]]:
    """Return verdicts of the period from Prometheus' history, for each width of the rates' window."""
    cluster, output = Cluster(), folder / "verdicts.jsonl"
    with prometheus_with_history(snapshots, folder, export, [cluster.after(one) for one in snapshots]) as monitor:
        period = ("--from", snapshots[0].observed_at.isoformat(), "--to", snapshots[-1].observed_at.isoformat())
        for window in windows:
            asking = (f"interval_seconds={export.interval_seconds}", f"window_seconds={window}", "deadline_seconds=60")
            sets = [part for one in asking for part in ("--set", f"collector.{one}")]
            tagae("score", "--prometheus", monitor.url, *period, *sets, "-o", output)
            yield lines(output)


@pytest.mark.parametrize(
    ("bounds", "windows", "tolerances"),
    [
        pytest.param(FINE_MS, (16.0,), (Tolerance(0.99, 0.95, 1, 1, 0.05),), id="fine buckets"),
        pytest.param(
            COARSE_MS,
            (16.0, 60.0),
            (Tolerance(0.92, 0.9, 3, 16, 0.25), Tolerance(0.95, 0.8, 3, 3, 0.5)),
            id="Istio's buckets",
        ),
    ],
)
def test_a_replayed_incident_has_the_verdicts_of_its_recording(
    recording: Path,
    tmp_path: Path,
    bounds: tuple[float, ...],
    windows: tuple[float, ...],
    tolerances: tuple[Tolerance, ...],
) -> None:
    tagae("score", recording, "-o", tmp_path / "recorded.jsonl")
    recorded = lines(tmp_path / "recorded.jsonl")
    assert len(incidents(recorded)) == 2
    snapshots = list(RecordingReader(recording).snapshots())
    for window, tolerance, verdicts in zip(
        windows, tolerances, replay_verdicts(snapshots, tmp_path, Export(15.0, 1, bounds), windows), strict=True
    ):
        found = likeness(recorded, verdicts)
        print(f"\n{len(bounds)} buckets, rates over {window:g} s: {found}")
        assert found.within(tolerance), found


def clear_unmeasurable(snapshot: MeshSnapshot) -> MeshSnapshot:
    """Keep what a mesh would measure: unknown failures become none, and a median needs a p99."""
    nodes, calls = (
        np.where(seen, values, np.nan)
        for seen, values in (
            (snapshot.node_observed, snapshot.node_features),
            (snapshot.edge_observed, snapshot.edge_features),
        )
    )
    nodes[:, 1] = np.where(np.isnan(nodes[:, 0]), np.nan, np.nan_to_num(nodes[:, 1]))
    calls[:, 1] = np.nan_to_num(calls[:, 1])
    calls[:, 3] = np.where(np.isnan(calls[:, 3]), calls[:, 2] * USUAL_TAIL, calls[:, 3])
    made = calls[:, 0] > 0
    return MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index[:, made],
        node_features=nodes,
        edge_features=calls[made],
        observed_at=snapshot.observed_at,
    )


@pytest.mark.skipif(not BOUTIQUE.is_dir(), reason="no recording of Online Boutique in ../shared/recordings")
def test_four_hours_of_a_real_system_have_the_verdicts_of_the_recording(tmp_path: Path) -> None:
    """Replay Online Boutique: a snapshot a minute, faults every eight minutes."""
    snapshots = [clear_unmeasurable(one) for one in list(RecordingReader(BOUTIQUE).snapshots())[:240]]
    with RecordingWriter(tmp_path / "slice", 60.0) as writer:
        for snapshot in snapshots:
            writer.write(snapshot)
    tagae("score", tmp_path / "slice", "-o", tmp_path / "recorded.jsonl")
    recorded = lines(tmp_path / "recorded.jsonl")
    (verdicts,) = replay_verdicts(snapshots, tmp_path, Export(60.0, 1, FINE_MS), (64.0,))
    found = likeness(recorded, verdicts)
    print(f"\nOnline Boutique, {len(incidents(recorded))} incidents: {found}")
    assert found.within(Tolerance(0.95, 0.85, 2, 2, 0.1)), found
