"""The three generators: what each gives for training, and recordings with labels for the test.

All three have located labels, so that one set of rules judges them. No seed for training is a seed of a test.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.generalization.injection import inject, plan_injections
from lab.comparison.plan import SHARED
from lab.comparison.simulated import FOLDER as SIMULATED_FOLDER
from lab.comparison.simulated import WARM_UP, Run, record
from lab.training.dataset import LabelledFault, TrainingRun
from lab.training.meshes import TrainingMeshes, simulated_runs
from model.snapshot import MeshSnapshot
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.writer import RecordingWriter

FOLDER = Path("out/generalize")
SIMULATED, OTHER, RECORDED = "simulator", "other simulator", "recorded traffic"
OTHER_SIMULATOR = Path("../shared/other_mesh/generate.py")
STEP = timedelta(seconds=15)
OTHER_TRAINING: dict[int, tuple[str, ...]] = {  # options by seed
    101: ("--services", "200", "--hours", "4", "--churn", "high", "--incidents", "24"),
    102: ("--services", "200", "--hours", "4", "--churn", "high", "--incidents", "24"),
    103: ("--services", "200", "--hours", "4", "--churn", "high", "--incidents", "24"),
    104: ("--services", "120", "--hours", "4", "--churn", "medium", "--incidents", "24"),
    105: ("--services", "120", "--hours", "4", "--churn", "medium", "--incidents", "24"),
    106: ("--services", "200", "--hours", "4", "--churn", "high", "--incidents", "0"),
}
OTHER_TEST = dict.fromkeys((71, 72, 73, 74, 75), ("--preset", "medium"))
NORMAL = {  # recordings of normal traffic, and the first and last snapshot that is used
    "petshop/low_traffic-normal": (0, 589),
    "sockshop-nirc/normal": (0, 1500),
}
RECORDED_TRAINING, RECORDED_TEST = (0, 1, 2), (10, 11, 12)  # seeds of the injected faults
SIMULATED_TEST = tuple(Run(300, seed) for seed in (600, 601, 602))


@dataclass(frozen=True, slots=True)
class TestRecording:
    """A recording with labels; the time before ``judged_after`` is not judged."""

    __test__ = False  # pytest takes the name for a test

    path: Path
    judged_after: timedelta = timedelta(0)


Recipe = Callable[[], TestRecording]


@dataclass(frozen=True, slots=True)
class Generator:
    """Where labelled meshes come from.

    Attributes:
        name: in the results.
        missing: the file without which this generator gives nothing; None if it needs none.
        training_runs: make the runs for training.
        tests: recipes of the test recordings; calling one writes the recording if it is missing.
    """

    name: str
    missing: Path | None
    training_runs: Callable[[], list[TrainingRun]]
    tests: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True)
class InjectedTraffic:
    """Recorded normal traffic with faults: a recipe that gives the same snapshots each time and in any process."""

    recording: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.recording.replace('/', '-')}-{self.seed}"

    def normal(self) -> list[MeshSnapshot]:
        """Return the snapshots without faults."""
        first, last = NORMAL[self.recording]
        return list(islice(RecordingReader(SHARED / self.recording).snapshots(), first, last))

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots with the faults."""
        normal = self.normal()
        return inject(normal, plan_injections(normal, self.seed))

    def labels(self) -> list[LabelledIncident]:
        """Return the labels of the faults."""
        normal = self.normal()
        return [one.label(normal) for one in plan_injections(normal, self.seed)]


@dataclass(frozen=True, slots=True)
class _SimulatedTest:
    run: Run

    def __call__(self) -> TestRecording:
        return TestRecording(record(self.run, SIMULATED_FOLDER), WARM_UP * STEP)


@dataclass(frozen=True, slots=True)
class _OtherTest:
    seed: int

    def __call__(self) -> TestRecording:
        path = other_recording(self.seed, OTHER_TEST[self.seed])
        reader = RecordingReader(path)
        begin = next(reader.snapshots()).observed_at
        return TestRecording(path, datetime.fromisoformat(reader.meta["warmup_end"]) - begin)


