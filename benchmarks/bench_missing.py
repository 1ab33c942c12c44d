"""Values in place of missing telemetry: do they help the detector?

    python -m benchmarks.bench_missing [--json FILE] [--meshes 6] [--jobs 2] [--sources NAME ...] [--missing NAME ...]

Telemetry of several kinds goes missing in the same snapshots, and the detector runs with the mask, as in the product,
and with each filling of `benchmarks.missing.filling`. A fault is found if an alert with the culprit among its first
three suspects is open during the fault or two snapshots after it. Any alert that begins outside of a fault and its
aftermath is false. ``alerting`` is the share of the snapshots of faults in which an alert is open. For
``found_at_equal``, the threshold of each filling is raised until it has no more false alerts than the filling with the
fewest. ``only_mask`` and ``only_filling`` count the faults that only one of both finds.

The sources: our simulator, a third of its meshes without faults; the simulator of other hands; recordings with labelled
faults that may be used for choosing, and one of normal traffic. Prints one JSON line for each source, kind of gap and
filling; takes a quarter of an hour on two cores.
"""

import argparse
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.generalization.generators import OTHER_SIMULATOR, labelled_run, other_recording
from benchmarks.missing.filling import FILLINGS, MASK, Filling, Known, fill, follow_series
from benchmarks.missing.gaps import PATTERNS, Fault, Pattern, remove
from lab.comparison.plan import SHARED
from lab.evaluation.measures.intervals import share
from lab.simulator.events.faults import KINDS
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from lab.training.dataset import RECOVERY, SETTLE, TrainingRun
from model.checkpoint import Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.pipeline import LocalRunner, Mesh, Options, commit, judge, prepare, run_now
from serve_app.recordings.reader import RecordingReader

SIMULATED_SEED, SERVICES, LENGTH = 700, (24, 60), 420  # first seed; fewest and most services; snapshots
FIRST_FAULT, DURATION, QUIET = 80, (10, 24), (30, 50)  # snapshots
OTHER_SEED, OTHER_OPTIONS = 141, ("--services", "60", "--hours", "3", "--churn", "high", "--incidents", "14")
RECORDINGS = {  # snapshots that are used, and whether only odd cases may be used for choosing
    "rcaeval-sockshop/re1": (800, True),
    "sockshop-nirc/container-faults": (800, False),
    "petshop/low_traffic-normal": (400, False),
}
OPTIONS = Options()
FIRST_SUSPECTS = 3
LATE = 2  # snapshots in which an alert still finds a fault that has ended
NOTHING = Pattern("nothing", PATTERNS[-1].missing, share=0.0)
NORMAL, IGNORED = -1, -2
THRESHOLDS = 200

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scene:
    """A stretch of a mesh's history.

    Attributes:
        source: for the table.
        snapshots: with all telemetry.
        faults: to be found.
        labels: ``[T]``: ``NORMAL``, ``IGNORED``, or the index of a fault.
        interval_seconds: between snapshots.
    """

    source: str
    snapshots: tuple[MeshSnapshot, ...]
    faults: tuple[Fault, ...]
    labels: Ints
    interval_seconds: float

    @classmethod
    def of(cls, source: str, snapshots: Sequence[MeshSnapshot], faults: Sequence[Fault]) -> "Scene":
        """Label the snapshots; the first ones and those after a fault count neither way."""
        labels = np.full(len(snapshots), NORMAL)
        labels[:SETTLE] = IGNORED
        for fault in faults:
            labels[fault.start : fault.end + RECOVERY] = IGNORED
        for index, fault in enumerate(faults):
            labels[fault.start : fault.end] = index
        times = [one.observed_at.timestamp() for one in snapshots]
        return cls(source, tuple(snapshots), tuple(faults), labels, float(np.median(np.diff(times))))

    @property
    def normal_days(self) -> float:
        """Days without a fault."""
        return float((self.labels == NORMAL).sum()) * self.interval_seconds / 86400


@dataclass(frozen=True, slots=True)
class Alert:
    """An open alert in one snapshot, with its first suspects."""

    at: int
    id: str
    score: float
    suspects: tuple[str, ...]


