"""The file of a local store: damage, a full disk, a killed writer, its log, and processes that wait."""

import multiprocessing
import random
import resource
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import CorruptState, Overloaded, StoreFull
from serve_app.stores import rows
from serve_app.stores.records import StoredDocument
from serve_app.stores.row_store import Change
from serve_app.stores.sqlite.file import FILE_NAME
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import (
    LIMIT,
    append,
    at,
    chunks,
    contents,
    incident,
    incident_ids,
    is_step,
    random_bytes,
    snapshots,
    states,
    write_history,
)
from tests.serve_app.stores.local import file_of, local_store


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(local_store(tmp_path / "stores", archive=LIMIT)) as opened:
        yield opened


def _files_set_aside(directory: Path) -> list[Path]:
    return sorted(p for p in directory.glob(f"{FILE_NAME}.corrupt-*") if not p.name.endswith(("-wal", "-shm")))


def test_a_file_that_is_no_store_is_renamed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database " * 1000)
    with closing(local_store(tmp_path)) as store:
        append(store, 1)
    (aside,) = _files_set_aside(tmp_path)
    assert aside.read_bytes() == b"not a database " * 1000
    assert "file is not a database" in caplog.text
    assert str(aside) in caplog.text
    with closing(local_store(tmp_path)) as store:
        assert store.load("prod") is not None  # only once
    assert _files_set_aside(tmp_path) == [aside]


def _read_all(store: StateStore) -> None:
    """Read everything that a push, the page and the notifier read of a mesh."""
    contents(store)
    store.verdict_at("prod", at(2))
    store.history("prod", list(store.history_sizes("prod")))
    store.verify("prod")


@pytest.mark.parametrize("change", ["value = x'00'", "value = 'a text'", "key = key || 'x'"])
@pytest.mark.parametrize("kind", rows.KINDS)
def test_a_damaged_row_of_any_kind_stops_no_mesh(store: StateStore, tmp_path: Path, kind: str, change: str) -> None:
    for sequence in (1, 2):
        append(store, sequence, is_step=is_step(sequence), incidents=(incident(sequence),))
        assert write_history(store, chunks(sequence))
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        assert hand.execute(f"UPDATE rows SET {change} WHERE space = 'prod' AND key LIKE '{kind}%'").rowcount >= 1
        hand.commit()
    with suppress(CorruptState) if kind in rows.LIVE else nullcontext():
        _read_all(store)
    stored = store.load("prod")
    assert (stored is None) is (kind in rows.LIVE)
    append(store, 1 if stored is None else 3)
    _read_all(store)


DAMAGE: list[tuple[str, str, Callable[[StateStore], object]]] = [
    *(("state", change, lambda store: store.load_state("prod")) for change in ("value = x'00'", "key = 'other'")),
    *(
        ("full", change, lambda store: store.load_state("prod"))
        for change in ("value = x'00'", "value = CAST('3 3' AS BLOB)")
    ),
    *(("step/%", change, lambda store: store.load_state("prod")) for change in ("value = x'00'", "key = 'step/3'")),
    *(
        ("head", "value = '7 3 x'", read)
        for read in (lambda store: store.load("prod"), lambda store: store.load_state("prod"))
    ),
    ("head", "value = 'a text'", lambda store: store.load("prod")),
    ("verdict/%/000000000002/%", "value = x'00'", lambda store: store.load("prod")),
    ("verdict/%/000000000002/%", "key = 'verdict/3'", lambda store: store.load("prod")),
    ("verdict/%/000000000002/%", "key = key || '3'", lambda store: store.verdict_at("prod", at(2))),
    ("verdict/%/000000000001/%", "value = x'00'", lambda store: store.verdicts("prod", None, 9)),
    ("snapshot/%1", "value = x'00'", lambda store: snapshots(store, "prod")),
    ("snapshot/%1", "value = 3", lambda store: snapshots(store, "prod")),
    ("snapshot/%2", "key = 'other'", lambda store: snapshots(store, "prod")),
    ("snapshot/%1", "value = x'00'", lambda store: store.verify("prod")),
]


