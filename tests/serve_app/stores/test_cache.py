"""Which meshes a session keeps in memory."""

import gc
import tracemalloc
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from model.drift.sketch import DriftSketch
from model.incidents.memory import IncidentMemory
from model.state.few_requests import Counts
from model.state.mesh_state import MeshState
from model.state.topology import Topology
from model.state.traffic import EntryTraffic
from serve_app.exporter import PrometheusInstruments
from serve_app.pipeline import Mesh
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.cache import SNAPSHOTS_PER_ESTIMATE, CachedMesh, MeshCache, size_bytes
from serve_app.stores.opening import open_store
from tests.builders import Clock
from tests.serve_app.stores.test_steps import Session, busy_mesh


@dataclass(slots=True)
class Fleet:
    """Meshes that push in turn."""

    cache: MeshCache
    clock: Clock
    hits: dict[str, int] = field(default_factory=dict)

    def push(self, *names: str, interval: float = 15.0, size: int = 1000) -> None:
        for name in names:
            self.clock.now += interval / len(names)
            self.hits[name] = self.hits.get(name, 0) + (self.cache.look_up(name) is not None)
            self.cache.put(name, mesh(size, interval))


def mesh(services: int, interval: float = 15.0) -> CachedMesh:
    state = MeshState(node_absent=np.zeros(services, np.int32), interval_seconds=interval)
    return CachedMesh(Mesh(state), 1)


def fleet(room: float) -> Fleet:
    clock, unit = Clock(), size_bytes(mesh(1000).mesh)
    return Fleet(MeshCache(round(room * unit), clock=clock), clock)


def names(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def test_the_size_of_a_mesh_is_the_memory_that_it_takes(tmp_path: Path) -> None:
    with closing(open_store(StoreSettings(path=tmp_path))) as store:
        session = Session(store, Settings())
        for snapshot in busy_mesh(40):
            session.push(snapshot)
        other = Session(store, Settings())
        tracemalloc.start()
        try:
            loaded = other.meshes.get(session.mesh).mesh
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert 0.9 <= size_bytes(loaded) / taken <= 1.2


def test_the_size_of_a_mesh_counts_every_part_of_it() -> None:
    parts: dict[str, Any] = {
        "node_counts": Counts.none(1000),
        "drift": DriftSketch(recent=np.zeros(10**5, np.float16)),
        "traffic": EntryTraffic(level=np.zeros(10**5, np.float32)),
        "topology": Topology(9, np.zeros((2, 10**5), np.int64), np.zeros(10**5, bool), np.zeros(10**5, bool)),
        "memory": IncidentMemory(scores=tuple(map(float, range(10**4)))),
    }
    for name, part in parts.items():
        assert size_bytes(Mesh(replace(MeshState(), **{name: part}))) > size_bytes(Mesh()) + 60_000, name


def test_the_size_of_a_mesh_is_estimated_again_now_and_then() -> None:
    cache, meshes, sizes = MeshCache(2**30), [], []
    for sequence in range(1, SNAPSHOTS_PER_ESTIMATE + 1):
        grown = mesh(1000 * sequence)
        meshes.append(replace(grown, mesh=replace(grown.mesh, state=replace(grown.mesh.state, sequence=sequence))))
        cache.put("shop", meshes[-1])
        sizes.append(cache.bytes)
    assert sizes[0] == sizes[-2] == size_bytes(meshes[0].mesh)
    assert sizes[-1] == size_bytes(meshes[-1].mesh)


def test_meshes_that_push_in_turn_do_not_displace_each_other() -> None:
    ours = fleet(8)
    for _ in range(20):
        ours.push(*names(10))
    assert sum(hits == 19 for hits in ours.hits.values()) >= 8  # each of these was read from the store once
    assert ours.cache.bytes <= 8 * size_bytes(mesh(1000).mesh)


def test_a_mesh_whose_snapshots_stop_makes_room() -> None:
    ours = fleet(4)
    ours.push(*names(5))
    for _ in range(10):
        ours.push("m1", "m2", "m3", "m4")
    assert ours.cache.get("m0") is None
    assert all(ours.cache.get(name) is not None for name in ("m1", "m2", "m3", "m4"))


def test_a_mesh_that_pushes_more_often_stays() -> None:
    ours = fleet(1)
    for _ in range(5):
        ours.push("slow", interval=60)
        ours.push("fast", interval=15)
    assert ours.cache.get("fast") is not None
    assert ours.hits == {"slow": 0, "fast": 4}


def test_a_mesh_that_is_cheap_to_read_for_its_size_goes_first() -> None:
    large, small = (size_bytes(mesh(size).mesh) for size in (9000, 1000))
    ours = fleet(large / small + 2.5)
    ours.push("large", size=9000)
    ours.push(*names(3))
    assert ours.cache.get("large") is None
    assert all(ours.cache.get(name) is not None for name in names(3))


def test_the_last_mesh_stays_although_it_is_beyond_the_budget() -> None:
    ours = fleet(0.5)
    ours.push("m0")
    assert ours.cache.get("m0") is not None
    ours.cache.drop("m0")
    ours.cache.drop("m0")
    assert (ours.cache.bytes, len(ours.cache)) == (0, 0)


def test_hits_misses_and_evictions_are_counted() -> None:
    instruments, unit = PrometheusInstruments(), size_bytes(mesh(1000).mesh)
    cache = MeshCache(unit, instruments=instruments)
    for name in ("a", "a", "b"):
        cache.look_up(name)
        cache.put(name, mesh(1000))
    text = instruments.text().decode()
    assert 'tagae_session_lookups_total{outcome="hit"} 1.0' in text
    assert 'tagae_session_lookups_total{outcome="miss"} 2.0' in text
    assert "tagae_session_evictions_total 1.0" in text


def test_an_offered_mesh_displaces_no_other_and_replaces_nothing() -> None:
    cache = fleet(2).cache
    for name in names(3):
        cache.offer(name, mesh(1000))
    assert [cache.get(name) is not None for name in names(3)] == [True, True, False]
    newer = cache.get("m0")
    cache.offer("m0", mesh(10))
    assert cache.get("m0") is newer


def test_a_mesh_larger_than_the_budget_is_kept_alone() -> None:
    cache = fleet(0.5).cache
    cache.offer("m0", mesh(1000))
    assert cache.get("m0") is not None