@dataclass(frozen=True, slots=True)
class _RecordedTest:
    traffic: InjectedTraffic

    def __call__(self) -> TestRecording:
        path = FOLDER / "recorded" / self.traffic.name
        if not (path / "meta.json").exists():
            interval = RecordingReader(SHARED / self.traffic.recording).interval_seconds
            with RecordingWriter(path, interval, {"source": __name__}) as writer:
                for snapshot in self.traffic.snapshots():
                    writer.write(snapshot)
                for label in self.traffic.labels():
                    writer.add_incident(label)
        return TestRecording(path)


def other_recording(seed: int, options: Sequence[str], folder: Path = FOLDER / "other") -> Path:
    """Run the other simulator unless its recording exists, and write its labels in our columns.

    Args:
        seed, options: of the other simulator.
        folder: of its recordings.

    Returns:
        The folder of the recording.

    Raises:
        subprocess.CalledProcessError: the other simulator failed; its message is on stderr.
    """
    path = folder / str(seed)
    if not (path / "converted").exists():
        command = [sys.executable, str(OTHER_SIMULATOR), *options, "--seed", str(seed), "--out", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        labels = path / "incidents.parquet"
        nodes = pq.read_table(path / "nodes.parquet", columns=["service", "namespace"])
        pq.write_table(
            _our_labels(pq.read_table(labels), nodes.group_by(["service", "namespace"]).aggregate([])), labels
        )
        (path / "converted").touch()
    return path


def _our_labels(labels: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return the labels with lists of node ids in place of JSON texts with names; each name exists once in a mesh."""
    if not labels.num_rows:  # the other simulator then writes no columns
        return labels
    ids = {row["service"]: f"{row['namespace']}/{row['service']}" for row in nodes.to_pylist()}
    for ours, theirs in {"candidates": "root_cause_candidates", "affected": "affected_services"}.items():
        named = [json.loads(text or "[]") for text in labels.column(theirs).to_pylist()]
        column = pa.array([[ids[name] for name in names if name in ids] for names in named], pa.list_(pa.string()))
        labels = labels.drop_columns([theirs]).append_column(ours, column)
    return labels


@cache
def generators() -> tuple[Generator, ...]:
    """Return the three generators."""
    first_recording = SHARED / next(iter(NORMAL)) / "meta.json"
    return (
        Generator(SIMULATED, None, _simulated_runs, tuple(map(_SimulatedTest, SIMULATED_TEST))),
        Generator(OTHER, OTHER_SIMULATOR, _other_runs, tuple(map(_OtherTest, OTHER_TEST))),
        Generator(RECORDED, first_recording, _recorded_runs, tuple(map(_RecordedTest, _traffic(RECORDED_TEST)))),
    )


def labelled_run(path: Path) -> TrainingRun:
    """Return a recording with labels as a training run."""
    reader = RecordingReader(path)
    return TrainingRun(path.name, reader.snapshots, _faults(reader.incidents()))


def _faults(labels: Sequence[LabelledIncident]) -> tuple[LabelledFault, ...]:
    return tuple(
        LabelledFault(one.start, one.end, f"{one.details['root_cause_namespace']}/{one.root_cause_service}", one.kind)
        for one in labels
        if one.end > one.start
    )


def _simulated_runs() -> list[TrainingRun]:
    return simulated_runs(TrainingMeshes())


def _other_runs() -> list[TrainingRun]:
    return [labelled_run(other_recording(seed, options)) for seed, options in OTHER_TRAINING.items()]


def _recorded_runs() -> list[TrainingRun]:
    return [TrainingRun(one.name, one.snapshots, _faults(one.labels())) for one in _traffic(RECORDED_TRAINING)]


def _traffic(seeds: Sequence[int]) -> list[InjectedTraffic]:
    return [InjectedTraffic(name, seed) for name in NORMAL for seed in seeds]
