"""Sidecars have a store each. They follow the rollout of their registry, and a canary goes to a share of them."""

import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from model.checkpoint import load
from serve_app.api.schemas.models import ModelPin
from serve_app.errors import RegistryGone
from serve_app.models import rollout as changes
from serve_app.models import served
from serve_app.models.registry import AsyncRegistry, Registry
from serve_app.models.served import ServedModels
from tests.builders import add_model, models_of
from tests.serve_app.cli.command import tagae
from tests.serve_app.stores.local import local_store

NAMES = [f"shop-{number}" for number in range(40)]
SHIPPED = load().digest


@pytest.fixture(autouse=True)
def asks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "ASK_SECONDS", 0.0)


@pytest.fixture
def pin(registry: Registry, other_weights: Path) -> ModelPin:
    """A model of the registry that is not the one in use."""
    return add_model(registry, other_weights)


@pytest.fixture
def sidecars(registry: Registry, pin: ModelPin, tmp_path: Path) -> Iterator[dict[str, ServedModels]]:
    """The models of sidecars, by name; the last one is a service that is none."""
    stores = {name: local_store(tmp_path / name) for name in (*NAMES, "service")}
    yield {
        name: models_of(store, registry, sidecar=None if name == "service" else name) for name, store in stores.items()
    }
    for store in stores.values():
        store.close()


def versions(sidecars: dict[str, ServedModels]) -> dict[str, str]:
    """What each of them uses for its mesh, once it has followed."""
    for models in sidecars.values():
        models.follow()
    return {name: models.checkpoint("shop").digest for name, models in sidecars.items()}


def test_a_canary_goes_to_a_share_of_the_sidecars(
    sidecars: dict[str, ServedModels], registry: Registry, pin: ModelPin
) -> None:
    assert set(versions(sidecars).values()) == {SHIPPED}
    chosen = ("--registry", registry.place)
    done = tagae("models", "canary", pin.version[:6], "--share", 0.3, *chosen)
    assert done.output == f"30% of the sidecars use {pin.version}, the others the weights of the settings\n"
    trying = {name for name, version in versions(sidecars).items() if version == pin.version}
    assert 4 <= len(trying) <= 20
    assert "30%" in tagae("models", "list", *chosen).stdout
    assert tagae("models", "canary", pin.version, "--share", 0.6, *chosen).exit_code == 0
    more = {name for name, version in versions(sidecars).items() if version == pin.version}
    assert trying < more, "those that try it continue"
    assert tagae("models", "promote", pin.version, *chosen).output == f"all sidecars use {pin.version}\n"
    assert versions(sidecars) == {**dict.fromkeys(NAMES, pin.version), "service": SHIPPED}
    assert not sidecars["shop-0"].has_trial
    assert tagae("models", "rollback", *chosen).exit_code == 0
    assert set(versions(sidecars).values()) == {SHIPPED}


def test_a_sidecar_that_was_changed_itself_stays_as_it_is(
    sidecars: dict[str, ServedModels], registry: Registry, pin: ModelPin
) -> None:
    registry.write_rollout(changes.promote(registry.rollout(), pin))
    own = sidecars["shop-0"]
    own.change(lambda rollout: changes.promote(rollout, pin))
    own.change(changes.roll_back)
    by_sidecar = versions(sidecars)
    assert (by_sidecar["shop-0"], by_sidecar["shop-1"]) == (SHIPPED, pin.version)


def test_without_its_registry_a_sidecar_keeps_what_it_has(
    sidecars: dict[str, ServedModels], registry: Registry, pin: ModelPin, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    registry.write_rollout(changes.promote(registry.rollout(), pin))
    versions(sidecars)

    def away(_: Registry) -> None:
        raise RegistryGone("registry: no answer")

    monkeypatch.setattr(Registry, "rollout", away)
    with caplog.at_level(logging.WARNING):
        assert versions(sidecars)["shop-0"] == pin.version
    assert "the one before stays: registry: no answer" in caplog.text
    monkeypatch.undo()


def test_a_registry_that_hangs_is_given_up(registry: Registry) -> None:
    answers = threading.Event()
    asked = AsyncRegistry(registry, 0.01)
    try:
        for _ in range(3):
            with pytest.raises(RegistryGone, match=r"no answer within 0\.01 s"):
                asked.ask_in_thread(lambda _: answers.wait())
    finally:
        answers.set()


def test_a_model_that_meshes_cannot_change_to_is_refused(registry: Registry, tmp_path: Path) -> None:
    done = tagae("models", "promote", "ffff", "--registry", registry.place)
    assert done.exit_code != 0
    assert "expected a version of the registry" in done.output
    with closing(local_store(tmp_path / "new")) as store:
        assert models_of(store, registry, sidecar="new").checkpoint("shop").digest == SHIPPED
