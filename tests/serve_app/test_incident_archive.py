"""The archive of incidents in the store: filters and pages, its limits, damage, old files, the death of its writer."""

import multiprocessing
import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from serve_app.errors import StoreConflict
from serve_app.stores.base import ArchivedIncident, ArchiveLimit, IncidentFilter
from serve_app.stores.sqlite import FILE_NAME, LocalStore
from tests.serve_app.store_cases import START, append, at

LIMIT = ArchiveLimit(timedelta(days=90), 2**20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with closing(LocalStore(tmp_path, archive=LIMIT)) as opened:
        yield opened


def incident(number: int, until: datetime | None = None, **changed: object) -> ArchivedIncident:
    """An incident that began with snapshot ``number``."""
    made = ArchivedIncident(
        id=f"incident-{number}",
        since=at(number),
        until=until,
        sequence=number,
        severity=1,
        kind="slow",
        suspects=("shop/cart",),
        services=("shop/cart", "shop/web"),
        document=b"document %d" % number,
        details=b"details %d" % number,
    )
    return replace(made, **changed)  # type: ignore[arg-type]


def found(store: LocalStore, mesh: str = "prod", **wanted: object) -> list[str]:
    return [one.id for one in store.incidents(mesh, IncidentFilter(**wanted))]  # type: ignore[arg-type]


def test_an_incident_is_written_with_its_snapshot_or_not_at_all(store: LocalStore) -> None:
    append(store, 1, incidents=(incident(1),))
    with pytest.raises(StoreConflict):
        append(store, 1, incidents=(incident(2),))
    assert store.open_incidents("prod") == {"incident-1": 1}
    assert store.incident("prod", "incident-1") == incident(1)
    assert store.incidents("prod", IncidentFilter()) == [incident(1, details=b"")]
    append(store, 2, incidents=(incident(1, until=at(2), sequence=2, document=b"ended"),))
    assert store.open_incidents("prod") == {}
    assert store.incident("prod", "incident-1") == incident(1, until=at(2), sequence=2, document=b"ended")
    assert (store.incident("prod", "incident-2"), store.incident("other", "incident-1")) == (None, None)


def test_incidents_are_found_by_time_service_kind_and_severity(store: LocalStore) -> None:
    append(store, 1, incidents=(incident(1, until=at(4)), incident(3, kind="gone", severity=3)))
    append(store, 2, incidents=(incident(5, until=at(9), services=("shop/cart-2",), suspects=("shop/cart-2",)),))
    append(store, 1, mesh="other", incidents=(incident(7),))
    assert found(store) == ["incident-5", "incident-3", "incident-1"]
    assert found(store, mesh="other") == ["incident-7"]
    assert found(store, since=at(4)) == ["incident-5", "incident-3"]  # the first was over, the second is open
    assert found(store, until=at(3)) == ["incident-1"]
    assert found(store, since=at(2), until=at(3)) == ["incident-1"]
    assert found(store, services=("shop/web",)) == ["incident-3", "incident-1"]
    assert found(store, services=("shop/cart",)) == ["incident-3", "incident-1"]  # a whole name
    assert found(store, services=("cart",)) == []
    assert found(store, services=("shop/web", "shop/cart")) == ["incident-3", "incident-1"]
    assert found(store, services=("shop/web", "shop/cart-2")) == []  # all of them
    assert found(store, suspects=("shop/cart-2", "shop/nobody")) == ["incident-5"]
    assert found(store, suspects=()) == []
    assert found(store, kind="gone") == found(store, severity=3) == ["incident-3"]


def test_pages_have_each_incident_once(store: LocalStore) -> None:
    same = [incident(number, since=at(1), until=at(9)) for number in range(5)]
    append(store, 1, incidents=(*same, *(incident(number, until=at(9)) for number in range(5, 12))))
    pages, before = [], None
    while page := store.incidents("prod", IncidentFilter(before=before, limit=5)):
        pages += [one.id for one in page]
        before = page[-1].since, page[-1].id
    assert pages == found(store)
    assert len(set(pages)) == 12


def test_a_deleted_mesh_has_no_archive_and_one_set_aside_keeps_it(store: LocalStore) -> None:
    revision = append(store, 1, incidents=(incident(1),))
    assert store.set_aside("prod", "of another schema", revision=revision)
    assert found(store) == ["incident-1"]
    append(store, 1)
    assert store.delete("prod")
    append(store, 1)
    assert found(store) == []


def test_incidents_are_kept_for_a_time_by_the_clock_of_the_mesh(store: LocalStore) -> None:
    def come(sequence: int, days: float) -> None:
        append(store, sequence, observed_at=START + timedelta(days=days))

    append(store, 1, incidents=(incident(1, until=at(10)), incident(2)))
    come(2, 89.9)
    assert found(store) == ["incident-2", "incident-1"]
    come(3, 91)
    assert found(store) == ["incident-2"]  # it is open


def test_the_archive_stays_within_its_bytes_over_ten_thousand_incidents(store: LocalStore, tmp_path: Path) -> None:
    choose = random.Random(0)

    def count_bytes() -> int:
        texts = "length(mesh) + length(id) + length(kind) + length(suspects) + length(services)"
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as hand:
            (size,) = hand.execute(
                f"SELECT sum(length(document) + length(details) + {texts}) FROM incidents"
            ).fetchone()
        return int(size)

    largest = 0
    for number in range(1, 10_001):
        details = choose.randbytes(choose.randint(1_000, 9_000))
        ended = incident(number, until=at(number + 1), severity=choose.randint(0, 3), details=details)
        append(store, number, incidents=(ended,))
        if number % 500 == 0:
            largest = max(largest, count_bytes())
    assert LIMIT.max_bytes * 0.98 < largest <= LIMIT.max_bytes
    kept = store.incidents("prod", IncidentFilter())
    severe = [one.sequence for one in kept if one.severity == 3]
    assert all(one.sequence > 9_990 for one in kept if one.severity < 3)  # these found room, the others made room,
    assert min(severe) > 9_000  # and the oldest of the severe ones
    assert len(severe) > 150
    assert (tmp_path / FILE_NAME).stat().st_size < 4 * LIMIT.max_bytes


def test_an_open_incident_stays_when_others_make_room(store: LocalStore) -> None:
    append(store, 1, incidents=(incident(1, severity=0, details=bytes(2**19)),))
    for number in range(2, 10):
        append(store, number, incidents=(incident(number, until=at(10), severity=3, details=bytes(2**18)),))
    assert found(store) == ["incident-9", "incident-1"]


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


def _archive_for_ever(directory: Path, acknowledged: Connection) -> None:
    with closing(LocalStore(directory, archive=LIMIT)) as store:
        append(store, 1, incidents=(incident(1),))
        for sequence in range(2, 1_000_000):
            opened = incident(sequence, details=b"%d" % sequence * 5_000)
            append(store, sequence, incidents=(opened, incident(sequence - 1, until=at(sequence))))
            acknowledged.send(sequence)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_when_the_writer_is_killed(tmp_path: Path, seed: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_archive_for_ever, args=(tmp_path, theirs))
    writer.start()
    theirs.close()
    stop, last = random.Random(seed).randint(5, 60), 0
    try:
        while last < stop:
            last = ours.recv()
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        while True:  # what it acknowledged before it died
            last = ours.recv()
    except EOFError:
        pass
    finally:
        writer.kill()
        writer.join()
        ours.close()
    with closing(LocalStore(tmp_path, archive=LIMIT)) as store:
        mesh = store.load("prod")
        assert mesh is not None
        assert mesh.sequence in (last, last + 1)  # at most one was written and not yet acknowledged
        assert store.open_incidents("prod") == {f"incident-{mesh.sequence}": mesh.sequence}
        kept = store.incidents("prod", IncidentFilter())
        assert [one.id for one in kept] == [f"incident-{n}" for n in range(mesh.sequence, 0, -1)]
        assert [one.until for one in kept[1:]] == [at(n) for n in range(mesh.sequence, 1, -1)]
