"""The archive of incidents in the file of a local store: damage."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from serve_app.stores.sqlite_file import FILE_NAME
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import LIMIT, append, found, incident
from tests.serve_app.stores.local import local_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(local_store(tmp_path, archive=LIMIT)) as opened:
        yield opened


def test_damaged_incidents_are_left_out(store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(store, 1, incidents=tuple(incident(number) for number in range(1, 5)))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as hand:
        hand.execute("UPDATE rows SET value = x'00' WHERE key = 'incident/incident-1'")
        hand.execute(
            "UPDATE rows SET value = CAST(replace(value, 'slow', 'gone') AS BLOB) WHERE key = 'index/incident-2'"
        )
        hand.execute("UPDATE rows SET value = x'00' WHERE key = 'details/incident-3'")
        hand.commit()
    assert found(store) == ["incident-4", "incident-3"]
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
