"""Does the mesh as a whole show what no single service shows?

    python -m benchmarks.bench_reconstruction [--json FILE] [--seeds choose | report] [--meshes 6]

Many small deviations at once are put into meshes: a slow zone, noisy hosts, a lossy zone, in three sizes. Four signals
look for them: the page score, the reconstruction loss, the embedding displacement, and all of them together. The page
score has to be above its level in three of four snapshots, the others in six of eight, as in the product, and each
level is such that the calm snapshots of the same source raise the same number of false alerts per day. ``alerts`` are
the alerts at the default settings, ``exceeded`` is what verdicts say of the mesh as a whole, ``either`` is both, as
with the setting ``alert.reconstruction = "alert"``.

The sources: our simulator; the simulator of other hands and recorded normal traffic, in which the events change the
metrics directly; and recordings with labelled faults that may be used for choosing. Loss and displacement are relative
to the 99th percentile of the mesh's own history, as in the verdict. Nothing was chosen on the seeds of ``report``.
Prints one JSON line for each source and kind; takes about a quarter of an hour on two cores.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lab.comparison.plan import SHARED
from lab.evaluation.measures.intervals import share
from lab.simulator.events.widespread import WIDESPREAD, WidespreadKind, widespread
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.snapshot import EdgeMetric, MeshSnapshot, NodeMetric
from serve_app.pipeline import Mesh, Options, advance
from serve_app.recordings.reader import RecordingReader

SEEDS = {"choose": range(800, 806), "report": range(820, 826)}
OTHER_SEEDS = {"choose": (31,), "report": (41, 42)}
OTHER = SHARED.parent / "other_mesh" / "generate.py"
SERVICES = 80
FIRST, LENGTH, CALM = 300, 40, 90  # snapshots before the first event, of an event, and between two
CALM_LENGTH = 1200  # snapshots of a run without events
GUARD = 20  # snapshots after an event that count neither way
CONFIRM = {
    "page": (3, 4),
    "reconstruction": (6, 8),
    "displacement": (6, 8),
    "combined": (6, 8),
}  # snapshots, of so many
CLEAR = 8  # snapshots between two alarms
RATES = (1.0, 4.0)  # false alerts per day of a mesh
SIGNALS = ("page", "reconstruction", "displacement")
LABELLED = {"sockshop-nirc/container-faults": False, "rcaeval-sockshop/re1": True}  # True: odd cases only
NORMAL = {"petshop/low_traffic-normal": (0, 589), "sockshop-nirc/normal": (2000, 4500)}  # snapshots that are used
LATENCY = np.array([NodeMetric.P50_LATENCY, NodeMetric.P99_LATENCY])
CALL_LATENCY = np.array([EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY])
CALM_LABEL, IGNORED = -1, -2

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Event:
    """Something to find in the snapshots ``[start, end)``; ``size`` is 0 if it has none."""

    kind: str
    size: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Run:
    """One mesh and what the detector said about it.

    Attributes:
        source: for the table.
        events: to be found.
        signals: ``[3, T]`` in the order of ``SIGNALS``; higher is more unusual.
        alarms: bool ``[T]``: whether the detector had an alert, and whether the mesh as a whole exceeded its history.
        seconds: ``[T]`` since the first snapshot.
        labels: ``[T]``: index of the event, ``CALM_LABEL`` or ``IGNORED``.
    """

    source: str
    events: tuple[Event, ...]
    signals: Floats
    alarms: dict[str, NDArray[np.bool_]]
    seconds: Floats
    labels: Ints


def score(
    source: str, snapshots: Iterable[MeshSnapshot], events: Sequence[Event], ignored: Sequence[Event] = ()
) -> Run:
    """Run the detector; nothing counts before ``FIRST``, soon after an event and in ``ignored``."""
    checkpoint, mesh = load(), Mesh()
    rows: list[tuple[float, ...]] = []
    seconds: list[float] = []
    for snapshot in snapshots:
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        whole = verdict.reconstruction
        ratios = (0.0, 0.0)
        if whole and whole.loss_threshold and whole.displacement_threshold and whole.displacement is not None:
            ratios = whole.loss / whole.loss_threshold, whole.displacement / whole.displacement_threshold
        exceeded = bool(whole and whole.exceeded)
        rows.append((verdict.mesh_score, *ratios, float(bool(verdict.alerts)), float(exceeded)))
        seconds.append(snapshot.observed_at.timestamp())
    labels = np.full(len(rows), CALM_LABEL)
    labels[: min(FIRST, len(rows) // 4)] = IGNORED
    for event in (*events, *ignored):
        labels[event.start : event.end + GUARD] = IGNORED
    for index, event in enumerate(events):
        labels[event.start : event.end] = index
    table = np.array(rows).T
    alarms = {"alerts": table[3] > 0, "exceeded": table[4] > 0, "either": table[3:].any(axis=0)}
    return Run(source, tuple(events), table[:3], alarms, np.array(seconds) - seconds[0], labels)


def plan_events(snapshots: int, first: int = FIRST, seed: int = 0) -> tuple[Event, ...]:
    """Return one event of each kind and size, in random order, as far as they have room."""
    every = [(kind, size) for kind, (_, sizes) in WIDESPREAD.items() for size in sizes]
    order = np.random.default_rng(seed).permutation(len(every))
    events = [
        Event(every[i][0], every[i][1], start, start + LENGTH)
        for i, start in zip(order, range(first, snapshots, LENGTH + CALM), strict=False)
    ]
    return tuple(event for event in events if event.end + GUARD <= snapshots)


def simulated(seed: int) -> Run:
    """Our simulator: the events change its physics."""
    kinds = sum(len(sizes) for _, sizes in WIDESPREAD.values())
    length = FIRST + kinds * (LENGTH + CALM)
    spec, events = MeshSpec(SERVICES, seed=seed, silences_per_hour=0.2), plan_events(length, seed=seed)
    _, changes = plan_scenario(spec, (), seed, snapshots=length)
    physics = Simulator(spec).mesh
    faults = [
        fault
        for event in events
        for fault in widespread(physics, _kind(event), event.start, event.end, event.size, seed + event.start)
    ]
    return score("simulator", Simulator(spec, faults, changes, length).snapshots(), events)


def calm(seed: int) -> Run:
    """Our simulator without events, to count false alerts."""
    spec = MeshSpec(SERVICES, seed=seed, silences_per_hour=0.2)
    _, changes = plan_scenario(spec, (), seed, snapshots=CALM_LENGTH)
    return score("simulator", Simulator(spec, (), changes, CALM_LENGTH).snapshots(), ())


def of_other_simulator(seed: int, folder: Path) -> Run:
    """The simulator of other hands: normal traffic, in which the events change the metrics."""
    path = folder / f"other-{seed}"
    if not (path / "meta.json").is_file():
        options = ("--preset", "small", "--churn", "medium", "--incidents", "0", "--seed", str(seed))
        subprocess.run([sys.executable, str(OTHER), *options, "--out", str(path)], check=True, capture_output=True)
    return with_injected_events("other simulator", list(RecordingReader(path).snapshots()), seed)


def of_normal_recording(name: str, span: tuple[int, int]) -> Run:
    """Recorded normal traffic, in which the events change the metrics."""
    snapshots = list(islice(RecordingReader(SHARED / name).snapshots(), *span))
    return with_injected_events(name, snapshots, len(name))


def of_labelled_recording(name: str, odd_cases: bool) -> Run:
    """A recording with labelled faults; of some, only every second case may be used."""
    reader = RecordingReader(SHARED / name)
    times, spans = [], sorted((one.start, one.end) for one in reader.incidents())

    def noting_times() -> Iterator[MeshSnapshot]:
        for snapshot in reader.snapshots():
            times.append(snapshot.observed_at)
            yield snapshot

    scored = score(name, noting_times(), ())
    at = np.array([time.timestamp() for time in times])
    places = [np.searchsorted(at, [start.timestamp(), end.timestamp()], "left") for start, end in spans]
    events = [Event("labelled fault", 0.0, int(start), int(end) + 1) for start, end in places]
    labels = scored.labels.copy()
    for event in events:
        labels[event.start : event.end + GUARD] = IGNORED
    kept = tuple(events[:: 2 if odd_cases else 1])
    for index, event in enumerate(kept):
        labels[event.start : event.end] = index
    if odd_cases:  # the time before an even case is of that case
        for odd, even in pairwise(events):
            if odd in kept:
                labels[odd.end : even.end] = IGNORED
    return replace(scored, events=kept, labels=labels)


def with_injected_events(source: str, snapshots: Sequence[MeshSnapshot], seed: int) -> Run:
    """Change the metrics of a third of the services, and of the calls to them, in each event."""
    events = plan_events(len(snapshots), min(FIRST, len(snapshots) // 4), seed)
    changed = list(snapshots)
    for event in events:
        names = sorted({name for one in snapshots[event.start : event.end] for name in one.node_ids})
        chosen = set(np.random.default_rng(seed + event.start).choice(names, max(3, len(names) // 3), False).tolist())
        for index in range(event.start, event.end):
            changed[index] = _disturb(changed[index], chosen, event)
    return score(source, changed, events)


def _disturb(snapshot: MeshSnapshot, names: set[str], event: Event) -> MeshSnapshot:
    nodes, edges = snapshot.node_features.copy(), snapshot.edge_features.copy()
    rows = np.array([name in names for name in snapshot.node_ids])
    calls = rows[snapshot.edge_index[1]]
    if event.kind == "lossy_zone":
        for table, of, column in ((nodes, rows, NodeMetric.ERROR_RATE), (edges, calls, EdgeMetric.ERROR_RATE)):
            table[of, column] = 1 - (1 - table[of, column]) * (1 - event.size)
    else:
        slower = 1 + event.size if event.kind == "slow_zone" else 1 / (1 - event.size)
        nodes[np.ix_(rows, LATENCY)] *= slower
        edges[np.ix_(calls, CALL_LATENCY)] *= slower
    if event.kind == "noisy_hosts":
        nodes[rows, NodeMetric.CPU_UTILIZATION] += event.size * (1 - nodes[rows, NodeMetric.CPU_UTILIZATION])
    return replace(snapshot, node_features=nodes, edge_features=edges)


def _kind(event: Event) -> WidespreadKind:
    return next(kind for kind in WIDESPREAD if kind == event.kind)


def measure(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield one line for each kind and size of the events in the runs of one source."""
    calm = [run.labels == CALM_LABEL for run in runs]
    days = sum(_days(run, of) for run, of in zip(runs, calm, strict=True))
    signals = [np.vstack([run.signals, _together(run, runs, calm)]) for run in runs]
    names = (*SIGNALS, "combined")
    levels = {
        (name, rate): lowest_level([s[i] for s in signals], calm, rate * days, *CONFIRM[name])
        for i, name in enumerate(names)
        for rate in RATES
    }
    found: dict[tuple[str, float], list[dict[str, bool]]] = {}
    for run, values in zip(runs, signals, strict=True):
        for index, event in enumerate(run.events):
            inside = run.labels == index
            hits = {name: bool(alarm[inside].any()) for name, alarm in run.alarms.items()}
            for i, name in enumerate(names):
                for rate in RATES:
                    hits[f"{name} at {rate:g}/day"] = bool(
                        confirmed(values[i] > levels[name, rate], *CONFIRM[name])[inside].any()
                    )
            found.setdefault((event.kind, event.size), []).append(hits)
    base = {"benchmark": "reconstruction", "source": runs[0].source, "meshes": len(runs), "calm_days": round(days, 2)}
    for name in runs[0].alarms:
        false = sum(episodes(run.alarms[name] & of) for run, of in zip(runs, calm, strict=True))
        base[f"false_{name}_per_day"] = round(false / days, 2) if days else None
    for (kind, size), outcomes in sorted(found.items()):
        line = base | {"kind": kind, "size": size, "events": len(outcomes)}
        for name in outcomes[0]:
            of = share([outcome[name] for outcome in outcomes])
            line[name] = [None if v is None else round(v, 3) for v in (of.value, of.low, of.high)]
        yield line


