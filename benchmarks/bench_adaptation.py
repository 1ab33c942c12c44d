"""Whether a mesh that adapts ends pages sooner after a lasting benign change, and still sees a slow leak.

    python -m benchmarks.bench_adaptation [--meshes 8] [--json FILE] [--picture FILE]

Simulated meshes of 60 services with a flash crowd every hour. After an hour of warm-up one service is deployed in a
version that needs more time for each request, for good: within capacity, but its latency rises more with its load than
it did. Three hours later, when it has adapted, it leaks memory for half an hour. Meshes are the first seeds from
``FIRST`` on where a crowd reaches a service that no autoscaler helps; the factor is what leads to ``FULL`` at the
highest crowd. Each is scored with and without adaptation; one JSON line for each mesh.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.simulated import SEEDS
from model.checkpoint import Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.pipeline import Mesh, Options, advance
from serve_app.simulator.events.faults import Fault
from serve_app.simulator.events.operations import BenignChange
from serve_app.simulator.events.surges import crowds_of
from serve_app.simulator.mesh.parameters import build_mesh
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.physics.propagation import MeshPhysics as Physics
from serve_app.simulator.simulator import Simulator

FIRST = 720  # seed
SERVICES = 60
DEPLOY, LEAK, LEAKS, AFTER = 240, 960, 120, 20  # snapshots of 15 s: from, from, for so many, and so many more
LENGTH = LEAK + LEAKS + AFTER
FULL = 0.85  # utilisation at the height of a crowd, as the capacity was bought; the day comes on top
DAY = 1.15  # its load over the mean
MOST_FACTOR = 1.8  # of the deploy
LEAST_SHARE, LEAST_RATE = 0.3, 10.0  # of a service's load that comes from the crowd's namespace; requests/s
LEAKED = 0.8  # of the memory


@dataclass(frozen=True, slots=True)
class Shift:
    """A mesh, the service that is changed for good, and how much more time its requests take."""

    spec: MeshSpec
    service: str
    factor: float

    def snapshots(self, leak: int = LEAK) -> list[MeshSnapshot]:
        """From the first of the warm-up; the leak begins at ``leak``."""
        change = BenignChange("deploy", self.service, DEPLOY, self.factor)
        fault = Fault("slow_leak", self.service, leak, leak + LEAKS, LEAKED)
        return list(Simulator(self.spec, (fault,), (change,), leak + LEAKS + AFTER).snapshots())


@dataclass(frozen=True, slots=True)
class Alarms:
    """What a detector said of a shift.

    Attributes:
        pages, alarmed: incidents that began between the deploy and the leak, and snapshots with one open.
        later_pages, later_alarmed: those of them an hour after the deploy or later: when a load comes back.
        leak_after: snapshots from the leak's beginning to the first page that names the service; None: there was none.
        fitted: adapters taken into use.
    """

    pages: int
    alarmed: int
    later_pages: int
    later_alarmed: int
    leak_after: int | None
    fitted: int


def shifts(count: int) -> Iterator[Shift]:
    """The first meshes that have a place for one."""
    seed = FIRST
    while count:
        assert not any(seed in seeds for seeds in SEEDS.values())
        found = shift(MeshSpec(services=SERVICES, seed=seed, crowds_per_day=24.0))
        if found is not None:
            yield found
            count -= 1
        seed += 1


def shift(spec: MeshSpec) -> Shift | None:
    """The service that the crowds of the first namespace fill most, and a deploy that fills it to ``FULL``."""
    mesh = build_mesh(spec)
    heights = [c.factor for hour in range(LENGTH // 240 + 1) for c in crowds_of(spec, mesh, hour)]
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
    """Of each service's load, what enters there."""
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
    """All verdicts, and the snapshots after which an adapter was taken into use."""
    mesh, verdicts, fitted = Mesh(), [], []
    for i, snapshot in enumerate(snapshots):
        before = mesh.state.adaptation.adapter
        verdict, mesh = advance(checkpoint, mesh, snapshot, options)
        verdicts.append(verdict)
        if mesh.state.adaptation.adapter is not before:
            fitted.append(i)
    return verdicts, fitted


def count_alarms(verdicts: Sequence[Verdict], fitted: Sequence[int], service: str, leak: int = LEAK) -> Alarms:
    """Counted."""
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
    """Load and latency of the changed service, and when there is a page open."""
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
    parser.add_argument("--picture", type=Path, help="of the mesh where it matters most")
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
