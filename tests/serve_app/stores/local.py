"""A local store in a folder of a test."""

from pathlib import Path
from typing import Any

import pytest

from serve_app.stores.sqlite.file import SqliteFile
from serve_app.stores.sqlite.store import SqliteRows
from serve_app.stores.state_store import StateStore

locally = pytest.mark.parametrize("place", ["local"], indirect=True)
"""A local store, for tests of the code that uses a store. What every kind of store must do is in the contract."""


def local_store(
    directory: Path, *, run: str | None = None, busy_timeout_seconds: float = 2.0, **more: Any
) -> StateStore:
    """Open a store in a folder; ``more`` are its limits, as of :class:`StateStore`."""
    return StateStore(SqliteRows(directory, run=run, busy_timeout_seconds=busy_timeout_seconds), **more)


def file_of(store: StateStore) -> SqliteFile:
    assert isinstance(store.database, SqliteRows)
    return store.database.file
