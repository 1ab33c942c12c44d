"""The memory of weights: loaded once, shared, and dropped by value."""

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint import Checkpoint, load
from serve_app.api.schemas.models import ModelPin
from serve_app.errors import RegistryGone
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import MODEL_EVICTIONS, MODEL_LOADS, MODEL_LOOKUPS, Metric
from serve_app.models.weights_memory import HALF_LIFE_SECONDS, CpuMemory, WeightsMemory, memory_of, size_of

CHECKPOINT = load()
SIZE = size_of(CHECKPOINT)
PINS = {name: ModelPin(version=name * 16, sha256=name * 64) for name in "abcdef"}


class Loads:
    """Counts loads, and gives each version weights of its own."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.fails = False

    def __call__(self, pin: ModelPin) -> Checkpoint:
        self.versions.append(pin.version)
        if self.fails:
            raise RegistryGone("the registry is away")
        return replace(CHECKPOINT, digest=pin.version)


class Small:
    """A GPU of which only a part is free."""

    def __init__(self, free: float) -> None:
        self.free, self.released = free, 0

    def free_bytes(self) -> float:
        return self.free

    def release(self) -> None:
        self.released += 1
        self.free += SIZE


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Counts(PrometheusInstruments):
    """Instruments that remember what they counted."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[tuple[str, str]] = Counter()

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        self.of[metric.name, labels.get("outcome", "")] += round(amount)


def memory(
    loads: Loads, fits: float, clock: Time, device_memory: Small | None = None, counts: Counts | None = None
) -> WeightsMemory:
    device = torch.device("cpu")
    return WeightsMemory(loads, round(fits * SIZE), device, counts or Counts(), device_memory or CpuMemory(), clock)


def test_weights_are_loaded_once_and_shared() -> None:
    loads, counts = Loads(), Counts()
    held = memory(loads, 9, Time(), counts=counts)
    assert held.get("a" * 16) is None
    first = held.load(PINS["a"])
    assert held.load(PINS["a"]) is first is held.get("a" * 16)
    assert loads.versions == ["a" * 16]
    assert held.versions == {"a" * 16}
    assert held.size_bytes() == SIZE
    assert counts.of == {
        (MODEL_LOADS.name, "loaded"): 1,
        (MODEL_LOOKUPS.name, "miss"): 1,
        (MODEL_LOOKUPS.name, "hit"): 1,
    }


def test_many_threads_load_a_version_once() -> None:
    loads, found = Loads(), []
    held = memory(loads, 9, Time())
    threads = [threading.Thread(target=lambda: found.append(held.load(PINS["a"]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1
    assert loads.versions == ["a" * 16]


def test_the_weights_with_the_fewest_requests_per_byte_are_dropped() -> None:
    counts = Counts()
    held = memory(Loads(), 2.5, Time(), counts=counts)
    for name, requests in (("a", 5), ("b", 2)):
        held.load(PINS[name])
        for _ in range(requests):
            held.get(name * 16)
    held.load(PINS["c"])
    assert held.versions == {"a" * 16, "c" * 16}
    assert counts.of[MODEL_EVICTIONS.name, ""] == 1


def test_requests_of_meshes_with_a_high_priority_count_more() -> None:
    held = memory(Loads(), 2.5, Time())
    held.load(PINS["a"], 4.0)
    held.load(PINS["b"], 1.0)
    held.get("b" * 16, 1.0)
    held.load(PINS["c"])
    assert held.versions == {"a" * 16, "c" * 16}


def test_old_requests_count_less() -> None:
    clock = Time()
    held = memory(Loads(), 2.5, clock)
    held.load(PINS["a"])
    for _ in range(7):
        held.get("a" * 16)
    clock.now += 4 * HALF_LIFE_SECONDS
    held.load(PINS["b"])
    held.load(PINS["c"])
    assert held.versions == {"b" * 16, "c" * 16}


def test_weights_beyond_the_budget_are_held_alone() -> None:
    held = memory(Loads(), 0.5, Time())
    held.load(PINS["a"])
    held.load(PINS["b"])
    assert held.versions == {"b" * 16}


def test_on_a_gpu_what_is_really_free_counts_and_dropped_memory_is_given_back() -> None:
    gpu = Small(free=2.5 * SIZE)
    held = memory(Loads(), 100, Time(), gpu)
    for name in "ab":
        held.load(PINS[name])
        gpu.free -= SIZE
    held.load(PINS["c"])
    assert gpu.released == 1
    assert len(held.versions) == 2
    assert "c" * 16 in held.versions


def test_a_failed_load_leaves_what_is_there() -> None:
    loads, counts = Loads(), Counts()
    held = memory(loads, 9, Time(), counts=counts)
    held.load(PINS["a"])
    loads.fails = True
    with pytest.raises(RegistryGone):
        held.load(PINS["b"])
    assert held.versions == {"a" * 16}
    assert counts.of[MODEL_LOADS.name, "failed"] == 1
    loads.fails = False
    assert held.load(PINS["b"]).digest == "b" * 16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_real_gpu_the_memory_of_dropped_weights_is_free_again(weights: Path) -> None:
    device = torch.device("cuda")
    place = memory_of(device)
    held = WeightsMemory(lambda pin: load(weights), 1, device, PrometheusInstruments())
    held.load(PINS["a"])
    reserved = torch.cuda.memory_reserved(device)
    for name in "bcdef":
        held.load(PINS[name])
    assert torch.cuda.memory_reserved(device) <= reserved
    assert 0 < place.free_bytes() < torch.cuda.get_device_properties(device).total_memory
