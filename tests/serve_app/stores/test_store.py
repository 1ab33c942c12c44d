"""Our databases fulfil the contract of stores."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from lab.contracts.stores import StoreContract
from serve_app.settings.base import check_mesh_name
from serve_app.stores.primitives import SERVICE, Change, under
from serve_app.stores.state_store import StateStore


class TestRows(StoreContract):
    """Local and in Redis."""


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
