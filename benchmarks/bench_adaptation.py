"""Does adaptation end alerts sooner after a lasting benign change, and does it still detect a slow leak?

    python -m benchmarks.bench_adaptation [--meshes 8] [--json FILE] [--picture FILE]

Simulated meshes have 60 services and a flash crowd every hour. After an hour of warm-up, one service gets a permanently
slower version. It stays within capacity, but its latency rises more with load than before. Three hours later, after
adaptation, it leaks memory for half an hour. The meshes have the first seeds from ``FIRST`` in which a crowd reaches a
service without an autoscaler. The factor of the slower version leads to ``FULL`` in the highest crowd. Each mesh is
scored with and without adaptation and gives one JSON line.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.comparison.simulated import SEEDS
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.events.surges import draw_crowds
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.propagation import MeshPhysics as Physics
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from model.snapshot import MeshSnapshot
from model.state.acceptance import accept_incident
from model.verdict import Verdict
from serve_app.pipeline import Mesh, Options, advance

FIRST = 720  # seed
SERVICES = 60
DEPLOY, LEAK, LEAKS, AFTER = 240, 960, 120, 20  # snapshots of 15 s: two beginnings, a duration, and the rest
ACCEPTED_AFTER = 40  # snapshots from the deploy on
LENGTH = LEAK + LEAKS + AFTER
FULL = 0.85  # utilisation at the height of a crowd, without the daily rhythm
DAY = 1.15  # highest daily load over the mean
MOST_FACTOR = 1.8  # of the deploy
LEAST_SHARE, LEAST_RATE = 0.3, 10.0  # share of the load that comes from the crowd's namespace; requests/s
LEAKED = 0.8  # of the memory


@dataclass(frozen=True, slots=True)
class Shift:
    """A mesh, the service that becomes slower, and the factor on the duration of its requests."""

    spec: MeshSpec
    service: str
    factor: float

    def snapshots(self, leak: int = LEAK) -> list[MeshSnapshot]:
        """Simulate all snapshots, with a leak from snapshot ``leak`` on."""
        change = BenignChange("deploy", self.service, DEPLOY, self.factor)
        fault = Fault("slow_leak", self.service, leak, leak + LEAKS, LEAKED)
        return list(Simulator(self.spec, (fault,), (change,), leak + LEAKS + AFTER).snapshots())


@dataclass(frozen=True, slots=True)
class Alarms:
    """Results of a detector on a shift.

    Attributes:
        pages, alarmed: incidents that began between the deploy and the leak, and snapshots with one open.
        later_pages, later_alarmed: the same from an hour after the deploy on, when the next crowds come.
        leak_after: snapshots from the beginning of the leak to the first page that names the service, or None.
        fitted: number of adapters that were adopted.
    """

    pages: int
    alarmed: int
    later_pages: int
    later_alarmed: int
    leak_after: int | None
    fitted: int


def shifts(count: int) -> Iterator[Shift]:
    """Return the first suitable meshes."""
    seed = FIRST
    while count:
        assert not any(seed in seeds for seeds in SEEDS.values())
        found = shift(MeshSpec(services=SERVICES, seed=seed, crowds_per_day=24.0))
        if found is not None:
            yield found
            count -= 1
        seed += 1


def shift(spec: MeshSpec) -> Shift | None:
    """Choose the service with the highest peak and a slower version that fills it to ``FULL``; None if none fits."""
    mesh = build_mesh(spec)
    heights = [c.factor for hour in range(LENGTH // 240 + 1) for c in draw_crowds(spec, mesh, hour)]
    share = _share_of_first_namespace(mesh)
    able = (share > LEAST_SHARE) & (mesh.usual_rate > LEAST_RATE) & (mesh.topology.layer > 0)
    able &= mesh.services.max_replicas <= mesh.services.replicas
    if not heights or not able.any():
        return None
    peak = np.where(able, mesh.usual_utilisation * (1 + (max(heights) - 1) * share) * DAY, 0)
    at = int(np.argmax(peak))
    factor = FULL / float(peak[at])
    return Shift(spec, mesh.topology.node_ids[at], factor) if 1 < factor <= MOST_FACTOR else None


def _share_of_first_namespace(mesh: Physics) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Share of each service's load that enters in the first namespace."""
    topology = mesh.topology
    rate = np.where(topology.namespace == 0, mesh.services.entry, 0.0)
    carried = topology.calls_per_request * ~topology.latent_calls
    for calls in topology.call_slices:
        rate += np.bincount(topology.destination[calls], rate[topology.source[calls]] * carried[calls], len(rate))
    share: np.ndarray[tuple[int], np.dtype[np.float64]] = rate / np.maximum(mesh.usual_rate, 1e-9)
    return share


