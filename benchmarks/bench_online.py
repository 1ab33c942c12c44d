"""Does it pay to learn from one mesh while the service runs?

    python -m benchmarks.bench_online [--seeds report] [--meshes 12] [--rank 4] [--jobs 2] [--json FILE]

Meshes that the weights were not trained on: of our simulator, of the simulator by other hands (../shared/other_mesh),
and recorded normal traffic with injected faults (../shared/recordings). Each has time to learn from, and after it the
same time twice: calm, and with faults. Each line adds something to the line before it:

- without: the shipped weights;
- tails: rates and sizes of exceedances of the mesh's calm snapshots;
- low rank: updates A Bᵀ of the output heads, trained on the mesh's calm snapshots;

and ``low rank alone`` has the heads, with the shipped tails. The last quarter of the learning time is
held out. A candidate that is not better on it is refused, and the line before it stays.

A fault is found if the score of the mesh is above a level in 3 of 4 snapshots during the fault, or in the two after it.
The level is the lowest with so many false alerts on the calm snapshots of the same source. ``alerts`` are raised by the
default settings. Likelihoods are of the calm time. Takes a quarter of an hour on two cores.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bench_reconstruction import confirmed, lowest_level
from benchmarks.online.archive import CalmMoment
from benchmarks.online.likelihood import Likelihood, of_tails, of_values
from benchmarks.online.low_rank import fit_low_rank, held_out_loss
from benchmarks.online.meshes import Recipe, TestMesh, groups
from benchmarks.online.tails import fit_tails
from lab.evaluation.measures.intervals import share
from lab.training.dataset import SETTLE, LabelledFault
from model.checkpoint import Checkpoint, load
from serve_app.pipeline import Mesh, Options, StageResults, advance_in_detail

SEEDS = {"choose": range(860, 880), "report": range(880, 900)}
OTHER_SEEDS = {"choose": (33, 34), "report": (43, 44, 45)}
INJECTED = {"choose": 20, "report": 21}
VARIANTS = ("without", "+ tails", "+ low rank", "low rank alone")
HELD_OUT = 0.25  # share of the archive, the newest
CONFIRM = (3, 4)  # snapshots above a level, of so many
LATE = 2  # snapshots after a fault in which it is still found
RATES = (1.0, 4.0)  # false alerts per day


@dataclass(frozen=True, slots=True)
class Track:
    """What the detector says of some snapshots.

    Attributes:
        times: of the snapshots.
        scores: of the mesh.
        culprits: the first suspect of each snapshot.
        alerts: for each alert, its first snapshot.
        alerted: alerts that are open, and their first suspects, for each snapshot.
        values, tails: likelihoods.
    """

    times: tuple[datetime, ...]
    scores: tuple[float, ...]
    culprits: tuple[str, ...]
    alerts: tuple[int, ...]
    alerted: tuple[frozenset[str], ...]
    values: Likelihood
    tails: Likelihood


@dataclass(frozen=True, slots=True)
class Judged:
    """One variant on one mesh: its calm time, the same time with faults, whether its candidate was accepted, and how
    long its fit took, s."""

    source: str
    faults: tuple[LabelledFault, ...]
    calm: Track
    faulty: Track
    accepted: bool
    fit_seconds: float


def learn(checkpoint: Checkpoint, mesh: TestMesh) -> tuple[Mesh, list[CalmMoment]]:
    """Run the detector over the learning time, and return its state and the calm snapshots."""
    state, archive = Mesh(), []
    for index, snapshot in enumerate(mesh.learning):
        found = advance_in_detail(checkpoint, state, snapshot, Options())
        state = found.mesh
        if index >= SETTLE and not found.verdict.incidents:
            archive.append(CalmMoment(found.prepared.observation, found.prepared.whole))
    return state, archive


def track(checkpoint: Checkpoint, state: Mesh, snapshots: Sequence[Any]) -> Track:
    """Run the detector over snapshots."""
    times, scores, culprits, alerts, alerted = [], [], [], [], []
    known, values, tails = {one.id for one in state.state.memory.open}, Likelihood(), Likelihood()
    for index, snapshot in enumerate(snapshots):
        found = advance_in_detail(checkpoint, state, snapshot, Options())
        state, verdict = found.mesh, found.verdict
        values, tails = values + _values(found), tails + _tails(checkpoint, found)
        times.append(snapshot.observed_at)
        scores.append(verdict.mesh_score)
        culprits.append(verdict.suspects[0].service if verdict.suspects else "")
        alerts += [index for one in verdict.alerts if one.id not in known]
        known |= {one.id for one in verdict.alerts}
        alerted.append(frozenset(one.suspects[0].service for one in verdict.alerts if one.suspects))
    return Track(tuple(times), tuple(scores), tuple(culprits), tuple(alerts), tuple(alerted), values, tails)


def _values(found: StageResults) -> Likelihood:
    seen, decoded = found.prepared.observation, found.calibrated.decoded
    return of_values(seen.node, decoded.node_expected) + of_values(seen.edge, decoded.edge_expected)


def _tails(checkpoint: Checkpoint, found: StageResults) -> Likelihood:
    seen = found.prepared.observation
    node = of_tails(checkpoint.node_tail, seen.node, seen.node_exposure)
    return node + of_tails(checkpoint.edge_tail, seen.edge, seen.edge_exposure)


def judge(recipe: Recipe, rank: int) -> dict[str, Judged]:
    """Run all variants on one mesh."""
    mesh, shipped, results = recipe(), load(), dict[str, Judged]()

    def run(name: str, checkpoint: Checkpoint, accepted: bool, seconds: float) -> None:
        calm, faulty = (track(checkpoint, state, of) for of in (mesh.calm, mesh.faulty))
        results[name] = Judged(mesh.source, mesh.faults, calm, faulty, accepted, seconds)

    state, archive = learn(shipped, mesh)
    run("without", shipped, True, 0.0)
    older, newer = archive[: int((1 - HELD_OUT) * len(archive))], archive[int((1 - HELD_OUT) * len(archive)) :]

    def tails_loss(checkpoint: Checkpoint) -> float:
        total = Likelihood()
        for moment in newer:
            seen = moment.observation
            total += of_tails(checkpoint.node_tail, seen.node, seen.node_exposure)
            total += of_tails(checkpoint.edge_tail, seen.edge, seen.edge_exposure)
        return total.mean

    begin = time.process_time()
    tails = fit_tails(shipped, older)
    seconds = time.process_time() - begin
    better = tails_loss(tails) < tails_loss(shipped)
    run("+ tails", tails if better else shipped, better, seconds)
    begin = time.process_time()
    heads = fit_low_rank(shipped, older, rank)
    seconds = time.process_time() - begin
    improved = held_out_loss(heads.network, newer) < held_out_loss(shipped.network, newer)
    network = heads.network if improved else shipped.network
    for name, base in (("+ low rank", tails if better else shipped), ("low rank alone", shipped)):
        run(name, replace(base, network=network), improved, seconds)
    return results


def measure(name: str, found: Sequence[Judged]) -> dict[str, Any]:
    """Return the line of a variant on the meshes of one source."""
    every = [np.ones(len(one.calm.times), bool) for one in found]
    signals = [np.array(one.calm.scores) for one in found]
    days = sum(_days(one.calm) for one in found)
    line: dict[str, Any] = {
        "benchmark": "online",
        "source": found[0].source,
        "variant": name,
        "meshes": len(found),
        "faults": sum(len(one.faults) for one in found),
        "calm_days": round(days, 2),
        "nll": round(sum((one.calm.values for one in found), Likelihood()).mean, 4),
        "tail_nll": round(1000 * sum((one.calm.tails for one in found), Likelihood()).mean, 3),
    }
    for rate in RATES:
        level = lowest_level(signals, every, rate * days, *CONFIRM)
        hits = [hit for one in found for hit in _hits(one, level)]
        line[f"found at {rate:g}/day"] = _interval([hit is not None for hit in hits])
        line[f"culprit first at {rate:g}/day"] = _interval([bool(hit) for hit in hits])
    by_alert = [hit for one in found for hit in _hits_by_alert(one)]
    return line | {
        "alerts found": _interval([hit is not None for hit in by_alert]),
        "alerts culprit first": _interval([bool(hit) for hit in by_alert]),
        "false alerts per week": round(7 * sum(len(one.calm.alerts) for one in found) / days, 2),
        "accepted": sum(one.accepted for one in found),
        "fit_seconds": round(max(one.fit_seconds for one in found), 2),
    }


def _hits(one: Judged, level: float) -> Iterator[bool | None]:
    """Yield for each fault whether its culprit came first when it was found; None: it was not found."""
    above = confirmed(np.array(one.faulty.scores) > level, *CONFIRM)
    for fault in one.faults:
        places = [place for place in _during(one.faulty, fault) if above[place]]
        yield one.faulty.culprits[places[0]] == fault.service if places else None


def _hits_by_alert(one: Judged) -> Iterator[bool | None]:
    """As :func:`_hits`, by the alerts of the default settings."""
    for fault in one.faults:
        suspects = [found for place in _during(one.faulty, fault) if (found := one.faulty.alerted[place])]
        yield fault.service in suspects[0] if suspects else None


def _during(track: Track, fault: LabelledFault) -> list[int]:
    """Return the snapshots of a fault, and the two after it."""
    inside = [place for place, at in enumerate(track.times) if fault.start <= at < fault.end]
    after = range(inside[-1] + 1, min(inside[-1] + 1 + LATE, len(track.times))) if inside else ()
    return [*inside, *after]


def _days(track: Track) -> float:
    return (track.times[-1] - track.times[0]) / timedelta(days=1)


def _interval(hits: Sequence[bool]) -> list[float | None]:
    estimate = share(hits)
    return [None if value is None else round(value, 3) for value in (estimate.value, estimate.low, estimate.high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=SEEDS, default="report")
    parser.add_argument("--meshes", type=int, default=12, help="of our simulator")
    parser.add_argument("--rank", type=int, default=4, help="of the updates")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("out/online"), help="for recordings of the other simulator")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = SEEDS[arguments.seeds][: arguments.meshes]
    recipes = groups(seeds, OTHER_SEEDS[arguments.seeds], INJECTED[arguments.seeds], arguments.folder)
    lines = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        pending = [[pool.submit(judge, recipe, arguments.rank) for recipe in group] for group in recipes]
        for group in pending:
            found = [future.result() for future in group]
            for name in VARIANTS:
                line = measure(name, [one[name] for one in found])
                lines.append(json.dumps(line | {"rank": arguments.rank, "seeds": arguments.seeds}))
                print(lines[-1], flush=True)
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
