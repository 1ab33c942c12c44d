"""The archive of incidents in every store: filters and pages, its limits, the death of its writer."""

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from multiprocessing.connection import Connection

import pytest

from serve_app.errors import StoreConflict
from serve_app.settings import StoreSettings
from serve_app.stores.base import IncidentFilter, StateStore
from serve_app.stores.incident_rows import incident_row
from serve_app.stores.opening import open_store
from serve_app.stores.sqlite_file import FILE_NAME
from tests.serve_app.stores.store_cases import LIMIT, START, append, at, found, incident


@pytest.fixture
def store(place: StoreSettings) -> Iterator[StateStore]:
    with closing(open_store(place, archive=LIMIT)) as opened:
        yield opened


def test_an_incident_is_written_with_its_snapshot_or_not_at_all(store: StateStore) -> None:
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


def test_incidents_are_found_by_time_service_kind_and_severity(store: StateStore) -> None:
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


def test_pages_have_each_incident_once(store: StateStore) -> None:
    same = [incident(number, since=at(1), until=at(9)) for number in range(5)]
    append(store, 1, incidents=(*same, *(incident(number, until=at(9)) for number in range(5, 12))))
    pages, before = [], None
    while page := store.incidents("prod", IncidentFilter(before=before, limit=5)):
        pages += [one.id for one in page]
        before = page[-1].since, page[-1].id
    assert pages == found(store)
    assert len(set(pages)) == 12


def test_a_deleted_mesh_has_no_archive_and_one_set_aside_keeps_it(store: StateStore) -> None:
    revision = append(store, 1, incidents=(incident(1),))
    assert store.set_aside("prod", "of another schema", revision=revision)
    assert found(store) == ["incident-1"]
    append(store, 1)
    assert store.delete("prod")
    append(store, 1)
    assert found(store) == []


def test_incidents_are_kept_for_a_time_by_the_clock_of_the_mesh(store: StateStore) -> None:
    def come(sequence: int, days: float) -> None:
        append(store, sequence, observed_at=START + timedelta(days=days))

    append(store, 1, incidents=(incident(1, until=at(10)), incident(2)))
    come(2, 89.9)
    assert found(store) == ["incident-2", "incident-1"]
    come(3, 91)
    assert found(store) == ["incident-2"]  # it is open


def test_the_archive_stays_within_its_bytes_over_ten_thousand_incidents(
    store: StateStore, place: StoreSettings
) -> None:
    choose = random.Random(0)

    def count_bytes() -> int:
        whole = store.read_whole("prod")
        assert whole is not None
        return sum(incident_row("prod", one)[9] for one in whole.incidents)

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
    if place.kind == "local":
        assert (place.path / FILE_NAME).stat().st_size < 4 * LIMIT.max_bytes


def test_an_open_incident_stays_when_others_make_room(store: StateStore) -> None:
    choose = random.Random(0)  # what is random is not compressed
    append(store, 1, incidents=(incident(1, severity=0, details=choose.randbytes(2**19)),))
    for number in range(2, 10):
        ended = incident(number, until=at(10), severity=3, details=choose.randbytes(2**18))
        append(store, number, incidents=(ended,))
    assert found(store) == ["incident-9", "incident-1"]


def _archive_for_ever(place: StoreSettings, acknowledged: Connection) -> None:
    with closing(open_store(place, archive=LIMIT)) as store:
        append(store, 1, incidents=(incident(1),))
        for sequence in range(2, 1_000_000):
            opened = incident(sequence, details=b"%d" % sequence * 5_000)
            append(store, sequence, incidents=(opened, incident(sequence - 1, until=at(sequence))))
            acknowledged.send(sequence)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_when_the_writer_is_killed(place: StoreSettings, seed: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_archive_for_ever, args=(place, theirs))
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
    with closing(open_store(place, archive=LIMIT)) as store:
        mesh = store.load("prod")
        assert mesh is not None
        assert mesh.sequence in (last, last + 1)  # at most one was written and not yet acknowledged
        assert store.open_incidents("prod") == {f"incident-{mesh.sequence}": mesh.sequence}
        kept = store.incidents("prod", IncidentFilter())
        assert [one.id for one in kept] == [f"incident-{n}" for n in range(mesh.sequence, 0, -1)]
        assert [one.until for one in kept[1:]] == [at(n) for n in range(mesh.sequence, 1, -1)]