def score_all(
    checkpoint: Checkpoint, snapshots: Sequence[MeshSnapshot], options: Options
) -> tuple[list[Verdict], list[int]]:
    """Return all verdicts, and the snapshots after which an adapter was adopted.

    The new version is permanently slower, so its alert stays open until a person accepts it, here after ten minutes.
    """
    mesh, verdicts, fitted = Mesh(), [], []
    for i, snapshot in enumerate(snapshots):
        before = mesh.state.adaptation.adapter
        if i == DEPLOY + ACCEPTED_AFTER:
            for incident in mesh.state.memory.open:
                mesh = replace(mesh, state=accept_incident(mesh.state, incident.id))
        verdict, mesh = advance(checkpoint, mesh, snapshot, options)
        verdicts.append(verdict)
        if mesh.state.adaptation.adapter is not before:
            fitted.append(i)
    return verdicts, fitted


def count_alarms(verdicts: Sequence[Verdict], fitted: Sequence[int], service: str, leak: int = LEAK) -> Alarms:
    """Count pages and alarmed snapshots."""
    born: dict[str, int] = {}
    for i, verdict in enumerate(verdicts):
        for incident in verdict.incidents:
            born.setdefault(incident.id, i)
    open_at = [bool(verdict.incidents) for verdict in verdicts]
    hour = DEPLOY + 240
    named = (
        i - leak
        for i, verdict in enumerate(verdicts)
        if i >= leak and any(service in one.affected and born[one.id] >= leak for one in verdict.incidents)
    )
    return Alarms(
        sum(DEPLOY <= i < leak for i in born.values()),
        sum(open_at[DEPLOY:leak]),
        sum(hour <= i < leak for i in born.values()),
        sum(open_at[hour:leak]),
        next(named, None),
        len(fitted),
    )


def draw(one: Shift, verdicts_by_mode: dict[str, list[Verdict]], snapshots: Sequence[MeshSnapshot], path: Path) -> None:
    """Draw load and latency of the changed service and the times with an open page."""
    import matplotlib.pyplot as plt

    rows = [s.node_features[s.node_ids.index(one.service)] for s in snapshots]
    minutes = [(i - DEPLOY) / 4 for i in range(len(rows))]
    figure, (load, latency, open_pages) = plt.subplots(
        3, figsize=(8, 4.2), dpi=90, sharex=True, height_ratios=(2, 3, 1)
    )
    load.plot(minutes, [row[0] for row in rows], lw=0.8)
    load.set_ylabel("requests/s")
    latency.plot(minutes, [1000 * row[2] for row in rows], lw=0.8)
    latency.set(ylabel="p50, ms", yscale="log")
    for place, verdicts in enumerate(verdicts_by_mode.values()):
        on = [i for i, verdict in enumerate(verdicts) if verdict.incidents]
        open_pages.broken_barh([(minutes[i], 0.25) for i in on], (place - 0.35, 0.7), color=f"C{place + 1}")
    open_pages.set_yticks(range(len(verdicts_by_mode)), list(verdicts_by_mode))
    open_pages.set_ylim(-0.6, len(verdicts_by_mode) - 0.4)
    open_pages.set_xlabel("minutes since the deploy; from 180 on the service leaks memory")
    for axes in (load, latency, open_pages):
        axes.axvline(0, color="grey", lw=0.8, ls=":")
        axes.axvspan((LEAK - DEPLOY) / 4, (LEAK + LEAKS - DEPLOY) / 4, color="grey", alpha=0.2, lw=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="picture of the mesh with the largest difference")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint, lines, seen = load(), [], []
    for one in shifts(arguments.meshes):
        snapshots = one.snapshots()
        verdicts_by_mode: dict[str, list[Verdict]] = {}
        line: dict[str, Any] = {
            "benchmark": "adaptation",
            "seed": one.spec.seed,
            "service": one.service,
            "factor": round(one.factor, 2),
        }
        for name, options in (("without", Options(adapt=False)), ("with", Options())):
            verdicts_by_mode[name], fitted = score_all(checkpoint, snapshots, options)
            line[name] = asdict(count_alarms(verdicts_by_mode[name], fitted, one.service))
        lines.append(json.dumps(line))
        print(lines[-1], flush=True)
        seen.append((line["without"]["alarmed"] - line["with"]["alarmed"], one, verdicts_by_mode, snapshots))
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))
    if arguments.picture:
        _, one, verdicts_by_mode, snapshots = max(seen, key=lambda entry: entry[0])
        draw(one, verdicts_by_mode, snapshots, arguments.picture)


if __name__ == "__main__":
    main()