@pytest.mark.parametrize(("key", "change", "read"), DAMAGE)
def test_a_damaged_mesh_is_set_aside_and_other_meshes_still_work(
    store: StateStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    change: str,
    read: Callable[[StateStore], object],
) -> None:
    for mesh in ("prod", "other"):
        for sequence in (1, 2):
            append(store, sequence, mesh=mesh, is_step=is_step(sequence))
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        assert hand.execute(f"UPDATE rows SET {change} WHERE space = 'prod' AND key LIKE '{key}'").rowcount == 1
        hand.commit()
    with pytest.raises(CorruptState, match=r"prod.*set aside and starts learning again") as caught:
        read(store)
    assert caught.value.details["mesh"] == "prod"
    assert "mesh 'prod' was set aside" in caplog.text
    assert store.load("prod") is None
    assert [(m.mesh, m.sequence) for m in store.meshes()] == [("other", 2)]
    assert snapshots(store, "other") == [b"snapshot 1", b"snapshot 2"]
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:  # no data was deleted
        count = hand.execute("SELECT count(*) FROM rows WHERE key LIKE 'aside/%'").fetchone()
        assert count >= (7,)
    append(store, 1)
    assert snapshots(store) == [b"snapshot 1"]


def test_a_mesh_is_set_aside_on_request_unless_it_has_changed(store: StateStore) -> None:
    revision = append(store, 1)
    newer = append(store, 2)
    assert not store.set_aside("prod", "of another schema", revision=revision)
    assert store.load("prod") is not None
    assert store.set_aside("prod", "of another schema", revision=newer)
    assert (store.load("prod"), snapshots(store, "prod")) == (None, [])


def test_a_list_of_meshes_survives_a_damaged_one(store: StateStore, tmp_path: Path) -> None:
    for mesh in ("prod", "other"):
        append(store, 1, mesh=mesh)
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        hand.execute("UPDATE rows SET value = x'00' WHERE space = 'prod' AND key LIKE 'verdict/%'")
        hand.commit()
    assert [m.mesh for m in store.meshes()] == ["other"]


