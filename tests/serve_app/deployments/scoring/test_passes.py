"""Neighbours that a pass of the network fetches, and those that it computes again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.mesh_weights import Weights
from model.verdict import Status
from serve_app.deployments.scoring import passes
from serve_app.deployments.scoring.in_session import SessionBackend
from serve_app.deployments.scoring.meta import MetaModel
from serve_app.deployments.scoring.passes import observe_pass
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.metrics import INFERENCE, NEIGHBOURS_FETCHED, NEIGHBOURS_RECOMPUTED, Metric
from serve_app.models.served import ServedModel
from serve_app.pipeline import Mesh, Options, PreparedSnapshot, advance, cut_tasks, prepare
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings
from tests.builders import allow_deployments
from tests.timing import PATIENCE_SECONDS


class Observed:
    """Instruments that keep what is observed and counted."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        assert metric.is_counter
        self.values.setdefault(metric.name, []).append(amount)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        assert tuple(labels) == metric.labels
        self.values.setdefault(metric.name, []).append(value)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        assert metric.gauge


@pytest.fixture(scope="module")
def prepared() -> PreparedSnapshot:
    """A snapshot of a mesh in several parts."""
    [snapshot] = Simulator(MeshSpec(services=60, namespaces=4, seed=3), snapshots=1).snapshots()
    return prepare(load(), Mesh(), snapshot, Options(max_services=20))


def test_a_pass_over_an_uncut_mesh_computes_no_service_twice(prepared: PreparedSnapshot) -> None:
    instruments, state = Observed(), prepared.mesh.state
    observe_pass(instruments, [prepared.whole], 0.25, "model")
    assert instruments.values == {
        INFERENCE.name: [0.25],
        NEIGHBOURS_FETCHED.name: [state.attended_callers.sum() + state.attended_callees.sum()],
        NEIGHBOURS_RECOMPUTED.name: [0],
    }


def test_sessions_and_meta_models_run_all_stages_before_they_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = []

    def count(*given: Any) -> None:
        verdicts.append(advance(*given)[0])

    allow_deployments(monkeypatch)
    monkeypatch.setattr(passes, "advance", count)
    settings = Settings(store={"path": tmp_path})
    MeshSession(settings)
    assert [one.status for one in verdicts] == [Status.WARMING_UP]
    MetaModel(settings)
    assert len(verdicts) == 2


def test_passes_over_parts_compute_their_halos_again(prepared: PreparedSnapshot) -> None:
    instruments, tasks = Observed(), cut_tasks(prepared)
    for task in tasks:
        observe_pass(instruments, [task], 0.25, "model")
    again = list(instruments.values[NEIGHBOURS_RECOMPUTED.name])
    assert prepared.mesh.plan is not None
    assert again == [len(part.halo) for part in prepared.mesh.plan.parts]
    assert sum(again) == sum(len(task.nodes) for task in tasks) - len(prepared.mesh.state.node_ids) > 0
    observe_pass(instruments, tasks, 0.25, "model")
    fetched, recomputed = (instruments.values[m.name] for m in (NEIGHBOURS_FETCHED, NEIGHBOURS_RECOMPUTED))
    assert sum(fetched[:-1]) > fetched[-1] == prepared.whole.neighbours, "one pass over all parts fetches nothing twice"
    assert recomputed[-1] == 0
    observe_pass(instruments, [replace(task, snapshot="") for task in tasks], 0.25, "model")
    assert fetched[-1] == sum(fetched[:-2]), "parts of different snapshots share nothing"
    assert recomputed[-1] == sum(again)


async def test_a_session_counts_its_passes(prepared: PreparedSnapshot) -> None:
    instruments, checkpoint = Observed(), load()
    session = SessionBackend(Weights(checkpoint), "replica", 1, instruments)
    runner = session.runner("shop", Deadline.after(PATIENCE_SECONDS), ServedModel(checkpoint))
    assert len(await runner.score(prepared)) > 1
    assert instruments.values[NEIGHBOURS_FETCHED.name] == [prepared.whole.neighbours]
    assert instruments.values[NEIGHBOURS_RECOMPUTED.name] == [0]
    assert len(instruments.values[INFERENCE.name]) == 1
