"""Which weights a session uses for a mesh, and how they change between two snapshots."""

import asyncio
import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint import load, save
from model.mesh_weights import load_weights
from serve_app.errors import StoreGone, UnfitModel, UnknownModel
from serve_app.exporter import PrometheusInstruments
from serve_app.models import loader
from serve_app.models import rollout as changes
from serve_app.models.loader import open_loader
from serve_app.models.registry import WEIGHTS, Registry
from serve_app.models.rollout import ALL_MESHES, pins_of
from serve_app.models.served import ServedModels, open_models
from serve_app.settings import Settings
from serve_app.stores.state_store import StateStore
from tests.builders import add_model, models_of, served_models


def digest_of(models: ServedModels, mesh: str = "shop") -> str:
    return asyncio.run(models.of(mesh)).checkpoint.digest


def test_without_a_registry_the_weights_of_the_settings_are_used(other_weights: Path) -> None:
    settings = Settings(meshes={"own": {"weights": other_weights}})
    models = served_models(settings, load_weights(None, settings.weights_by_mesh))
    own, plain = models.get("own"), models.get("plain")
    assert own is not None
    assert plain is not None
    assert (own.checkpoint.digest, plain.checkpoint.digest) == (load(other_weights).digest, load().digest)
    assert not models.is_following
    assert not models.follow()


def test_a_promoted_model_is_in_use_when_the_session_follows(
    store: StateStore, registry: Registry, other_weights: Path
) -> None:
    pin = add_model(registry, other_weights)
    models, other = models_of(store, registry), models_of(store, registry)
    assert digest_of(models) == load().digest
    models.change(lambda rollout: changes.promote(rollout, pin))
    assert digest_of(models) == pin.version
    assert digest_of(other) == load().digest
    assert other.follow()
    assert not other.follow()
    assert digest_of(other) == digest_of(other, ALL_MESHES) == pin.version
    assert other.get("shop") is not None, "it was loaded before"
    models.change(changes.roll_back)
    other.follow()
    assert digest_of(models) == digest_of(other) == load().digest


def test_a_new_session_uses_what_the_store_says(store: StateStore, registry: Registry, other_weights: Path) -> None:
    pin = add_model(registry, other_weights)
    models_of(store, registry).change(lambda rollout: changes.promote(rollout, pin))
    assert digest_of(models_of(store, registry)) == pin.version


def test_each_mesh_of_a_trial_has_two_models(store: StateStore, registry: Registry, other_weights: Path) -> None:
    pin = add_model(registry, other_weights)
    models = models_of(store, registry)
    assert models.roles("shop") is None
    rollout = models.change(lambda rollout: changes.start_canary(rollout, pin, 0.5))
    for mesh in (f"mesh-{i}" for i in range(20)):
        used, other = pins_of(rollout, mesh)
        roles = models.roles(mesh)
        assert roles is not None
        beside = asyncio.run(models.load(roles.beside))
        assert (digest_of(models, mesh), beside.checkpoint.digest) == (
            (pin.version, load().digest) if used == pin else (load().digest, pin.version)
        )
        assert (used is None) != (other is None)


def test_meshes_with_a_file_in_the_settings_stay_as_they_are(
    store: StateStore, registry: Registry, weights: Path, other_weights: Path
) -> None:
    pin = add_model(registry, other_weights)
    models = models_of(store, registry, meshes={"own": {"weights": weights}})
    models.change(lambda rollout: changes.promote(rollout, pin))
    assert (digest_of(models, "own"), digest_of(models, "plain")) == (load(weights).digest, pin.version)
    assert models.pinned == ["own"]
    with pytest.raises(UnfitModel, match=r"got a file in meshes\.own\.weights"):
        asyncio.run(models.pin(pin.version, "own"))
    assert asyncio.run(models.pin(pin.version, None)) == pin
    pinned = models_of(store, registry, model={"weights": weights})
    assert digest_of(pinned) == load(weights).digest
    assert pinned.pinned == ["*"]
    assert pinned.roles("shop") is None
    with pytest.raises(UnfitModel, match=r"got a file in model\.weights"):
        asyncio.run(pinned.pin(pin.version, None))


def test_a_model_with_other_neighbours_is_refused(store: StateStore, registry: Registry, tmp_path: Path) -> None:
    shipped, path = load(), tmp_path / "other.safetensors"
    more = replace(shipped.network.config, neighbours=99)
    save(replace(shipped, network=type(shipped.network)(more)), path)
    pin = add_model(registry, path)
    with pytest.raises(UnfitModel, match="as the one in use, got one that reads 99"):
        asyncio.run(models_of(store, registry).pin(pin.version, None))


def test_an_unknown_model_is_refused(store: StateStore, registry: Registry) -> None:
    with pytest.raises(UnknownModel, match="expected a version of the registry"):
        asyncio.run(models_of(store, registry).pin("0" * 16, None))


def test_a_model_that_cannot_be_loaded_is_replaced_and_tried_again_later(
    store: StateStore, registry: Registry, other_weights: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pin = add_model(registry, other_weights)
    file = tmp_path / "models" / pin.version / WEIGHTS
    content = file.read_bytes()
    file.write_bytes(b"changed")
    models = models_of(store, registry)
    with caplog.at_level(logging.ERROR):
        models.change(lambda rollout: changes.promote(rollout, pin))
        assert [digest_of(models) for _ in range(3)] == [load().digest] * 3
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"model {pin.version}: not loaded, and other weights are in use" in message
    assert f"got {hashlib.sha256(b'changed').hexdigest()}" in message
    file.write_bytes(content)
    assert digest_of(models) == load().digest, "not again so soon"
    monkeypatch.setattr(loader, "RETRY_SECONDS", 0.0)
    assert digest_of(models) == pin.version


async def test_before_the_rollout_is_known_no_snapshot_is_scored(registry: Registry) -> None:
    class Away:
        def read_document(self, name: str) -> None:
            raise StoreGone("the store is away")

    settings = Settings(models={"registry": registry.place})
    store: StateStore = Away()  # type: ignore[assignment]
    models = open_models(settings, load_weights(None, {}), store, PrometheusInstruments())
    assert models.get("shop") is None
    with pytest.raises(StoreGone):
        await models.of("shop")
    with pytest.raises(StoreGone):
        await models.follow_once()


async def test_a_scorer_loads_what_a_group_names(registry: Registry, other_weights: Path) -> None:
    pin = add_model(registry, other_weights)
    loads = open_loader(Settings(models={"registry": registry.place}), torch.device("cpu"), PrometheusInstruments())
    first = await loads.load(pin)
    assert first.digest == pin.version
    assert await loads.load(pin) is first
    with pytest.raises(UnknownModel, match="there is no registry"):
        await open_loader(Settings(), torch.device("cpu"), PrometheusInstruments()).load(pin)
