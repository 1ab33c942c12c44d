"""Snapshots without telemetry: silences of a tenth of the services, and a service that disappears meanwhile."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.silence import Reporter, silence
from model.checkpoint import Checkpoint
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.pipeline import Mesh
from tests.builders import score_all

SETTLED = 60  # snapshots before the first silence
SILENCES, BETWEEN, LENGTHS = 20, 3, (2, 12)  # number of silences, measured snapshots between them, length in snapshots
SHARE = 0.1  # of the services
EARLY, DISAPPEARED = 3, 9  # snapshots from the silence to the disappearance, and to the end of the run from there
BUSY = 10.0  # requests/s
NAMED = 3  # first suspects


def settle(checkpoint: Checkpoint, snapshots: Iterable[MeshSnapshot]) -> Mesh:
    """Return the state after snapshots without silences."""
    return score_all(checkpoint, Mesh(), snapshots)[1]


def with_silences(snapshots: Iterable[MeshSnapshot], reporter: Reporter, seed: int = 1) -> Iterator[MeshSnapshot]:
    """Yield the snapshots until the last silence has ended and ``BETWEEN`` further ones have passed."""
    rng, source = np.random.default_rng(seed), iter(snapshots)
    for _ in range(SILENCES):
        names: set[str] = set()
        for snapshot in islice(source, int(rng.integers(LENGTHS[0], LENGTHS[1] + 1))):
            names = names or silent_share(snapshot, rng)
            yield silence(snapshot, names, reporter)
        yield from islice(source, BETWEEN)


def silent_share(snapshot: MeshSnapshot, rng: np.random.Generator) -> set[str]:
    """Choose a tenth of the services at random."""
    return set(rng.choice(snapshot.node_ids, round(SHARE * snapshot.num_nodes), replace=False).tolist())


def alerts(verdicts: Sequence[Verdict]) -> set[str]:
    """Return the ids of the incidents that raise an alert."""
    return {incident.id for verdict in verdicts for incident in verdict.alerts}


def busy_services(spec: MeshSpec, count: int = 10) -> list[str]:
    """Return services whose disappearance is an incident, from the busiest to the least busy."""
    simulator = Simulator(spec)
    able = candidates(simulator.mesh, "disappearance", BUSY)
    by_rate = able[np.argsort(-simulator.mesh.usual_rate[able], kind="stable")]
    return [simulator.node_ids[i] for i in by_rate[:: max(1, len(by_rate) // count)][:count]]


@dataclass(frozen=True, slots=True)
class Disappearance:
    """Outcome of a disappearance.

    Attributes:
        found: whether an alert is at the service or its callers.
        named: whether the service is among the first suspects of an alert.
    """

    found: bool
    named: bool


def find_disappearance(checkpoint: Checkpoint, settled: Mesh, spec: MeshSpec, culprit: str, seed: int) -> Disappearance:
    """Let a service disappear while a tenth of the others is silent, and look for it in the alerts.

    Args:
        checkpoint: the detector.
        settled: state after ``SETTLED`` snapshots of the mesh.
        spec: the mesh.
        culprit: node id.
        seed: chooses the silent services.
    """
    begin = SETTLED + EARLY
    fault = Fault("disappearance", culprit, begin, begin + DISAPPEARED, 1.0)
    simulator = Simulator(spec, (fault,))
    snapshots = list(islice(simulator.snapshots(), SETTLED, begin + DISAPPEARED))
    silent = silent_share(snapshots[0], np.random.default_rng(seed)) - {culprit}
    verdicts, _ = score_all(checkpoint, settled, [silence(snapshot, silent) for snapshot in snapshots])
    source, destination = simulator.calls
    place = simulator.node_ids.index(culprit)
    harmed = {culprit, *(simulator.node_ids[i] for i in source[destination == place])}
    suspects = [[s.service for s in incident.suspects] for v in verdicts for incident in v.alerts]
    affected = [incident.affected for v in verdicts for incident in v.alerts]
    return Disappearance(
        found=any(not harmed.isdisjoint(names) for names in (*suspects, *affected)),
        named=any(culprit in names[:NAMED] for names in suspects),
    )
