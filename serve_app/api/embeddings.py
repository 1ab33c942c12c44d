"""The embeddings of the services of a mesh."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

import numpy as np

from model.features import Array
from serve_app.api.schemas.embeddings import EmbeddingsDocument, ServiceEmbedding


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """The embeddings of one mesh.

    Attributes:
        observed_at: time of the snapshot that they belong to.
        model: digest of the weights that made them. Embeddings of different weights cannot be compared.
        status: of the verdict on that snapshot.
        mesh_score: of the same.
        services: N node ids.
        deviations: float32 ``[N]``, how unusual each service is in that snapshot, in decades; NaN if not scored.
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

    def document(self) -> EmbeddingsDocument:
        """Return all of them as a document."""
        rows = zip(self.services, self.deviations.tolist(), self.vectors.tolist(), strict=True)
        return EmbeddingsDocument(
            observed_at=self.observed_at,
            model=self.model,
            status=self.status,
            mesh_score=self.mesh_score,
            dimensions=self.vectors.shape[1],
            services=[
                ServiceEmbedding(service=name, deviation=None if np.isnan(value) else value, embedding=vector)
                for name, value, vector in rows
            ],
        )
