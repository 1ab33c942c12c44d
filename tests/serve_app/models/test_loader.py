"""Weights in the memory of a process: loaded once, shared, and dropped when they were not used for the longest time."""

import threading
from dataclasses import replace

import pytest
import torch

from model.checkpoint import Checkpoint, load
from serve_app.api.schemas.models import ModelPin
from serve_app.errors import RegistryGone
from serve_app.exporter import PrometheusInstruments
from serve_app.models import loader as loading
from serve_app.models.loader import Loader, size_of
from tests.timing import PATIENCE_SECONDS

CHECKPOINT = load()
PINS = {name: ModelPin(version=name * 16, sha256=name * 64) for name in "abc"}


class Registry:
    """Counts loads, and gives each version weights of its own."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.is_away = False

    def __call__(self, pin: ModelPin) -> Checkpoint:
        self.read.append(pin.version)
        if self.is_away:
            raise RegistryGone("the registry is away")
        return replace(CHECKPOINT, digest=pin.version)


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def loader(registry: Registry) -> Loader:
    return Loader(registry, torch.device("cpu"), PrometheusInstruments())


def test_many_threads_load_a_version_once(registry: Registry, loader: Loader) -> None:
    assert loader.get("a" * 16) is None
    threads = [
        threading.Thread(target=lambda: loader.prepare([PINS["a"], PINS["b"]], PATIENCE_SECONDS)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(registry.read) == ["a" * 16, "b" * 16]
    assert loader.versions == {"a" * 16, "b" * 16}
    assert loader.size_bytes() == 2 * size_of(CHECKPOINT)


async def test_weights_that_were_not_used_for_the_longest_time_are_dropped(
    registry: Registry, loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "MAX_VERSIONS", 2)
    for name in "ab":
        await loader.load(PINS[name], PATIENCE_SECONDS)
    first = loader.get("a" * 16)
    await loader.load(PINS["c"], PATIENCE_SECONDS)
    assert loader.versions == {"a" * 16, "c" * 16}
    assert await loader.load(PINS["a"], PATIENCE_SECONDS) is first
    assert registry.read == ["a" * 16, "b" * 16, "c" * 16]


async def test_a_failed_load_leaves_what_is_there(registry: Registry, loader: Loader) -> None:
    await loader.load(PINS["a"], PATIENCE_SECONDS)
    registry.is_away = True
    with pytest.raises(RegistryGone):
        await loader.load(PINS["b"], PATIENCE_SECONDS)
    assert (loader.versions, loader.failed) == ({"a" * 16}, {"b" * 16})
    registry.is_away = False
    with pytest.raises(RegistryGone):
        await loader.load(PINS["b"], PATIENCE_SECONDS)
    assert (await loader.load(PINS["b"], PATIENCE_SECONDS, at_once=True)).digest == "b" * 16
    assert not loader.failed
