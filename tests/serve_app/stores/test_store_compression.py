"""Stored blobs are compressed, and uncompressed blobs of earlier versions stay readable."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.contracts.store_content import append, snapshots, states
from serve_app.errors import CorruptState
from serve_app.settings import StoreSettings
from serve_app.stores import seal
from serve_app.stores.compression import MARK, compress, decompress
from serve_app.stores.opening import open_store
from serve_app.stores.sqlite import LocalStore
from serve_app.stores.sqlite_file import FILE_NAME

BIG = b"a snapshot of many services " * 1000


@given(st.binary(max_size=2000), st.integers(0, 40), st.booleans())
def test_any_bytes_come_back(piece: bytes, times: int, marked: bool) -> None:
    blob = (MARK if marked else b"") + piece * times
    packed = b"".join(compress(blob))
    assert decompress(memoryview(packed)) == blob
    longer = len(blob) // 200 + 32 if blob.startswith(MARK) else 0
    assert len(packed) <= len(blob) + longer


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(CorruptState, match="expected 28000 bytes in LZ4"):
        decompress(memoryview(b"".join(compress(BIG)))[:-10])


def test_a_store_reads_what_an_earlier_version_wrote(place: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_store(place)) as store:
        with monkeypatch.context() as earlier:
            earlier.setattr(seal, "compress", lambda blob: (blob,))
            append(store, 1, snapshot=BIG, state=BIG, verdict=BIG)
            append(store, 2, snapshot=BIG, state=BIG, verdict=BIG, is_step=True)
        append(store, 3, snapshot=BIG, state=BIG, verdict=BIG, is_step=True)
        assert snapshots(store) == 3 * [BIG]
        assert states(store) == dict.fromkeys((1, 2, 3), BIG)
        assert store.verdicts("prod", None, 3) == 3 * [BIG]
        whole = store.read_whole("prod")
        assert whole is not None
        store.write_whole("copy", whole)
        assert store.read_whole("copy") == whole


def test_a_file_of_layout_4_is_used_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(seal, "compress", lambda blob: (blob,))
        with closing(LocalStore(tmp_path)) as store:
            append(store, 1, snapshot=BIG)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as old:
        old.execute("PRAGMA user_version = 4")
    with closing(LocalStore(tmp_path)) as store:
        append(store, 2, snapshot=BIG)
        assert snapshots(store) == [BIG, BIG]
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as now:
        sizes = [len(row) for (row,) in now.execute("SELECT snapshot FROM snapshots ORDER BY sequence")]
        assert now.execute("PRAGMA user_version").fetchone() == (5,)
    assert sizes[0] > len(BIG) > 50 * sizes[1]
    assert not list(tmp_path.glob("*.corrupt-*"))
