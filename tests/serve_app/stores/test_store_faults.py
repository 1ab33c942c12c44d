"""Faults of a store's file: damage, a full disk, a killed writer."""

import multiprocessing
import os
import random
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import CorruptState, StoreFull
from serve_app.stores.base import StoredMesh, StoredState
from serve_app.stores.sqlite import LocalStore
from serve_app.stores.sqlite_file import FILE_NAME
from tests.serve_app.stores.store_cases import append, at, is_step, random_bytes, snapshots, states


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(LocalStore(tmp_path / "stores")) as opened:
        yield opened


def _files_set_aside(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob(f"{FILE_NAME}.corrupt-*") if not p.name.endswith(("-wal", "-shm")))


def test_a_file_that_is_no_store_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database " * 1000)
    with closing(LocalStore(tmp_path)) as store:
        append(store, 1)
    (aside,) = _files_set_aside(tmp_path)
    assert aside.read_bytes() == b"not a database " * 1000
    assert "file is not a database" in caplog.text
    assert str(aside) in caplog.text
    with closing(LocalStore(tmp_path)) as store:
        assert store.load("prod") is not None  # only once
    assert _files_set_aside(tmp_path) == [aside]


def test_a_store_of_a_later_layout_is_set_aside_whole(store: LocalStore, tmp_path: Path) -> None:
    append(store, 1)
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as other:
        other.execute("PRAGMA user_version = 99")
    with closing(LocalStore(tmp_path / "stores")) as another:
        assert another.meshes() == []
        append(store, 1)  # the open store uses the new file
        assert [m.sequence for m in another.meshes()] == [1]
    (aside,) = _files_set_aside(tmp_path / "stores")
    with closing(sqlite3.connect(aside)) as kept:
        assert kept.execute("SELECT sequence FROM meshes").fetchall() == [(1,)]


