"""Meshes that the weights were not trained on: time to learn from, calm time, and the same time with faults."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.generalization.generators import OTHER_SIMULATOR, labelled_run, other_recording
from benchmarks.generalization.injection import WARM_UP, inject, plan_injections
from lab.comparison.plan import SHARED
from lab.simulator.events.faults import KINDS, Level
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from lab.training.dataset import LabelledFault
from model.snapshot import MeshSnapshot
from serve_app.recordings.reader import RecordingReader

LEARNED, JUDGED = 480, 720  # snapshots of a simulated mesh
DURATION, QUIET = (8, 24), (24, 48)  # snapshots of a fault, and of the time after it
LEVELS: tuple[Level, ...] = ("minor", "minor", "major")  # critical faults are found by every variant
OTHER_OPTIONS = ("--services", "80", "--hours", "6", "--churn", "medium")
OTHER_FAULTS = 24
RECORDINGS = {"petshop/low_traffic-normal": (0, 589), "sockshop-nirc/normal": (2000, 4500)}  # snapshots that are used


@dataclass(frozen=True, slots=True)
class TestMesh:
    """One mesh.

    Attributes:
        source: for the table.
        name: of the mesh.
        learning: calm snapshots, except for planned changes.
        calm: the snapshots after them.
        faulty: the same snapshots with faults.
        faults: in ``faulty``.
    """

    __test__ = False  # pytest takes the name for a test

    source: str
    name: str
    learning: Sequence[MeshSnapshot]
    calm: Sequence[MeshSnapshot]
    faulty: Sequence[MeshSnapshot]
    faults: tuple[LabelledFault, ...]


def simulated(seed: int, learned: int = LEARNED, judged: int = JUDGED) -> TestMesh:
    """Our simulator: a mesh of 24 to 120 services whose habits are drawn from the seed."""
    rng = np.random.default_rng(seed)
    spec = MeshSpec(
        services=int(np.exp(rng.uniform(np.log(24), np.log(120)))),
        calls_per_service=float(rng.uniform(1.5, 3.0)),
        seed=seed,
        without_call_latency=float(rng.choice([0.0, 0.1, 0.5])),
        hiccups_per_hour=float(rng.uniform(0.0, 0.2)),
        hiccup_strength=float(rng.uniform(0.5, 2.0)),
        crowds_per_day=float(rng.choice([0.0, 6.0, 24.0])),
        batches=float(rng.choice([0.0, 0.03])),
        cold_strength=float(np.exp(rng.uniform(np.log(0.3), np.log(3.0)))),
        silences_per_hour=0.2,
    )
    length = learned + judged
    faults, changes = plan_scenario(
        spec,
        KINDS,
        seed,
        snapshots=length,
        first=learned,
        duration=DURATION,
        quiet=QUIET,
        churn_per_hour=10.0,
        levels=LEVELS,
    )
    calm = list(Simulator(spec, (), changes, length).snapshots())
    faulty = list(Simulator(spec, faults, changes, length).snapshots())[learned:]
    labels = (LabelledFault(spec.time_of(f.start), spec.time_of(f.end), f.service, f.kind) for f in faults)
    return TestMesh("simulator", f"{spec.services} services", calm[:learned], calm[learned:], faulty, tuple(labels))


def other_simulated(seed: int, folder: Path) -> TestMesh:
    """The simulator by other hands, once without incidents and once with them."""
    normal, troubled = (
        other_recording(seed, (*OTHER_OPTIONS, "--incidents", str(incidents)), folder / str(incidents))
        for incidents in (0, OTHER_FAULTS)
    )
    begin = datetime.fromisoformat(RecordingReader(troubled).meta["warmup_end"])
    run = labelled_run(troubled)
    snapshots = list(RecordingReader(normal).snapshots())
    return TestMesh(
        "other simulator",
        f"seed {seed}",
        [one for one in snapshots if one.observed_at < begin],
        [one for one in snapshots if one.observed_at >= begin],
        [one for one in run.snapshots() if one.observed_at >= begin],
        run.faults,
    )


def of_recording(name: str, seed: int) -> TestMesh:
    """Recorded normal traffic, with injected faults."""
    snapshots = list(islice(RecordingReader(SHARED / name).snapshots(), *RECORDINGS[name]))
    injections, begin = plan_injections(snapshots, seed), int(WARM_UP * len(snapshots))
    faults = tuple(
        LabelledFault(snapshots[one.start].observed_at, snapshots[one.end].observed_at, one.service, one.kind)
        for one in injections
    )
    faulty = list(inject(snapshots, injections))[begin:]
    return TestMesh(name, f"faults {seed}", snapshots[:begin], snapshots[begin:], faulty, faults)


def groups(seeds: Sequence[int], other_seeds: Sequence[int], injected: int, folder: Path) -> Iterator[list["Recipe"]]:
    """Yield recipes of the meshes of each source that is there.

    Args:
        seeds: of our simulator.
        other_seeds: of the simulator by other hands.
        injected: seed of the faults in recordings.
        folder: for recordings of the other simulator.
    """
    yield [partial(simulated, seed) for seed in seeds]
    if OTHER_SIMULATOR.is_file():
        yield [partial(other_simulated, seed, folder) for seed in other_seeds]
    yield from ([partial(of_recording, name, injected)] for name in RECORDINGS if (SHARED / name).is_dir())


Recipe = partial[TestMesh]
