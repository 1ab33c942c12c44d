"""While the registry hangs, snapshots are scored with the weights in use, rollouts are followed, and services start."""

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from serve_app.api.codec import pack_snapshot
from serve_app.api.schemas.models import ModelPin
from serve_app.deployments.scoring import scorer
from serve_app.deployments.scoring.messages import SnapshotAnswer
from serve_app.deployments.scoring.meta import MetaModel
from serve_app.deployments.scoring.passes import probe
from serve_app.deployments.scoring.replicas import ReplicaBackend
from serve_app.deployments.scoring.scorer import Scorer
from serve_app.deployments.session import mesh_session
from serve_app.deployments.session.mesh_session import MeshSession
from serve_app.errors import RegistryGone
from serve_app.models import loader
from serve_app.models import rollout as changes
from serve_app.models.registry import Registry
from serve_app.models.rollout import change_rollout
from serve_app.models.served import ServedModel, ServedModels
from serve_app.pipeline import Mesh, Options, run_stages
from serve_app.runtime.rpc import Deadline
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.state_store import StateStore
from tests.builders import add_model, allow_deployments, models_of
from tests.serve_app.deployments.scoring.test_scoring_replicas import Method
from tests.serve_app.running import record_simulation
from tests.timing import PATIENCE_SECONDS

SNAPSHOTS = record_simulation(MeshSpec(services=60, namespaces=4, seed=3), 12)
DEFAULT = load().digest


class Hang:
    """Makes all registries hang, from :meth:`begin` to :meth:`end`. Only in between, nothing waits long for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self._answers = monkeypatch, threading.Event()
        self.end()

    def begin(self) -> None:
        self._answers.clear()
        self._wait_at_most(0.01)

    def end(self) -> None:
        self._answers.set()
        self._wait_at_most(PATIENCE_SECONDS)

    def wait(self) -> None:
        self._answers.wait()

    def _wait_at_most(self, seconds: float) -> None:
        for module in (loader, scorer):
            self._monkeypatch.setattr(module, "MAX_WAIT_SECONDS", seconds)
        self._monkeypatch.setattr(mesh_session, "FIRST_LOAD_SECONDS", seconds)


def model_of(answer: SnapshotAnswer) -> str:
    """Digest of the weights of a verdict."""
    version: str = json.loads(answer.verdict)["model"]
    return version


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    """How the registries of this test hang."""
    hanging, ask = Hang(monkeypatch), Registry._ask

    def wait_and_ask(registry: Registry, action: Callable[[], Any]) -> Any:
        hanging.wait()
        return ask(registry, action)

    monkeypatch.setattr(Registry, "_ask", wait_and_ask)
    monkeypatch.setattr(loader, "RETRY_SECONDS", 1e9)
    yield hanging
    hanging.end()


@pytest.fixture
def pin(registry: Registry, other_weights: Path) -> ModelPin:
    return add_model(registry, other_weights)


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Deployments can be built in this process. They are freed while an event loop runs: without one, Serve's batches
    would create a loop of their own, which no one closes."""
    allow_deployments(monkeypatch)
    yield
    gc.collect()


async def digest_of(models: ServedModels) -> str:
    return (await models.of("shop")).checkpoint.digest


async def await_loads(of: ServedModels | Scorer | MeshSession) -> None:
    """Wait for the loads that are under way."""
    models = of._models if isinstance(of, MeshSession) else of
    await asyncio.gather(*map(asyncio.wrap_future, list(models._loader._loads.values())))


async def test_the_weights_in_use_stay_in_use_while_new_ones_cannot_be_loaded(
    store: StateStore, registry: Registry, pin: ModelPin, weights: Path, hang: Hang
) -> None:
    ours, theirs = models_of(store, registry), models_of(store, registry)
    ours.change(lambda rollout: changes.promote(rollout, pin))
    await theirs.follow_once()
    assert await digest_of(theirs) == pin.version
    newer = add_model(registry, weights)
    ours.change(lambda rollout: changes.promote(rollout, newer))
    assert await digest_of(ours) == newer.version
    hang.begin()
    await theirs.follow_once()
    assert theirs.rollout == ours.rollout, "it knows the rollout"
    assert await digest_of(theirs) == pin.version
    assert theirs.missing == [f"model {newer.version}: not loaded, so its meshes use other weights; the log says why"]
    hang.end()
    await await_loads(theirs)
    assert await digest_of(theirs) == newer.version
    assert theirs.missing == []


