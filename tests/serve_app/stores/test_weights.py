"""Weights of single meshes: loaded once, shared, and named in verdicts."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED, load
from model.mesh_weights import Weights, load_weights
from model.network.contract import MeshNetwork
from model.scoring.score import score
from serve_app.api.codec import pack_snapshot
from serve_app.deployments.scoring import scorer
from serve_app.deployments.scoring.in_session import SessionBackend
from serve_app.deployments.scoring.passes import probe, score_groups
from serve_app.deployments.scoring.queue import Group, ScoredGroup, Scores, WaitingGroup
from serve_app.errors import DeadlineExceeded
from serve_app.exporter import PrometheusInstruments
from serve_app.mesh_steps import MeshSteps, NextSnapshot
from serve_app.models.admin import ModelAdmin
from serve_app.pipeline import LocalRunner, options, replayer, run_now
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.cache import MeshCache
from serve_app.stores.opening import open_store
from serve_app.stores.repository import MeshRepository
from tests.builders import allow_deployments, served_models
from tests.serve_app.stores.local import locally


def settings_of(**weights: Path) -> Settings:
    return Settings(meshes={mesh: {"weights": path} for mesh, path in weights.items()})


def load_chosen(settings: Settings) -> Weights:
    return load_weights(settings.model.weights, settings.weights_by_mesh)


def test_equal_files_are_loaded_once_and_count_once(other_weights: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(other_weights.read_bytes())
    weights = load_chosen(settings_of(a=other_weights, b=other_weights, c=copy, d=SHIPPED))
    assert weights.of("a") is weights.of("b") is weights.of("c")
    assert weights.of("d") is weights.default is weights.of("unknown")
    assert len(weights.distinct()) == 2
    assert weights.size_bytes() == 2 * load_chosen(Settings()).size_bytes() > 0
    assert not weights.refused


def test_a_mesh_whose_weights_are_refused_has_the_default_ones(tmp_path: Path, other_weights: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"noise")
    chosen = Settings(
        model={"weights": other_weights}, meshes={"a": {"weights": broken}, "b": {"weights": tmp_path / "no"}}
    )
    weights = load_chosen(chosen)
    assert weights.of("a") is weights.of("b") is weights.default
    assert weights.default.digest == load(other_weights).digest
    first, second = weights.refused
    reason = "refused, and the weights of other meshes are in use: weights"
    assert first.startswith(f"meshes.a.weights: {reason} {broken}: expected a checkpoint of this version")
    assert second.startswith(f"meshes.b.weights: {reason}: expected a file at {tmp_path / 'no'}")


@locally
def test_each_mesh_is_scored_with_its_weights_also_after_a_reload(other_weights: Path, place: StoreSettings) -> None:
    chosen = settings_of(own=other_weights)
    weights = load_chosen(chosen)
    snapshots = list(Simulator(MeshSpec(services=24, calls_per_service=3, seed=5), snapshots=30).snapshots())
    with closing(open_store(place)) as store:
        meshes = MeshRepository(store, MeshCache(1), replayer(weights.of, chosen))  # one mesh fits
        steps = MeshSteps(store, meshes)
        alone = MeshSteps(store, MeshRepository(store, MeshCache(2**28), replayer(weights.of, chosen)))
        for snapshot in snapshots:
            answers = {}
            for mesh in ("own", "plain"):
                push, runner = NextSnapshot(mesh, pack_snapshot(snapshot)), LocalRunner(weights.of(mesh))
                answers[mesh] = run_now(steps.push(push, options(chosen, mesh), runner)).document
            push = NextSnapshot("reference", pack_snapshot(snapshot))
            reference = run_now(alone.push(push, options(chosen), LocalRunner(load(other_weights)))).document
            assert answers["own"] == reference
            own, plain = (msgspec.json.decode(answers[mesh]) for mesh in ("own", "plain"))
            assert (own["model"], plain["model"]) == (load(other_weights).digest, load().digest)
        assert own["reconstruction"]["loss"] != plain["reconstruction"]["loss"]


@locally
def test_a_mesh_whose_weights_change_continues_with_its_state(other_weights: Path, place: StoreSettings) -> None:
    snapshots = list(Simulator(MeshSpec(services=24, calls_per_service=3, seed=5), snapshots=25).snapshots())
    verdicts = []
    with closing(open_store(place)) as store:
        for i, snapshot in enumerate(snapshots):
            chosen = settings_of(own=other_weights) if i >= 20 else Settings()
            weights = load_chosen(chosen)
            meshes = MeshRepository(store, MeshCache(2**28), replayer(weights.of, chosen))
            steps = MeshSteps(store, meshes)
            push, runner = NextSnapshot("own", pack_snapshot(snapshot)), LocalRunner(weights.of("own"))
            verdicts.append(msgspec.json.decode(run_now(steps.push(push, options(chosen, "own"), runner)).document))
    assert [verdict["sequence"] for verdict in verdicts] == list(range(1, 26))
    assert {verdict["model"] for verdict in verdicts[20:]} == {load(other_weights).digest}
    assert all(verdict["status"] != "warming_up" for verdict in verdicts[20:])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
async def test_a_batch_of_a_scorer_does_not_mix_weights(
    other_weights: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    allow_deployments(monkeypatch)
    passes: list[tuple[MeshNetwork, int]] = []

    def count_passes(network: MeshNetwork, groups: Sequence[Group]) -> list[Scores | Exception]:
        passes.append((network, len(groups)))
        return score_groups(network, groups)

    monkeypatch.setattr(scorer, "score_groups", count_passes)
    chosen = settings_of(own=other_weights, same=other_weights)
    weights = load_weights(None, chosen.weights_by_mesh, torch.device(device))
    monkeypatch.setattr(scorer, "MAX_GROUPS", {device: 8})
    replica = scorer.Scorer(chosen, device)
    meshes = ["own", "plain", "same", "plain", "late"]
    requests = [
        WaitingGroup(probe(weights.default), Deadline.after(0 if mesh == "late" else 600), replica._weights.of(mesh))
        for mesh in meshes
    ]
    outcomes = await asyncio.gather(*map(replica._queue.score, requests), return_exceptions=True)
    assert [(network is replica._weights.of("own").network, count) for network, count in passes] == [
        (True, 2),
        (False, 2),
    ]
    for mesh, outcome in zip(meshes[:-1], outcomes[:-1], strict=True):
        assert isinstance(outcome, ScoredGroup)
        assert outcome.model == weights.of(mesh).digest
        (alone,) = score(weights.of(mesh).network, probe(weights.default))
        np.testing.assert_allclose(outcome.scores[0].node_expected, alone.node_expected, rtol=1e-4, atol=1e-4)
    assert isinstance(outcomes[-1], DeadlineExceeded)


def test_a_session_scores_each_mesh_with_its_weights(other_weights: Path) -> None:
    weights = load_chosen(settings_of(own=other_weights))
    place = SessionBackend(weights, "replica", 1, PrometheusInstruments())
    models = served_models(settings_of(own=other_weights), weights)
    chosen = {mesh: models.get(mesh) for mesh in ("own", "plain")}
    runners = {mesh: place.runner(mesh, Deadline.after(600), model) for mesh, model in chosen.items() if model}
    assert runners["own"].checkpoint is weights.of("own")
    assert runners["plain"].checkpoint is weights.default


@locally
def test_the_model_route_names_the_weights_of_meshes(other_weights: Path, place: StoreSettings) -> None:
    weights = load_chosen(settings_of(own=other_weights))
    settings = settings_of(own=other_weights)
    models = served_models(settings, weights)
    with closing(open_store(place)) as store:
        document = ModelAdmin(settings, models, store).in_use()
    assert document.digest == weights.default.digest
    assert document.meshes == {"own": load(other_weights).digest}
