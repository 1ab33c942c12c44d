"""Stored blobs are compressed."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors import CorruptState
from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.primitives import under
from serve_app.stores.seal import MARK, seal, unseal
from tests.serve_app.stores.content import append, snapshots, states

BIG = b"a snapshot of many services " * 1000


@given(st.binary(max_size=2000), st.integers(0, 40), st.booleans())
def test_any_bytes_come_back(piece: bytes, times: int, marked: bool) -> None:
    blob = (MARK if marked else b"") + piece * times
    packed = seal(blob, "mesh", "key")
    assert unseal(packed, "mesh", "key") == blob
    longer = len(blob) // 200 + 32 if blob.startswith(MARK) else 0
    assert len(packed) <= len(blob) + longer + 4
    with pytest.raises(CorruptState, match="another checksum"):
        unseal(packed, "mesh", "other")


def test_a_store_compresses_what_it_keeps(place: StoreSettings) -> None:
    with closing(open_store(place)) as store:
        append(store, 1, snapshot=BIG, state=BIG, verdict=BIG)
        append(store, 2, snapshot=BIG, state=BIG, verdict=BIG, is_step=True)
        assert snapshots(store) == 2 * [BIG]
        assert states(store) == dict.fromkeys((1, 2), BIG)
        assert store.verdicts("prod", None, 3) == 2 * [BIG]
        (stored,) = store.database.read("prod", under(""))
        assert sum(len(value) for _, value in stored) < len(BIG) / 5
