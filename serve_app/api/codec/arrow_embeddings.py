"""Embeddings as an Arrow table with one row per service. Facts about the whole mesh are in the schema's metadata."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from model.features import Array
from serve_app.api.codec.arrow import write_stream
from serve_app.errors import MalformedDocument

COLUMNS = ("service", "deviation", "embedding")


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """The embeddings of one mesh.

    Attributes:
        observed_at, status, mesh_score: of the snapshot and its verdict.
        model: digest of the weights that made them. Embeddings from different weights cannot be compared.
        services: N node ids.
        deviations: float32 ``[N]``, the services' deviations in that snapshot, in decades; NaN if not scored.
        vectors: float32 ``[N, D]``.
    """

    mesh: str
    observed_at: datetime
    model: str
    status: str
    mesh_score: float
    _: KW_ONLY
    services: Sequence[str]
    deviations: Array
    vectors: Array


def embedding_table(embeddings: Embeddings) -> pa.Table:
    dimensions = embeddings.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.vectors.ravel()), dimensions)
    missing = np.isnan(embeddings.deviations)
    columns = [pa.array(list(embeddings.services)), pa.array(embeddings.deviations, mask=missing), vectors]
    about = {
        "mesh": embeddings.mesh,
        "observed_at": embeddings.observed_at.isoformat(),
        "model": embeddings.model,
        "status": embeddings.status,
        "mesh_score": repr(embeddings.mesh_score),
    }
    return pa.table(dict(zip(COLUMNS, columns, strict=True))).replace_schema_metadata(about)


def encode_embeddings(embeddings: Embeddings) -> bytes:
    """An Arrow IPC stream with the table."""
    return write_stream(embedding_table(embeddings))


def decode_embeddings(stream: bytes) -> Embeddings:
    """Read what :func:`encode_embeddings` wrote.

    Raises:
        MalformedDocument: it is something else.
    """
    try:
        table = pa.ipc.open_stream(pa.BufferReader(stream)).read_all()
        about: Mapping[bytes, bytes] = table.schema.metadata or {}
        vectors = table["embedding"].combine_chunks()
        return Embeddings(
            about[b"mesh"].decode(),
            datetime.fromisoformat(about[b"observed_at"].decode()),
            about[b"model"].decode(),
            about[b"status"].decode(),
            float(about[b"mesh_score"]),
            services=table["service"].to_pylist(),
            deviations=table["deviation"].to_numpy().astype(np.float32),
            vectors=vectors.flatten().to_numpy().reshape(table.num_rows, vectors.type.list_size),
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, AttributeError) as error:
        raise MalformedDocument(
            f"expected an Arrow IPC stream of embeddings, got {type(error).__name__}: {str(error)[:200]}; read it "
            "from GET /v1/meshes/{mesh}/embeddings"
        ) from None
