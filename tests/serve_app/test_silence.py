"""The whole path while telemetry is missing: silence raises no alert, and real disappearances are still found."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from model.checkpoint import Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Status, Verdict
from serve_app.pipeline import Mesh, Options, advance
from serve_app.simulator.events.faults import Fault, candidates
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.simulator.simulator import Simulator
from serve_app.simulator.telemetry.silence import Reporter, silence

SPEC = MeshSpec(services=100, namespaces=4, seed=23, blackouts_per_day=0.0, scrape_gaps_per_day=0.0)
SETTLED, SNAPSHOTS = 60, 150


@pytest.fixture(scope="module")
def checkpoint() -> Iterator[Checkpoint]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def settled_mesh(checkpoint: Checkpoint) -> tuple[Mesh, list[MeshSnapshot]]:
    """A mesh after an hour of a quarter, and what follows."""
    snapshots = list(Simulator(SPEC, snapshots=SNAPSHOTS).snapshots())
    mesh = Mesh()
    for snapshot in snapshots[:SETTLED]:
        _, mesh = advance(checkpoint, mesh, snapshot, Options())
    return mesh, snapshots[SETTLED:]


def silent_tenth(snapshot: MeshSnapshot, rng: np.random.Generator) -> set[str]:
    return set(rng.choice(snapshot.node_ids, snapshot.num_nodes // 10, replace=False).tolist())


@pytest.mark.parametrize("reporter", list(Reporter))
def test_silence_raises_no_alert(
    checkpoint: Checkpoint, settled_mesh: tuple[Mesh, list[MeshSnapshot]], reporter: Reporter
) -> None:
    """Seven silences of a tenth of the services, 2 to 9 snapshots long, with 3 measured snapshots between them."""
    mesh, snapshots = settled_mesh
    rng, names, verdicts = np.random.default_rng(1), set[str](), list[Verdict]()
    lengths = [2, 3, 5, 9, 4, 7, 9]
    begins = np.cumsum([0, *(length + 3 for length in lengths)])
    for index, snapshot in enumerate(snapshots[: begins[-1]]):
        silences = int(np.searchsorted(begins, index, side="right")) - 1
        if index in begins:
            names = silent_tenth(snapshot, rng)
        if index - begins[silences] < lengths[silences]:
            snapshot = silence(snapshot, names, reporter)
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        verdicts.append(verdict)
    assert [v.incidents for v in verdicts if v.incidents] == []
    silent = [v for v in verdicts if v.silence]
    if reporter is Reporter.CALLS:
        assert not silent, "their own metrics are there"
        return
    assert {v.silence.services for v in silent if v.silence} <= set(range(9, 12))
    assert {v.status for v in silent} == {Status.PARTIAL}
    assert len(silent) == sum(lengths)


def test_disappearances_are_found_during_a_silence_of_others(checkpoint: Checkpoint) -> None:
    """Ten services disappear, each while a tenth of the others is silent: at least nine are found."""
    rng, found = np.random.default_rng(2), 0
    simulator = Simulator(SPEC)
    culprits = [simulator.node_ids[i] for i in candidates(simulator.mesh, "disappearance")][10::6][:10]
    for culprit in culprits:
        faulty = Simulator(SPEC, snapshots=SETTLED + 12)
        faulty.schedule(Fault("disappearance", culprit, SETTLED + 3, SETTLED + 12, 1.0))
        mesh, ids = Mesh(), set[str]()
        silent: set[str] = set()
        for index, snapshot in enumerate(faulty.snapshots()):
            if index == SETTLED:
                silent = silent_tenth(snapshot, rng) - {culprit}
            if index >= SETTLED:
                snapshot = silence(snapshot, silent)
            verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
            ids |= {s.service for i in verdict.incidents for s in i.suspects[:3]}
        found += culprit in ids
    assert len(culprits) == 10
    assert found >= 0.9 * len(culprits)
