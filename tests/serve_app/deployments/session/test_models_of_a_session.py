"""A session with a registry: failures in use count, replays have the weights of the mesh, and nothing stays behind."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import Checkpoint, load
from serve_app import pipeline
from serve_app.api.codec import pack_snapshot
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scoring.in_session import SessionRunner
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.errors import DeadlineExceeded, UnknownMesh
from serve_app.models import loader
from serve_app.models import rollout as changes
from serve_app.models.registry import Registry
from serve_app.models.rollout import change_rollout
from serve_app.models.shadow import read_trial
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.state_store import StateStore
from tests.builders import add_model, allow_deployments
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

Start = Callable[..., MeshSession]
PACKED = [pack_snapshot(one) for one in record_simulation(MeshSpec(services=30, seed=3), 6)]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry; sessions can be built in this process."""
    allow_deployments(monkeypatch)
    return Registry(str(tmp_path / "models"))


@pytest.fixture
def pin(registry: Registry, other_weights: Path) -> ModelPin:
    return add_model(registry, other_weights)


@pytest.fixture
def start(registry: Registry, place: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts sessions with the registry; the keywords are groups of settings."""
    monkeypatch.setattr(loader, "MAX_WAIT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(mesh_session, "FIRST_LOAD_SECONDS", PATIENCE_SECONDS)
    with ExitStack() as stack:

        def start_session(**settings: Any) -> MeshSession:
            session = MeshSession(Settings(models={"registry": registry.place}, store=place, **settings))
            stack.callback(session._store.close)
            return session

        yield start_session


def later() -> Deadline:
    return Deadline.after(PATIENCE_SECONDS)


async def work(session: MeshSession) -> None:
    """Wait until the session has done what no request waits for."""
    while session._background_tasks:
        await asyncio.gather(*session._background_tasks)


async def test_pushes_that_fail_count_against_the_model_in_use(
    start: Start, pin: ModelPin, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_rollout(store, lambda rollout: changes.start_canary(rollout, pin, 1.0))
    session = start()
    await session.push("shop", PACKED[0], later())
    decide, broken = SessionRunner.decide, RuntimeError("shapes do not match")

    async def fail(runner: SessionRunner, *arguments: Any) -> Any:
        if runner.checkpoint.digest == pin.version:
            raise broken
        return await decide(runner, *arguments)

    monkeypatch.setattr(SessionRunner, "decide", fail)
    with pytest.raises(RuntimeError):
        await session.push("shop", PACKED[1], later())
    with pytest.raises(RuntimeError):
        await session.push("new", PACKED[1], later())
    with pytest.raises(DeadlineExceeded):  # it took too long
        await session.push("shop", PACKED[1], Deadline.after(0.0))
    await work(session)
    (block,) = session._shadow._trials["shop"].document.blocks
    assert (block.candidate_failed, block.baseline_failed) == (2, 0)
    assert read_trial(store, "new") == (0, None), "nothing stays of a mesh that is not stored"


async def test_a_bad_push_does_not_count_against_a_model(start: Start, pin: ModelPin, store: StateStore) -> None:
    change_rollout(store, lambda rollout: changes.start_canary(rollout, pin, 1.0))
    session = start()
    await session.push("shop", PACKED[1], later())
    with pytest.raises(Exception, match="expected a snapshot after the newest one"):
        await session.push("shop", PACKED[0], later())
    await work(session)
    trial = session._shadow._trials["shop"].document
    assert trial.blocks == []


async def test_a_replay_has_the_weights_of_the_mesh(
    start: Start, pin: ModelPin, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_rollout(store, lambda rollout: changes.promote(rollout, pin, mesh="shop"))
    first = start()
    for mesh in ("shop", "plain"):
        for packed in PACKED[:4]:
            await first.push(mesh, packed, later())
    replayed: dict[str, int] = {}
    replay = pipeline.replay

    def spy(checkpoint: Checkpoint, *arguments: Any) -> Any:
        replayed[checkpoint.digest] = replayed.get(checkpoint.digest, 0) + 1
        return replay(checkpoint, *arguments)

    monkeypatch.setattr(pipeline, "replay", spy)
    second = start()
    await second.push("shop", PACKED[4], later())
    assert replayed == {pin.version: 1}
    await second.push("plain", PACKED[4], later())
    assert replayed == {pin.version: 1, load().digest: 1}


async def test_the_trial_of_a_mesh_that_is_deleted_is_deleted(start: Start, pin: ModelPin, store: StateStore) -> None:
    change_rollout(store, lambda rollout: changes.start_canary(rollout, pin, 0.0))
    session = start()
    await session.push("first", PACKED[0], later())
    await work(session)
    assert read_trial(store, "first")[1] is not None
    await session.delete("first")
    await work(session)
    assert read_trial(store, "first") == (0, None)
    with pytest.raises(UnknownMesh):
        await session.delete("first")


async def test_a_caller_reads_nothing_about_meshes_that_it_may_not_see(
    start: Start, pin: ModelPin, store: StateStore, weights: Path
) -> None:
    for mesh in ("shop", "pay"):
        change_rollout(store, partial(changes.promote, pin=pin, mesh=mesh))
    session = start(meshes={mesh: {"weights": weights} for mesh in ("cart", "bank")})
    seen = frozenset({"shop", "cart"})
    found, in_use = await session.api.models.all(seen), session.api.models.in_use(seen)
    for document in (found, in_use):
        assert "pay" not in document.model_dump_json()
        assert "bank" not in document.model_dump_json()
    assert (found.pinned, set(found.rollout.meshes)) == (["cart"], {"shop"})
    assert [event.mesh for event in found.rollout.history] == ["shop"]
    assert set(in_use.meshes) == {"shop", "cart"}
    everything = await session.api.models.all()
    assert (everything.pinned, set(everything.rollout.meshes)) == (["bank", "cart"], {"shop", "pay"})
    pinned = start(model={"weights": weights})
    assert (await pinned.api.models.all(seen)).pinned == ["*"]
