"""A local store without room: a full disk on which meshes can still be deleted."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import StoreFull
from serve_app.stores.sqlite.space import RESERVE_BYTES, RESERVE_NAME, pages
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import append
from tests.serve_app.stores.local import file_of, local_store


def fill(store: StateStore, mesh: str, *, other: StateStore | None = None, **content: bytes) -> int:
    """Append until there is no room, through both stores in turn. Return the number of the last stored snapshot."""
    stores = (store, other or store)
    for sequence in range(1, 10_000):
        try:
            drawn: dict[str, Any] = {"snapshot": os.urandom(100_000), **content}
            append(stores[sequence % 2], sequence, mesh=mesh, keep=10_000, **drawn)
        except StoreFull:
            return sequence - 1
    raise AssertionError("the disk never became full")


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def occupy(folder: Path) -> None:
    """Fill the rest of a disk, as another program would."""
    with open(folder / "ballast", "wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            assert free_bytes(folder) < 4096


def test_a_mesh_is_deleted_on_a_full_disk_and_pushes_to_others_work_again(disk: Path) -> None:
    with closing(local_store(disk / "state")) as store:
        append(store, 1, mesh="other")
        count = fill(store, "large")
        assert count > 20
        occupy(disk)
        with pytest.raises(StoreFull):
            append(store, 2, mesh="other", snapshot=os.urandom(100_000))
        assert store.delete("large")
        assert store.load("large") is None
        for sequence in range(2, 60):  # several times the size of the log
            append(store, sequence, mesh="other", snapshot=os.urandom(100_000), keep=5)
        assert len(list(store.window("other"))) == 5
        assert (disk / "state" / RESERVE_NAME).stat().st_size == RESERVE_BYTES  # it works again at the next full disk


def test_a_store_opened_on_a_full_disk_can_be_freed(disk: Path) -> None:
    """Then the log is empty and all space is in the file, so the file must shrink."""
    with closing(local_store(disk / "state")) as store:
        append(store, 1, mesh="other")
        fill(store, "large")
    occupy(disk)
    before = free_bytes(disk)
    with closing(local_store(disk / "state")) as store:
        assert store.delete("large")
        append(store, 2, mesh="other", snapshot=os.urandom(100_000))
    assert free_bytes(disk) > before + 2**20


def test_another_session_can_use_the_space_of_a_deleted_mesh(disk: Path) -> None:
    """The deletion needs no reserve here, because the log is reused from its start. But the disk is still full."""
    large: dict[str, Any] = {"state": os.urandom(1_000_000), "snapshot": os.urandom(80_000)}
    with closing(local_store(disk / "state")) as first, closing(local_store(disk / "state")) as second:
        assert fill(first, "large", other=second, **large) > 3
        assert first.delete("large")
        for sequence in range(1, 20):
            append(second, sequence, mesh="another", **large)


def test_a_disk_filled_by_one_mesh_after_the_other_can_be_freed_each_time(disk: Path) -> None:
    with closing(local_store(disk / "state")) as store:
        counts = []
        for mesh in ("a", "b", "c", "d"):
            counts.append(fill(store, mesh))
            assert store.delete(mesh)
    assert min(counts) > 0.8 * max(counts)  # no space is lost


def test_many_small_meshes_are_deleted_one_by_one_on_a_full_disk(disk: Path) -> None:
    with closing(local_store(disk / "state")) as store:
        for number in range(10_000):
            try:
                append(store, 1, mesh=f"mesh-{number}", snapshot=os.urandom(30_000))
            except StoreFull:
                break
        occupy(disk)
        names = [mesh.mesh for mesh in store.meshes()]
        assert len(names) > 30
        for name in names:
            assert store.delete(name)
        assert store.meshes() == []


def test_a_mesh_is_deleted_when_sqlite_may_take_no_more_pages(tmp_path: Path) -> None:
    with closing(local_store(tmp_path)) as store:
        append(store, 1, mesh="other")
        file_of(store).connection.execute("PRAGMA max_page_count = 60")
        assert fill(store, "large") > 3
        assert store.delete("large")
        append(store, 2, mesh="other", snapshot=os.urandom(300_000))


def test_the_file_shrinks_only_if_space_is_needed(tmp_path: Path) -> None:
    """On a disk with space a deletion moves no pages, because the next snapshots use the free ones."""
    with closing(local_store(tmp_path)) as store:
        append(store, 1, mesh="large", snapshot=os.urandom(10**6))
        append(store, 1, mesh="other")
        before = pages(file_of(store).connection, "page_count")
        assert store.delete("large")
        assert pages(file_of(store).connection, "page_count") == before
        assert pages(file_of(store).connection, "freelist_count") > 60


def test_a_deletion_also_deletes_data_that_was_set_aside(tmp_path: Path) -> None:
    with closing(local_store(tmp_path)) as store:
        revision = append(store, 1)
        assert store.set_aside("prod", "for this test", revision=revision)
        assert store.delete("prod"), "it was there"
        assert not store.delete("prod")
        append(store, 1)
        assert store.delete("prod")
        assert file_of(store).connection.execute("SELECT key FROM rows").fetchall() == [("layout",)]