def _days(run: Run, calm: NDArray[np.bool_]) -> float:
    steps = np.diff(run.seconds, append=run.seconds[-1])
    return float(steps[calm & (steps < 3 * np.median(steps))].sum()) / 86400


def _together(run: Run, runs: Sequence[Run], calm: Sequence[NDArray[np.bool_]]) -> Floats:
    """Return the signal that is rarest among the calm snapshots of all runs, as decades of its rank, ``[T]``."""
    ranks = []
    for i in range(len(SIGNALS)):
        usual = np.sort(np.concatenate([r.signals[i][of] for r, of in zip(runs, calm, strict=True)]))
        as_high = len(usual) - np.searchsorted(usual, run.signals[i], "left")
        ranks.append(-np.log10((as_high + 1) / (len(usual) + 1)))
    highest: Floats = np.max(ranks, axis=0)
    return highest


def lowest_level(
    values: Sequence[Floats], calm: Sequence[NDArray[np.bool_]], most: float, confirm: int, of: int
) -> float:
    """Return the lowest level with at most so many false alerts in the calm snapshots of all runs."""
    low, high = 0.0, max(float(v.max()) for v in values) + 1e-9
    for _ in range(40):
        level = (low + high) / 2
        false = sum(episodes(confirmed(v > level, confirm, of) & quiet) for v, quiet in zip(values, calm, strict=True))
        low, high = (low, level) if false <= most else (level, high)
    return high