async def test_a_rollback_is_followed_while_the_registry_hangs(
    store: StateStore, registry: Registry, pin: ModelPin, hang: Hang
) -> None:
    ours, theirs = models_of(store, registry), models_of(store, registry)
    ours.change(lambda rollout: changes.promote(rollout, pin))
    hang.begin()
    await theirs.follow_once()
    ours.change(changes.roll_back)
    await theirs.follow_once()
    assert await digest_of(ours) == await digest_of(theirs) == DEFAULT
    assert theirs.rollout.trial is None
    assert theirs.missing == []


async def test_a_change_is_refused_if_the_registry_does_not_answer_in_time(
    store: StateStore, registry: Registry, pin: ModelPin, hang: Hang
) -> None:
    models = models_of(store, registry)
    assert models.registry is not None
    models.registry.seconds = 0.01
    hang.begin()
    with pytest.raises(RegistryGone, match=r"no answer within 0\.01 s"):
        await models.pin(pin.version, None)


async def test_one_snapshot_waits_for_a_load_that_takes_long_and_the_log_has_it_once(
    store: StateStore,
    registry: Registry,
    pin: ModelPin,
    hang: Hang,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = models_of(store, registry)
    models._rollout = changes.promote(models.rollout, pin)  # as if its weights had been dropped from memory since
    hang.begin()
    assert await digest_of(models) == DEFAULT
    monkeypatch.setattr(loader, "MAX_WAIT_SECONDS", 1e9)
    assert {await digest_of(models) for _ in range(5)} == {DEFAULT}, "the next snapshots do not wait at all"
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert message.startswith(f"model {pin.version}: not loaded, and other weights are in use: ")
    assert "has not sent its weights within 0.01 s; the load continues" in message


async def test_a_service_starts_and_scores_while_the_registry_hangs(
    store: StateStore,
    registry: Registry,
    pin: ModelPin,
    place: StoreSettings,
    hang: Hang,
    replica: None,
    request: pytest.FixtureRequest,
) -> None:
    change_rollout(store, lambda rollout: changes.promote(rollout, pin))
    hang.begin()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # whatever hangs there holds all else
    session = MeshSession(Settings(models={"registry": registry.place}, store=place, serve={"deadline_seconds": 0.05}))
    request.addfinalizer(session._store.close)
    for _ in range(3):
        with pytest.raises(RegistryGone, match="no answer within"):
            await session.call("models", "all")
    later = Deadline.after(PATIENCE_SECONDS)
    answers = [await session.push("shop", pack_snapshot(one), later) for one in SNAPSHOTS[:3]]
    assert {model_of(one) for one in answers} == {DEFAULT}
    assert (await session.ready(later)).refusals == tuple(session._models.missing) != ()
    hang.end()
    await await_loads(session)
    assert model_of(await session.push("shop", pack_snapshot(SNAPSHOTS[3]), later)) == pin.version
    assert (await session.ready(later)).refusals == ()
    assert session._models.registry is not None
    session._models.registry.seconds = PATIENCE_SECONDS
    listing = await session.api.models.all()
    assert [card.version for card in listing.models] == [pin.version]


async def test_a_scorer_tells_the_session_in_time_that_it_has_no_weights(
    registry: Registry, pin: ModelPin, hang: Hang, replica: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Scorer(Settings(models={"registry": registry.place}), "cpu")
    group = probe(load())
    hang.begin()
    monkeypatch.setattr(scorer, "MAX_WAIT_SECONDS", 1e9)
    with pytest.raises(RegistryGone):
        await worker.score(group, Deadline.after(0.05), "shop", pin=pin)
    with pytest.raises(RegistryGone):  # without waiting
        await worker.score(group, Deadline.after(1e9), "shop", pin=pin)
    assert (await worker.score(group, Deadline.after(PATIENCE_SECONDS), "shop")).model == DEFAULT, "others are scored"
    hang.end()
    await await_loads(worker)
    assert (await worker.score(group, Deadline.after(PATIENCE_SECONDS), "shop", pin=pin)).model == pin.version


async def test_a_session_scores_in_place_of_replicas_whose_registry_hangs(
    registry: Registry, pin: ModelPin, other_weights: Path, hang: Hang, replica: None
) -> None:
    settings = Settings(models={"registry": registry.place})
    hang.begin()
    score, decide = Method(Scorer(settings, "cpu").score), Method(MetaModel(settings).decide)
    place: Any = SimpleNamespace(score=score, decide=decide)
    replicas, model, mesh = ReplicaBackend(place, place, groups=2), ServedModel(load(other_weights), pin), Mesh()
    for snapshot in SNAPSHOTS:
        runner = replicas.runner("shop", Deadline.after(PATIENCE_SECONDS), model)
        advanced = await run_stages(runner, mesh, snapshot, Options(max_services=20))
        mesh = advanced.mesh
        assert runner.missing_parts == 0
        assert advanced.verdict.coverage == 1.0
        assert advanced.verdict.model_digest == pin.version
