"""Our databases fulfil the contract of stores, and what they keep is compressed, with a checksum."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.contracts.stores import StoreContract
from serve_app.errors import CorruptState
from serve_app.settings.base import check_mesh_name
from serve_app.stores.row_store import SERVICE, Change, under
from serve_app.stores.seal import MARK, seal, unseal
from serve_app.stores.state_store import StateStore
from tests.serve_app.stores.content import append, snapshots, states

BIG = b"a snapshot of many services " * 1000


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


@given(st.binary(max_size=2000), st.integers(0, 40), st.booleans())
def test_any_bytes_come_back(piece: bytes, times: int, marked: bool) -> None:
    blob = (MARK if marked else b"") + piece * times
    packed = seal(blob, "mesh", "key")
    assert unseal(packed, "mesh", "key") == blob
    longer = len(blob) // 200 + 32 if blob.startswith(MARK) else 0
    assert len(packed) <= len(blob) + longer + 4
    with pytest.raises(CorruptState, match="checksum mismatch"):
        unseal(packed, "mesh", "other")


def test_a_store_compresses_what_it_keeps(store: StateStore) -> None:
    append(store, 1, snapshot=BIG, state=BIG, verdict=BIG)
    append(store, 2, snapshot=BIG, state=BIG, verdict=BIG, is_step=True)
    assert snapshots(store) == 2 * [BIG]
    assert states(store) == dict.fromkeys((1, 2), BIG)
    assert store.verdicts("prod", None, 3) == 2 * [BIG]
    (stored,) = store.database.read("prod", under(""))
    assert sum(len(value) for _, value in stored) < len(BIG) / 5
