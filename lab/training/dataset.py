"""Training examples from runs of a mesh with known faults or none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy
from model.network.contract import NetworkConfig
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState, Observation
from model.state.observe import observe
from serve_app.recordings.reader import RecordingReader

WINDOW = 120  # snapshots in the ring
SETTLE = 30  # snapshots before a run's first example
RECOVERY = 12  # intervals after a fault that count as neither normal nor faulty


@dataclass(frozen=True, slots=True)
class LabelledFault:
    """A fault in ``[start, end)`` that starts at ``service`` (a node id)."""

    start: datetime
    end: datetime
    service: str


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A stretch of one mesh's history that can be read repeatedly.

    Attributes:
        name: for the report.
        snapshots: returns a new iterator, oldest first.
        faults: known faults; all other time is normal.
    """

    name: str
    snapshots: Callable[[], Iterable[MeshSnapshot]]
    faults: tuple[LabelledFault, ...] = ()


def recorded_runs(paths: Sequence[Path]) -> list[TrainingRun]:
    """Return recordings that count as normal throughout.

    Raises:
        BadRecording: a folder is not a recording.
        ValueError: a recording has labelled incidents, which are for evaluation only.
    """
    runs = []
    for path in paths:
        reader = RecordingReader(path)
        if reader.incidents():
            raise ValueError(
                f"{path}: expected a recording without incidents, got one with {len(reader.incidents())}; "
                "use recordings with labels for evaluation only"
            )
        runs.append(TrainingRun(path.name, reader.snapshots))
    return runs


@dataclass(frozen=True, slots=True)
class TrainingMoment:
    """A snapshot in a run, and the truth about it.

    Attributes:
        state: after the snapshot.
        fault: the fault in progress, if any.
        normal: whether neither a fault nor its aftermath is in progress.
    """

    state: MeshState
    observation: Observation
    snapshot: MeshSnapshot
    fault: LabelledFault | None
    normal: bool


def replay_run(
    run: TrainingRun,
    config: NetworkConfig,
    policy: AlertPolicy,
    read_memory: Callable[[MeshState], IncidentMemory] = lambda state: state.memory,
) -> Iterator[TrainingMoment]:
    """Replay a run snapshot by snapshot. ``read_memory`` returns the memory of alerting after each snapshot."""
    state = MeshState()
    for snapshot in run.snapshots():
        memory = read_memory(state).advance_changes(
            snapshot.changes, policy.change_memory, WINDOW + policy.change_memory, policy.version_memory
        )
        state = replace(state, memory=memory)
        observation, state = observe(state, snapshot, window_size=WINDOW, neighbours=config.neighbours)
        at = snapshot.observed_at
        fault = next((f for f in run.faults if f.start <= at < f.end), None)
        aftermath = timedelta(seconds=RECOVERY * state.interval_seconds)
        normal = not any(f.start <= at < f.end + aftermath for f in run.faults)
        yield TrainingMoment(state, observation, snapshot, fault, normal)


def is_example(moment: TrainingMoment, index: int, every: int) -> bool:
    """Return whether the network learns from a moment: every ``every``-th normal one, once baselines have settled."""
    return moment.normal and index >= SETTLE and index % every == 0


def shuffle_batches(count: int, batch: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Yield batches of indices without end, in a new order in each pass."""
    while True:
        order = rng.permutation(count)
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch].tolist()
