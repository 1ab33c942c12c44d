"""The file of the local store: its log, and processes that wait for each other."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.contracts.store_content import append, random_bytes, states
from serve_app.errors import Overloaded
from serve_app.stores.sqlite_file import FILE_NAME
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.local import local_store


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with closing(local_store(tmp_path / "stores")) as opened:
        yield opened


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