def test_a_store_of_the_previous_layout_is_migrated(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as old:
        old.executescript(
            "CREATE TABLE clock (revision INTEGER NOT NULL); INSERT INTO clock VALUES (7);"
            "CREATE TABLE meshes (mesh TEXT PRIMARY KEY, revision INTEGER NOT NULL, sequence INTEGER NOT NULL,"
            " state BLOB NOT NULL);"
            "CREATE TABLE snapshots (mesh TEXT NOT NULL, sequence INTEGER NOT NULL, observed_at INTEGER NOT NULL,"
            " digest TEXT NOT NULL, verdict BLOB NOT NULL, snapshot BLOB NOT NULL, PRIMARY KEY (mesh, sequence));"
            "CREATE INDEX snapshots_by_time ON snapshots (mesh, observed_at); PRAGMA user_version = 1;"
        )
        instant = round(at(1).timestamp() * 1e6)
        old.execute("INSERT INTO meshes VALUES ('prod', 7, 1, ?)", (b"state 1",))
        old.execute(
            "INSERT INTO snapshots VALUES ('prod', 1, ?, 'digest 1', ?, ?)", (instant, b"verdict 1", b"snapshot 1")
        )
        old.commit()
    with closing(LocalStore(tmp_path)) as store:
        assert store.load("prod") == StoredMesh("prod", 7, 1, at(1), "digest 1", b"verdict 1")
        assert store.load_state("prod") == StoredState(7, 1, b"state 1", 7, ())
        assert snapshots(store) == [b"snapshot 1"]
        append(store, 2, is_step=True)
        assert states(store) == {1: b"state 1", 2: b"state 2"}
    assert _files_set_aside(tmp_path) == []


@pytest.mark.parametrize(
    ("column", "read"),
    [
        ("states SET state", lambda store: store.load_state("prod")),
        ("states SET sequence", lambda store: store.load_state("prod")),
        ("steps SET step", lambda store: store.load_state("prod")),
        ("steps SET sequence", lambda store: store.load_state("prod")),
        ("meshes SET sequence", lambda store: store.load("prod")),
        ("meshes SET sequence", lambda store: store.load_state("prod")),
        ("snapshots SET verdict", lambda store: store.load("prod")),
        ("snapshots SET digest", lambda store: store.verdict_at("prod", at(2))),
        ("snapshots SET verdict", lambda store: store.verdicts("prod", None, 9)),
        ("snapshots SET snapshot", lambda store: snapshots(store, "prod")),
    ],
)
def test_a_damaged_mesh_is_set_aside_and_other_meshes_still_work(
    store: LocalStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    column: str,
    read: Callable[[LocalStore], object],
) -> None:
    for mesh in ("prod", "other"):
        for sequence in (1, 2):
            append(store, sequence, mesh=mesh, is_step=is_step(sequence))
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        hand.execute(f"UPDATE {column} = CASE typeof({column.split()[-1]}) WHEN 'integer' THEN 3 ELSE x'00' END "
                     "WHERE mesh = 'prod'")  # fmt: skip
        hand.commit()
    with pytest.raises(CorruptState, match=r"prod.*set aside and starts learning again") as caught:
        read(store)
    assert caught.value.details["mesh"] == "prod"
    assert "mesh 'prod' was set aside" in caplog.text
    assert store.load("prod") is None
    assert [(m.mesh, m.sequence) for m in store.meshes()] == [("other", 2)]
    assert snapshots(store, "other") == [b"snapshot 1", b"snapshot 2"]
    append(store, 1)
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:  # no data was deleted
        assert hand.execute("SELECT count(*) FROM snapshots_aside").fetchone() == (2,)


def test_a_mesh_is_set_aside_on_request_unless_it_has_changed(store: LocalStore) -> None:
    revision = append(store, 1)
    newer = append(store, 2)
    assert not store.set_aside("prod", "of another schema", revision=revision)
    assert store.load("prod") is not None
    assert store.set_aside("prod", "of another schema", revision=newer)
    assert (store.load("prod"), snapshots(store, "prod")) == (None, [])


def test_a_list_of_meshes_survives_a_damaged_one(store: LocalStore, tmp_path: Path) -> None:
    for mesh in ("prod", "other"):
        append(store, 1, mesh=mesh)
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        hand.execute("UPDATE snapshots SET verdict = x'00' WHERE mesh = 'prod'")
        hand.commit()
    assert [m.mesh for m in store.meshes()] == ["other"]


def test_a_truncated_or_overwritten_file_never_gives_wrong_content(tmp_path: Path) -> None:
    """After damage anywhere, every mesh is as after some append, or missing. The store still accepts writes."""
    chosen = random.Random(0)
    with closing(LocalStore(tmp_path / "whole")) as store:
        for sequence in range(1, 9):
            for mesh in ("a", "b", "c"):
                state, snapshot = b"%d" % sequence * 9_000, b"%d" % sequence * 20_000
                append(store, sequence, mesh=mesh, state=state, snapshot=snapshot, is_step=is_step(sequence))
        for n in range(60):  # copied while the store is open, as after a crash: a file and its log
            torn = tmp_path / f"torn{n}"
            torn.mkdir()
            for suffix in ("", "-wal"):
                (torn / (FILE_NAME + suffix)).write_bytes((tmp_path / "whole" / (FILE_NAME + suffix)).read_bytes())
            if n % 3 == 0:  # all data is in the file
                with closing(sqlite3.connect(torn / FILE_NAME)) as db:
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            sized = [p for p in torn.iterdir() if p.stat().st_size and not p.name.endswith("-shm")]
            _damage(chosen.choice(sized), chosen)
            _expect_whole_or_gone(torn)


def _damage(path: Path, chosen: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = chosen.randrange(len(content))
    if chosen.random() < 0.5:
        del content[at:]
    else:
        content[at : at + 5000] = chosen.randbytes(len(content[at : at + 5000]))
    path.write_bytes(content)


def _expect_whole_or_gone(directory: Path) -> None:
    with closing(LocalStore(directory)) as store:
        for mesh in ("a", "b", "c"):
            for _ in range(
                4
            ):  # each refusal sets aside the damaged part; the state, the window and the file may all be damaged
                try:
                    _advance_checked(store, mesh)
                    break
                except CorruptState:
                    continue
            else:
                pytest.fail(f"{mesh} in {directory} is refused for ever")
        assert [m.mesh for m in store.meshes()] == ["a", "b", "c"]


def _advance_checked(store: LocalStore, mesh: str) -> None:
    found, window, stored = store.load(mesh), snapshots(store, mesh), states(store, mesh)
    if found is not None:
        assert max(stored) == found.sequence
        assert stored == {number: b"%d" % number * 9_000 for number in stored}
        assert found.verdict == b"verdict %d" % found.sequence
        assert window[-1] == b"%d" % found.sequence * 20_000
    append(store, found.sequence + 1 if found else 1, mesh=mesh)


def _fill_until_refused(directory: Path, results: Connection) -> None:
    """Fill a store in a process whose files are limited to 4 MB. The system refuses writes as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with closing(LocalStore(directory)) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 2**20, resource.RLIM_INFINITY))
        _append_until_full(store, results)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found = store.load("prod")
        assert found is not None
        append(store, found.sequence + 1, keep=1000)  # now there is room again
        results.send(found.sequence + 1)


def _append_until_full(store: LocalStore, results: Connection) -> None:
    sequence = 1
    try:
        while sequence < 1000:
            append(store, sequence, keep=1000, snapshot=random_bytes(sequence, 100_000))
            sequence += 1
    except StoreFull as error:
        found = store.load("prod")
        assert found is not None
        results.send((found.sequence == sequence - 1, len(snapshots(store, "prod")), sequence - 1, str(error)))


def test_a_full_disk_changes_nothing_and_is_still_read(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_fill_until_refused, args=(tmp_path, theirs))
    writer.start()
    theirs.close()
    same, kept, appended, text = ours.recv()
    after = ours.recv()
    writer.join()
    ours.close()
    assert (same, kept, after) == (True, appended, appended + 1)
    assert appended > 5
    assert "free space on the disk" in text
    assert _files_set_aside(tmp_path) == []


def test_the_full_error_of_sqlite_becomes_store_full(store: LocalStore) -> None:
    append(store, 1)
    store._file.connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreFull, match="nothing was changed"):
        append(store, 2, snapshot=random_bytes(2, 10**6))
    loaded = store.load("prod")
    assert loaded is not None
    assert loaded.sequence == 1


@pytest.mark.parametrize(("tidy", "most"), [(True, 24), (False, 40)])
def test_the_files_stay_bounded(store: LocalStore, tmp_path: Path, tidy: bool, most: int) -> None:
    def count_bytes() -> int:
        return sum(p.stat().st_size for p in (tmp_path / "stores").iterdir())

    for sequence in range(1, 3001):
        state, snapshot = random_bytes(sequence, 3000), random_bytes(-sequence, 8000)
        append(store, sequence, state=state, snapshot=snapshot, keep=20, is_step=is_step(sequence))
        if tidy:
            store.tidy()
        if sequence == 1500:
            before = count_bytes()
    assert count_bytes() <= before * 1.02
    assert count_bytes() < most * 2**20  # most of the size is the log, whose length does not depend on the meshes


def _append_for_ever(directory: Path, acknowledged: Connection) -> None:
    with closing(LocalStore(directory)) as store:
        for sequence in range(1, 1_000_000):
            state, snapshot = random_bytes(sequence, 320_000), random_bytes(-sequence, 40_000)
            revision = append(store, sequence, state=state, snapshot=snapshot, is_step=is_step(sequence))
            if sequence % 3 == 0:  # the last step before the next full state
                stored = store.load_state("prod")
                assert stored is not None
                position = {"sequence": sequence, "revision": revision, "state_revision": stored.state_revision}
                assert store.compact("prod", state, **position)
                store.tidy()
            acknowledged.send(sequence)


@pytest.mark.parametrize("seed", range(6))
def test_no_acknowledged_write_is_lost_when_the_writer_is_killed(tmp_path: Path, seed: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_append_for_ever, args=(tmp_path, theirs))
    writer.start()
    theirs.close()
    stop = random.Random(seed).randint(5, 60)
    last = 0
    try:
        while last < stop:
            last = ours.recv()
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        while True:  # writes that were acknowledged before the kill
            last = ours.recv()
    except EOFError:
        pass
    finally:
        writer.kill()
        writer.join()
        ours.close()
    with closing(LocalStore(tmp_path)) as store:
        mesh = store.load("prod")
        assert mesh is not None
        assert mesh.sequence in (last, last + 1)  # at most one write was done but not yet acknowledged
        stored = states(store)
        assert max(stored) == mesh.sequence
        assert stored == {number: random_bytes(number, 320_000) for number in stored}
        assert snapshots(store)[-1] == random_bytes(-mesh.sequence, 40_000)
        append(store, mesh.sequence + 1)
