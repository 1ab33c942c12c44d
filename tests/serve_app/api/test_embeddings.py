"""Embeddings as Arrow and Parquet."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from serve_app.api.codec.arrow_embeddings import Embeddings, decode_embeddings, encode_embeddings
from serve_app.errors import MalformedDocument
from serve_app.recordings.embedding_files import write_embeddings
from tests.builders import START

NAMES = ("shop/cart", "shop/pay", "bank/cart", "bank/ledger")
COMMON = 5.0  # part of every embedding of a mesh
VECTORS = COMMON + np.array([[1, 0, 0], [0, 1, 0], [0.9, 0.1, 0], [-1, -1, 0]], np.float32)
DEVIATIONS = np.array([0.5, np.nan, 4.0, 0.0], np.float32)
FOUND = Embeddings("prod", START, "a1b2", "normal", 1.25, services=NAMES, deviations=DEVIATIONS, vectors=VECTORS)


def test_arrow_keeps_everything() -> None:
    back = decode_embeddings(encode_embeddings(FOUND))
    for name in ("mesh", "observed_at", "model", "status", "mesh_score"):
        assert getattr(back, name) == getattr(FOUND, name)
    assert tuple(back.services) == NAMES
    np.testing.assert_array_equal(back.vectors, VECTORS)
    np.testing.assert_array_equal(back.deviations, FOUND.deviations)


@pytest.mark.parametrize("stream", [b"", b"{}", encode_embeddings(FOUND)[:100]])
def test_another_stream_is_refused(stream: bytes) -> None:
    with pytest.raises(MalformedDocument, match="expected an Arrow IPC stream of embeddings"):
        decode_embeddings(stream)


def test_files_of_several_meshes_are_one_table_and_are_replaced_as_a_whole(tmp_path: Path) -> None:
    few = replace(FOUND, mesh="test", services=NAMES[:2], deviations=FOUND.deviations[:2], vectors=VECTORS[:2])
    for embeddings in (FOUND, few, replace(FOUND, model="c3d4")):
        write_embeddings(tmp_path / "new", embeddings)
    table = pq.read_table(tmp_path / "new")
    assert table.column_names[:5] == ["mesh", "observed_at", "model", "status", "mesh_score"]
    rows = {(row["mesh"], row["service"]): row for row in table.to_pylist()}
    assert len(rows) == 6
    assert rows["prod", "shop/pay"]["deviation"] is None
    assert (rows["prod", "shop/cart"]["model"], rows["test", "shop/cart"]["model"]) == ("c3d4", "a1b2")
    assert rows["prod", "shop/cart"]["observed_at"] == START
    np.testing.assert_allclose(rows["test", "shop/pay"]["embedding"], VECTORS[1])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["prod.parquet", "test.parquet"]
