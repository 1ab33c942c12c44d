"""The limit on the number of meshes, in every store."""

import multiprocessing
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any

import pytest

from serve_app.errors import TooManyMeshes
from serve_app.settings import StoreSettings
from serve_app.stores.base import MeshLimit
from serve_app.stores.opening import open_store
from tests.serve_app.stores.store_cases import append


def test_a_mesh_beyond_the_limit_is_refused_and_changes_nothing(place: StoreSettings) -> None:
    with closing(open_store(place, limit=MeshLimit(2))) as store:
        append(store, 1, mesh="a")
        store.replace("b", b"baseline", revision=0)
        creations: list[Callable[[], Any]] = [
            lambda: append(store, 1, mesh="c"),
            lambda: store.replace("c", b"baseline", revision=0),
            lambda: store.check_room("c"),
        ]
        for create in creations:
            with pytest.raises(
                TooManyMeshes, match=r"'c'.*at most 2 .*DELETE .*limits\.max_meshes.*evict_idle_seconds"
            ):
                create()
        assert [one.mesh for one in store.meshes()] == ["a", "b"]
        append(store, 2, mesh="a")  # existing meshes still accept snapshots
        append(store, 1, mesh="b")
        store.check_room("a")
        store.delete("a")
        store.check_room("c")
        append(store, 1, mesh="c")


def test_a_limit_below_the_number_of_stored_meshes_refuses_new_meshes_only(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        for mesh in ("a", "b", "c"):
            append(store, 1, mesh=mesh)
    with closing(open_store(place, limit=MeshLimit(1))) as store:
        append(store, 2, mesh="c")
        with pytest.raises(TooManyMeshes):
            append(store, 1, mesh="d")


def test_the_mesh_that_was_idle_longest_is_evicted(place: StoreSettings, caplog: pytest.LogCaptureFixture) -> None:
    evicted: list[str] = []
    with closing(open_store(place, limit=MeshLimit(3, 1e-6), on_evicted=evicted.append)) as store:
        for mesh in ("a", "b", "c"):
            append(store, 1, mesh=mesh)
        append(store, 2, mesh="a")
        append(store, 1, mesh="d")
        assert evicted == ["b"]
        assert [one.mesh for one in store.meshes()] == ["a", "c", "d"]
        assert list(store.window("b")) == []
        assert "'b' was idle" in caplog.text
        append(store, 1, mesh="b")  # as a new mesh
        assert evicted == ["b", "c"]


def test_a_mesh_that_was_idle_too_briefly_stays(place: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_store(place, limit=MeshLimit(1, 3600.0))) as store:
        append(store, 1, mesh="a")
        with pytest.raises(TooManyMeshes, match=r"lower limits\.evict_idle_seconds"):
            append(store, 1, mesh="b")
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 7200)
        append(store, 1, mesh="b")
        assert [one.mesh for one in store.meshes()] == ["b"]


def _create_meshes(place: StoreSettings, prefix: str, start: Any, results: Connection) -> None:
    created = 0
    with closing(open_store(place, limit=MeshLimit(25))) as store:
        start.wait()
        for number in range(25):
            try:
                append(store, 1, mesh=f"{prefix}-{number}")
                created += 1
            except TooManyMeshes:
                break
    results.send(created)


def test_two_sessions_that_create_meshes_at_once_stay_within_the_limit(place: StoreSettings) -> None:
    context = multiprocessing.get_context("spawn")
    start, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_create_meshes, args=(place, prefix, start, theirs))
        for prefix, (_, theirs) in zip("ab", pipes, strict=True)
    ]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        theirs.close()
    created = [ours.recv() for ours, _ in pipes]
    for process, (ours, _) in zip(processes, pipes, strict=True):
        process.join()
        ours.close()
    with closing(open_store(place)) as store:
        assert len(store.meshes()) == sum(created) == 25
