"""Embeddings as Parquet files, one per mesh, which a dataset reader reads as one table."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serve_app.api.codec.arrow_embeddings import Embeddings, embedding_table


def write_embeddings(folder: Path, embeddings: Embeddings) -> None:
    """Replace a mesh's file, ``MESH.parquet``, atomically. The folder is created if necessary.

    Columns: mesh, observed_at, model, status, mesh_score, service, deviation, embedding.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = embedding_table(embeddings)
    about = {
        "mesh": pa.scalar(embeddings.mesh),
        "observed_at": pa.scalar(embeddings.observed_at, pa.timestamp("us", "UTC")),
        "model": pa.scalar(embeddings.model),
        "status": pa.scalar(embeddings.status),
        "mesh_score": pa.scalar(embeddings.mesh_score),
    }
    columns = {name: pa.repeat(value, table.num_rows) for name, value in about.items()}
    whole = pa.table(columns | {name: table[name] for name in table.column_names})
    target = folder / f"{embeddings.mesh}.parquet"
    part = target.with_suffix(".part")
    try:
        pq.write_table(whole, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