def confirmed(above: NDArray[np.bool_], confirm: int, of: int) -> NDArray[np.bool_]:
    """Return where a signal is above its level, as in ``confirm`` of the last ``of`` snapshots."""
    recent = np.convolve(above, np.ones(of))[: len(above)]
    return above & (recent >= confirm)


def episodes(alarms: NDArray[np.bool_]) -> int:
    """Return the number of alarms; two with less than ``CLEAR`` snapshots between them are one."""
    at = np.flatnonzero(alarms)
    return int(len(at) and 1 + (np.diff(at) > CLEAR).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", choices=SEEDS, default="report")
    parser.add_argument("--meshes", type=int, default=6, help="simulated ones with events, and as many without")
    parser.add_argument("--folder", type=Path, default=Path("out/reconstruction"), help="for simulated recordings")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    lines = []
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        seeds = SEEDS[arguments.seeds][: arguments.meshes]
        groups: list[list[Future[Run]]] = [
            [*(pool.submit(simulated, seed) for seed in seeds), *(pool.submit(calm, seed + 1000) for seed in seeds)]
        ]
        if OTHER.is_file():
            groups += [[pool.submit(of_labelled_recording, *item)] for item in LABELLED.items()]
            groups += [[pool.submit(of_normal_recording, *item)] for item in NORMAL.items()]
            others = OTHER_SEEDS[arguments.seeds]
            groups.append([pool.submit(of_other_simulator, seed, arguments.folder) for seed in others])
        for runs in groups:
            for line in measure([run.result() for run in runs]):
                lines.append(json.dumps(line | {"seeds": arguments.seeds}))
                print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
