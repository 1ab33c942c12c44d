"""The archive of incidents in the file of a local store: damage, and files of earlier versions."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from serve_app.stores.sqlite import LocalStore
from serve_app.stores.sqlite_file import FILE_NAME
from tests.serve_app.stores.store_cases import LIMIT, append, found, incident


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with closing(LocalStore(tmp_path, archive=LIMIT)) as opened:
        yield opened


def test_damaged_incidents_are_left_out(store: LocalStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(store, 1, incidents=tuple(incident(number) for number in range(1, 5)))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as hand:
        hand.execute("UPDATE incidents SET document = x'00' WHERE id = 'incident-1'")
        hand.execute("UPDATE incidents SET kind = 'gone' WHERE id = 'incident-2'")
        hand.execute("UPDATE incidents SET details = x'00' WHERE id = 'incident-3'")
        hand.commit()
    assert found(store) == ["incident-4", "incident-3"]
    assert [store.incident("prod", f"incident-{number}") for number in (1, 2, 3)] == [None, None, None]
    assert "incident 'incident-1' is damaged" in caplog.text
    assert store.load("prod") is not None


# Up to layout 3 the states were in the table of the meshes; layout 2 had no archive.
TO_LAYOUT_3 = "DROP TABLE steps; DROP TABLE meshes; ALTER TABLE states RENAME TO meshes; PRAGMA user_version = 3;"
TO_LAYOUT_2 = f"{TO_LAYOUT_3} DROP TABLE incidents; PRAGMA user_version = 2;"


@pytest.mark.parametrize(("to_earlier_layout", "kept"), [(TO_LAYOUT_3, ["incident-1"]), (TO_LAYOUT_2, [])])
def test_a_file_of_an_earlier_layout_is_migrated(tmp_path: Path, to_earlier_layout: str, kept: list[str]) -> None:
    with closing(LocalStore(tmp_path, archive=LIMIT)) as store:
        append(store, 1, incidents=(incident(1),))
        before, state = store.load("prod"), store.load_state("prod")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as old:
        old.executescript(to_earlier_layout)
    with closing(LocalStore(tmp_path, archive=LIMIT)) as store:
        assert before is not None
        assert (store.load("prod"), store.load_state("prod")) == (before, state)
        assert found(store) == kept
        append(store, 2, incidents=(incident(2),))
        assert found(store) == ["incident-2", *kept]


def test_the_archive_survives_damage_elsewhere_in_the_file(tmp_path: Path) -> None:
    with closing(LocalStore(tmp_path, archive=LIMIT)) as store:
        append(store, 1, incidents=(incident(1),))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as hand:
        hand.executescript("DROP TABLE clock")  # what a file lacks is damage: its meshes move to a new file
    with closing(LocalStore(tmp_path, archive=LIMIT)) as store:
        assert store.incident("prod", "incident-1") == incident(1)
        append(store, 2)
    assert list(tmp_path.glob(f"{FILE_NAME}.corrupt-*"))
