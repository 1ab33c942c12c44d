"""A store whose files disappear: no lost write is acknowledged, and no empty store replaces the files."""

import logging
import multiprocessing
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import StoreGone
from serve_app.stores.sqlite import store as sqlite
from serve_app.stores.sqlite.file import FILE_NAME, MARKER_NAME, SUFFIXES, find_files
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import append, at
from tests.serve_app.stores.local import local_store

RUN = "session_1"


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(local_store(tmp_path / "stores", run=RUN, max_meshes=9)) as opened:
        yield opened


def _move_away(folder: Path) -> Path:
    away = folder.with_name("away")
    away.mkdir()
    for path in folder.iterdir():
        path.rename(away / path.name)
    return away


def _delete_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _delete_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _delete_only(suffix: str) -> Callable[[Path], None]:
    return lambda folder: (folder / (FILE_NAME + suffix)).unlink()


def _put_a_backup(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as db, closing(sqlite3.connect(folder / "backup")) as backup:
        db.backup(backup)
    (folder / "backup").rename(folder / FILE_NAME)


LOSSES = [_delete_all, _delete_folder, *map(_delete_only, SUFFIXES), _put_a_backup]
LOSS_NAMES = ["all files", "folder", "database", "log", "index", "replaced"]


@pytest.mark.parametrize("lose", LOSSES, ids=LOSS_NAMES)
def test_every_read_and_write_reports_that_the_store_is_missing(
    store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, lose: Callable[[Path], None]
) -> None:
    append(store, 1)
    lose(tmp_path / "stores")
    before = sorted((tmp_path / "stores").glob("*")), find_files(str(tmp_path / "stores" / FILE_NAME))
    calls: list[Callable[[], Any]] = [
        lambda: append(store, 2),
        lambda: append(store, 1, mesh="another"),
        lambda: store.load("prod"),
        lambda: store.replace("prod", b"", revision=1),
        lambda: store.verdict_at("prod", at(1)),
        lambda: store.verdicts("prod", None, 9),
        lambda: list(store.window("prod")),
        lambda: store.meshes(),
        lambda: store.set_aside("prod", "", revision=1),
        lambda: store.delete("prod"),
        lambda: store.check_room("prod"),
    ]
    for call in calls:
        with pytest.raises(StoreGone, match=r"expected the files that were opened.*put the same files back.*restart"):
            call()
    remaining = [path for path in sorted((tmp_path / "stores").glob("*")) if path.name != MARKER_NAME]
    assert remaining == [path for path in before[0] if path.name != MARKER_NAME]  # no file was created
    assert find_files(str(tmp_path / "stores" / FILE_NAME)) == before[1]
    assert (
        len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    )  # one log line, not one for each request


def test_the_same_files_are_used_again_when_they_are_back(
    store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    revision = append(store, 1)
    away = _move_away(tmp_path / "stores")
    with pytest.raises(StoreGone):
        append(store, 2)
    for path in away.iterdir():
        path.rename(tmp_path / "stores" / path.name)
    loaded = store.load("prod")
    assert loaded is not None
    assert (loaded.sequence, loaded.revision) == (1, revision)
    append(store, 2)
    assert "its files are back" in caplog.text
    with closing(local_store(tmp_path / "stores")) as other:
        assert [mesh.sequence for mesh in other.meshes()] == [2]


@pytest.mark.parametrize("lose", [_delete_all, _delete_only("")], ids=["all files", "database"])
def test_a_replica_of_the_same_run_does_not_create_an_empty_store(
    store: StateStore, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    append(store, 1)
    lose(tmp_path / "stores")
    with pytest.raises(StoreGone):
        store.load("prod")
    with pytest.raises(StoreGone, match=r"this run of the service had open.*restart the service"):
        local_store(tmp_path / "stores", run=RUN)
    assert not (tmp_path / "stores" / FILE_NAME).exists()


def test_another_run_starts_empty_and_logs_it(
    store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(store, 1)
    for suffix in SUFFIXES:
        (tmp_path / "stores" / (FILE_NAME + suffix)).unlink()
    with closing(local_store(tmp_path / "stores", run="session_2")) as empty:
        assert empty.meshes() == []
        append(empty, 1)
        assert "the store that was here are missing" in caplog.text
        with pytest.raises(StoreGone):  # a process with the first file open does not mistake the second for it
            append(store, 2)
        assert [mesh.sequence for mesh in empty.meshes()] == [1]


def test_a_first_start_logs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(local_store(tmp_path / "new", run=RUN)):
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with closing(local_store(tmp_path / "new", run="session_2")) as again:
        append(again, 1)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_write_into_deleted_files_is_not_acknowledged(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, 1)
    deleted: list[str] = []

    applied = sqlite._apply

    def delete_inside(db: sqlite3.Connection, space: str, *more: Any) -> bool:
        """Run within the transaction."""
        _delete_all(tmp_path / "stores")
        deleted.append(space)
        return applied(db, space, *more)

    monkeypatch.setattr(sqlite, "_apply", delete_inside)
    with pytest.raises(StoreGone):
        append(store, 2)
    assert deleted == ["prod"]


def _push_until_gone(directory: Path, results: Connection) -> None:
    with closing(local_store(directory, run=RUN)) as store:
        for sequence in range(1, 1_000_000):
            try:
                append(store, sequence, keep=1_000_000)
            except StoreGone:
                results.send(None)
                return
            results.send(sequence)


def test_no_acknowledged_write_is_lost_when_a_store_is_moved_under_load(tmp_path: Path) -> None:
    """All acknowledged writes, up to the last snapshot, are in the files that were moved away."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_push_until_gone, args=(tmp_path / "stores", theirs))
    writer.start()
    theirs.close()
    last = 0
    while last < 50:
        last = ours.recv()
    (tmp_path / "stores").rename(tmp_path / "away")
    while (acknowledged := ours.recv()) is not None:
        last = acknowledged
    writer.join()
    ours.close()
    with closing(local_store(tmp_path / "away")) as store:
        loaded = store.load("prod")
        assert loaded is not None
        assert loaded.sequence in (last, last + 1)  # one write may be done but not acknowledged
    assert not (tmp_path / "stores").exists()