Alerts = tuple[Alert, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the alerts of a scene find.

    Attributes:
        found, first: of each fault: whether an alert names its culprit, and names it first.
        alerting: share of the snapshots of each fault in which an alert is open.
        false_alerts: number.
    """

    found: tuple[bool, ...]
    first: tuple[bool, ...]
    alerting: tuple[float, ...]
    false_alerts: int


def detect(
    checkpoint: Checkpoint, snapshots: Sequence[MeshSnapshot], known: Sequence[Known], filling: Filling
) -> Alerts:
    """Run the detector over snapshots that lack telemetry. Returns all alerts of all verdicts.

    Args:
        checkpoint: the weights.
        snapshots: of one mesh.
        known: the series up to each of them.
        filling: what to fill in.
    """
    mesh = Mesh()
    alerts: list[Alert] = []
    for at, snapshot in enumerate(snapshots):
        filled = fill(snapshot, known[at], mesh.state, filling)
        verdict, mesh = advance(checkpoint, mesh, snapshot, filled, filling)
        for one in verdict.alerts:
            names = tuple(suspect.service for suspect in one.suspects[:FIRST_SUSPECTS])
            alerts.append(Alert(at, one.id, one.score, names))
    return tuple(alerts)


def advance(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, filled: MeshSnapshot, filling: Filling
) -> tuple[Verdict, Mesh]:
    """Return the verdict and the mesh after it. Filled values are scored too, or only the network reads them."""
    scored = filled if filling.is_scored else snapshot
    prepared = prepare(checkpoint, mesh, scored, OPTIONS)
    if not filling.is_scored and filled is not snapshot:
        other = prepare(checkpoint, mesh, filled, OPTIONS)
        if other.mesh.state.node_ids == prepared.mesh.state.node_ids and np.array_equal(
            other.mesh.state.edge_index, prepared.mesh.state.edge_index
        ):  # else the snapshot has new services
            prepared = replace(prepared, whole=other.whole)
    _, verdict, memory = run_now(judge(LocalRunner(checkpoint), prepared, scored, OPTIONS))
    return verdict, commit(prepared.mesh, memory, counted=True)


def outcome_of(scene: Scene, alerts: Alerts, threshold: float = 0.0) -> Outcome:
    """Judge the alerts with at least this score."""
    best = [FIRST_SUSPECTS] * len(scene.faults)
    is_open = np.zeros(len(scene.snapshots), bool)
    known, false_alerts = set[str](), 0
    for alert in alerts:
        if alert.score < threshold:
            continue
        is_open[alert.at] = True
        for index, fault in enumerate(scene.faults):
            if fault.start <= alert.at < fault.end + LATE and fault.service in alert.suspects:
                best[index] = min(best[index], alert.suspects.index(fault.service))
        false_alerts += scene.labels[alert.at] == NORMAL and alert.id not in known
        known.add(alert.id)
    return Outcome(
        tuple(rank < FIRST_SUSPECTS for rank in best),
        tuple(rank == 0 for rank in best),
        tuple(float(is_open[fault.start : fault.end].mean()) for fault in scene.faults),
        int(false_alerts),
    )


def compare(scenes: Sequence[Scene], pattern: str, alerts: dict[Filling, Sequence[Alerts]]) -> Iterator[dict[str, Any]]:
    """Yield a line for each filling.

    Args:
        scenes: of one source.
        pattern: name of the kind of gap.
        alerts: of each filling, in each scene.
    """
    outcomes = {filling: _outcomes(scenes, of) for filling, of in alerts.items()}
    fewest = min(_false(found) for found in outcomes.values())
    days = sum(scene.normal_days for scene in scenes)
    masked = [hit for one in outcomes[MASK] for hit in one.found]
    for filling, found in outcomes.items():
        hits = [hit for one in found for hit in one.found]
        equal = _at_most(scenes, alerts[filling], fewest)
        yield {
            "benchmark": "missing",
            "source": scenes[0].source,
            "missing": pattern,
            "filling": filling.name,
            "meshes": len(scenes),
            "faults": len(hits),
            "normal_days": round(days, 2),
            "found": share(hits).to_json(),
            "culprit_first": share([hit for one in found for hit in one.first]).to_json(),
            "alerting": share([part for one in found for part in one.alerting]).to_json(),
            "false_alerts": _false(found),
            "false_alerts_per_day": round(_false(found) / days, 2) if days else None,
            "found_at_equal": share([hit for one in equal for hit in one.found]).to_json(),
            "only_mask": sum(a and not b for a, b in zip(masked, hits, strict=True)),
            "only_filling": sum(b and not a for a, b in zip(masked, hits, strict=True)),
        }


def _outcomes(scenes: Sequence[Scene], alerts: Sequence[Alerts], threshold: float = 0.0) -> list[Outcome]:
    return [outcome_of(scene, of, threshold) for scene, of in zip(scenes, alerts, strict=True)]


def _false(outcomes: Sequence[Outcome]) -> int:
    return sum(one.false_alerts for one in outcomes)


def _at_most(scenes: Sequence[Scene], alerts: Sequence[Alerts], most: int) -> list[Outcome]:
    """Return the outcomes at the lowest threshold with so many false alerts."""
    scores = [alert.score for of in alerts for alert in of]
    thresholds = np.unique([0.0, *np.quantile(scores, np.linspace(0, 1, THRESHOLDS)), np.inf] if scores else [0.0])
    tried = (_outcomes(scenes, alerts, float(threshold)) for threshold in thresholds)
    return next(outcomes for outcomes in tried if _false(outcomes) <= most)


def of_run(source: str, run: TrainingRun) -> Scene:
    """A run with known faults."""
    snapshots = list(run.snapshots())
    times = [one.observed_at for one in snapshots]
    faults = [Fault(bisect_left(times, one.start), bisect_left(times, one.end), one.service) for one in run.faults]
    return Scene.of(source, snapshots, [fault for fault in faults if fault.start < fault.end])


def of_recording(name: str, most: int, *, odd_cases: bool) -> Scene:
    """The first snapshots of a recording; of some, only every second case may be used for choosing."""
    reader = RecordingReader(SHARED / name)
    snapshots = list(islice(reader.snapshots(), most))
    times = [one.observed_at for one in snapshots]
    ids = {node_id.split("/", 1)[1]: node_id for one in snapshots for node_id in one.node_ids}
    faults = [
        Fault(bisect_left(times, one.start), bisect_left(times, one.end) + 1, ids[one.root_cause_service])
        for one in reader.incidents()
        if one.root_cause_service and one.end <= times[-1]
    ]
    scene = Scene.of(name, snapshots, faults)
    if not odd_cases:
        return scene
    kept, labels = Scene.of(name, snapshots, faults[::2]), scene.labels.copy()
    for odd, even in zip(faults[::2], faults[1::2], strict=False):
        labels[odd.end : even.end + RECOVERY] = IGNORED  # the time before an even case is of that case
    return replace(kept, labels=np.where(labels == IGNORED, IGNORED, kept.labels))


def simulate_scene(number: int, length: int = LENGTH) -> Scene:
    """A mesh of our simulator, with so many snapshots; every third has no faults."""
    seed = SIMULATED_SEED + number
    spec = MeshSpec(services=int(np.random.default_rng(seed).integers(*SERVICES)), seed=seed)
    kinds = () if number % 3 == 2 else KINDS
    planned, changes = plan_scenario(
        spec, kinds, seed, snapshots=length, first=FIRST_FAULT, duration=DURATION, quiet=QUIET
    )
    faults = [Fault(one.start, one.end, one.service) for one in planned]
    return Scene.of("simulator", list(Simulator(spec, planned, changes, length).snapshots()), faults)


def scenes(source: str, meshes: int) -> list[Scene]:
    """Return the scenes of a source."""
    if source == "simulator":
        return [simulate_scene(number) for number in range(meshes)]
    if source == "other simulator":
        return [of_run(source, labelled_run(other_recording(OTHER_SEED, OTHER_OPTIONS, Path("out/missing"))))]
    most, odd_cases = RECORDINGS[source]
    return [of_recording(source, most, odd_cases=odd_cases)]


def measure(source: str, pattern: Pattern, meshes: int, fillings: Sequence[Filling]) -> list[dict[str, Any]]:
    """Return the lines of one source and one kind of gap."""
    torch.set_num_threads(1)
    checkpoint, found = load(), scenes(source, meshes)
    alerts: dict[Filling, list[Alerts]] = {filling: [] for filling in fillings}
    for number, scene in enumerate(found):
        incomplete = list(remove(scene.snapshots, scene.faults, pattern, number))
        known = list(follow_series(incomplete))
        for filling in fillings:
            alerts[filling].append(detect(checkpoint, incomplete, known, filling))
    return list(compare(found, pattern.name, dict(alerts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--meshes", type=int, default=6, help="simulated ones")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--sources", nargs="*", help="only these")
    parser.add_argument("--missing", nargs="*", help="only these kinds of gaps, by name")
    arguments = parser.parse_args()
    sources = ["simulator"]
    if OTHER_SIMULATOR.is_file():
        sources += ["other simulator", *RECORDINGS]
    sources = arguments.sources or sources
    patterns = [one for one in (NOTHING, *PATTERNS) if arguments.missing is None or one.name in arguments.missing]
    jobs = [(source, pattern) for source in sources for pattern in patterns]
    lines = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        each = [
            pool.submit(measure, source, pattern, arguments.meshes, (MASK,) if pattern is NOTHING else FILLINGS)
            for source, pattern in jobs
        ]
        for job in each:
            for line in job.result():
                lines.append(json.dumps(line))
                print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