def test_damaged_incidents_are_left_out(store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(store, 1, incidents=tuple(incident(number) for number in range(1, 5)))
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        hand.execute("UPDATE rows SET value = x'00' WHERE key = 'incident/incident-1'")
        hand.execute(
            "UPDATE rows SET value = CAST(replace(value, 'slow', 'gone') AS BLOB) WHERE key = 'index/incident-2'"
        )
        hand.execute("UPDATE rows SET value = x'00' WHERE key = 'details/incident-3'")
        hand.commit()
    assert incident_ids(store) == ["incident-4", "incident-3"]
    assert [store.incident("prod", f"incident-{number}") for number in (1, 2, 3)] == [None, None, None]
    assert "incident 'incident-1' is damaged" in caplog.text
    assert store.load("prod") is not None


def test_the_archive_survives_damage_elsewhere_in_the_file(tmp_path: Path) -> None:
    with closing(local_store(tmp_path, archive=LIMIT)) as store:
        append(store, 1, incidents=(incident(1),))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as hand:
        hand.executescript("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'rows_by_key'")
    with closing(local_store(tmp_path, archive=LIMIT)) as store:
        assert store.incident("prod", "incident-1") == incident(1)
        append(store, 2)
    assert list(tmp_path.glob(f"{FILE_NAME}.corrupt-*"))


def test_a_truncated_or_overwritten_file_never_gives_wrong_content(tmp_path: Path) -> None:
    """After damage anywhere, every mesh is as after some append, or missing. The store still accepts writes."""
    chosen = random.Random(0)
    with closing(local_store(tmp_path / "whole")) as store:
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
    with closing(local_store(directory)) as store:
        for mesh in ("a", "b", "c"):
            for _ in range(4):  # each refusal sets aside one damaged part: of the state, the window or the file
                try:
                    _advance_checked(store, mesh)
                    break
                except CorruptState:
                    continue
            else:
                pytest.fail(f"{mesh} in {directory} is refused for ever")
        assert [m.mesh for m in store.meshes()] == ["a", "b", "c"]


def _advance_checked(store: StateStore, mesh: str) -> None:
    mesh_now, window, stored = store.load(mesh), snapshots(store, mesh), states(store, mesh)
    if mesh_now is not None:
        assert max(stored) == mesh_now.sequence
        assert stored == {number: b"%d" % number * 9_000 for number in stored}
        assert mesh_now.verdict == b"verdict %d" % mesh_now.sequence
        assert window[-1] == b"%d" % mesh_now.sequence * 20_000
    append(store, mesh_now.sequence + 1 if mesh_now else 1, mesh=mesh)


def _fill_until_refused(directory: Path, results: Connection) -> None:
    """Fill a store in a process whose files are limited to 4 MB. The system refuses writes as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with closing(local_store(directory)) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 2**20, resource.RLIM_INFINITY))
        _append_until_full(store, results)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        newest = store.load("prod")
        assert newest is not None
        append(store, newest.sequence + 1, keep=1000)  # now there is room again
        results.send(newest.sequence + 1)


def _append_until_full(store: StateStore, results: Connection) -> None:
    sequence = 1
    try:
        while sequence < 1000:
            append(store, sequence, keep=1000, snapshot=random_bytes(sequence, 100_000))
            sequence += 1
    except StoreFull as error:
        newest = store.load("prod")
        assert newest is not None
        results.send((newest.sequence == sequence - 1, len(snapshots(store, "prod")), sequence - 1, str(error)))


def test_a_full_disk_changes_nothing_and_is_still_read(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_fill_until_refused, args=(tmp_path, theirs))
    writer.start()
    theirs.close()
    same, count, appended, text = ours.recv()
    after = ours.recv()
    writer.join()
    ours.close()
    assert (same, count, after) == (True, appended, appended + 1)
    assert appended > 5
    assert "free space on the disk" in text
    assert _files_set_aside(tmp_path) == []


def test_the_full_error_of_sqlite_becomes_store_full(store: StateStore) -> None:
    append(store, 1)
    file_of(store).connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(StoreFull, match="nothing was changed"):
        append(store, 2, snapshot=random_bytes(2, 10**6))
    loaded = store.load("prod")
    assert loaded is not None
    assert loaded.sequence == 1


@pytest.mark.parametrize(("tidy", "most"), [(True, 24), (False, 40)])
def test_the_files_stay_bounded(store: StateStore, tmp_path: Path, tidy: bool, most: int) -> None:
    def count_bytes() -> int:
        return sum(p.stat().st_size for p in (tmp_path / "stores").iterdir())

    for sequence in range(1, 3001):
        state, snapshot = random_bytes(sequence, 3000), random_bytes(-sequence, 8000)
        append(store, sequence, state=state, snapshot=snapshot, keep=20, is_step=is_step(sequence))
        if tidy:
            store.tidy()
        if sequence == 1500:
            before = (tmp_path / "stores" / FILE_NAME).stat().st_size
    assert (tmp_path / "stores" / FILE_NAME).stat().st_size <= before * 1.02
    assert count_bytes() < most * 2**20  # most of the size is the log, whose length does not depend on the meshes


def test_the_log_is_moved_into_the_file_between_writes(store: StateStore, tmp_path: Path) -> None:
    log = tmp_path / "stores" / f"{FILE_NAME}-wal"
    for sequence in range(1, 21):
        append(store, sequence, snapshot=random_bytes(sequence, 2**20))
    assert log.stat().st_size > 2**24
    store.tidy()
    append(store, 21, snapshot=random_bytes(21, 2**20))  # begins the log again, and truncates it
    assert log.stat().st_size <= 2**24
    store.tidy()
    assert states(store) == {21: b"state 21"}


def test_a_short_log_is_left_alone(store: StateStore, tmp_path: Path) -> None:
    """A log that was once long keeps the size to which it was truncated."""
    file = tmp_path / "stores" / FILE_NAME
    for sequence in range(1, 21):
        append(store, sequence, snapshot=random_bytes(sequence, 2**20))
    store.tidy()
    append(store, 21, snapshot=random_bytes(21, 2**20))
    before = file.read_bytes()
    for sequence in range(22, 25):
        append(store, sequence)
        store.tidy()
    assert file.read_bytes() == before, "nothing was moved"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    assert file.read_bytes() != before, "though there was something to move"


def test_a_store_without_its_files_is_not_tidied(store: StateStore, tmp_path: Path) -> None:
    append(store, 1)
    for path in (tmp_path / "stores").glob(f"{FILE_NAME}*"):
        path.rename(tmp_path / path.name)
    store.tidy()
    assert not list((tmp_path / "stores").glob(f"{FILE_NAME}*"))


def test_a_locked_store_reports_when_to_retry(store: StateStore, tmp_path: Path) -> None:
    with (
        closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME, isolation_level=None)) as other,
        closing(local_store(tmp_path / "stores", busy_timeout_seconds=0.01)) as impatient,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Overloaded, match="try again") as caught:
            append(impatient, 1)
        assert caught.value.details["retry_after_seconds"] > 0
        other.execute("ROLLBACK")
        append(impatient, 1)


def test_a_damaged_document_that_another_process_replaced_stays(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = store.write_document("rollout", b"one", revision=0)
    with closing(sqlite3.connect(tmp_path / "stores" / FILE_NAME)) as hand:
        hand.execute("UPDATE rows SET value = x'00' WHERE key LIKE '%document%rollout'")
        hand.commit()
    write = store.database.write

    def write_after_another(space: str, change: Change) -> bool:
        monkeypatch.setattr(store.database, "write", write)
        store.write_document("rollout", b"two", revision=damaged)
        return write(space, change)

    monkeypatch.setattr(store.database, "write", write_after_another)
    assert store.read_document("rollout") == StoredDocument()
    assert store.read_document("rollout").content == b"two"
