"""Our stores fulfil the contract of stores."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from lab.contracts.store_content import LIMIT
from lab.contracts.stores import StoreContract
from serve_app.settings import StoreSettings
from serve_app.settings.base import check_mesh_name
from serve_app.stores.base import ArchivedIncident
from serve_app.stores.incident_rows import incident_rows, read_index
from serve_app.stores.primitives import SERVICE, Change, under
from serve_app.stores.sqlite_file import FILE_NAME
from serve_app.stores.state_store import StateStore


class TestStore(StoreContract):
    fullest = 0.98

    def count_bytes(self, incident: ArchivedIncident) -> int:
        return read_index(incident_rows("prod", incident)[2:3])[incident.id].size

    @pytest.fixture
    def bounded_file(self, place: StoreSettings) -> Iterator[None]:
        """The file of a local store stays bounded, too."""
        yield
        if place.kind == "local":
            assert (place.path / FILE_NAME).stat().st_size < 4 * LIMIT.max_bytes

    @pytest.mark.slow
    @pytest.mark.usefixtures("bounded_file")
    def test_the_archive_stays_within_its_bytes_over_thousands_of_incidents(self, archive: StateStore) -> None:
        super().test_the_archive_stays_within_its_bytes_over_thousands_of_incidents(archive)

    @pytest.fixture
    def logged_eviction(self, place: StoreSettings, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        yield  # after the place, without which the test is skipped
        assert "'b' was idle" in "".join(record.getMessage() for record in caplog.get_records("call"))

    @pytest.mark.usefixtures("logged_eviction")
    def test_the_mesh_that_was_idle_longest_is_evicted(self, place: StoreSettings) -> None:
        super().test_the_mesh_that_was_idle_longest_is_evicted(place)


@pytest.mark.parametrize("attempt", range(10))
def test_the_first_calls_of_threads_to_an_empty_store_all_succeed(store: StateStore, attempt: int) -> None:
    threads, start = 8, Barrier(8)

    def write(number: int) -> bool:
        start.wait()
        return store.database.write(SERVICE, Change(puts=[(f"audit/{attempt}/{number}", b"x")]))

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(write, range(threads)))
    (rows,) = store.database.read(SERVICE, under(f"audit/{attempt}/"))
    assert len(rows) == threads


@pytest.mark.parametrize("name", ["a", "prod-eu.1_x", "0", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_mesh_name(name) == name
