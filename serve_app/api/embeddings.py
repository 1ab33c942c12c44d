"""The embeddings of the services of a mesh: as documents, as an Arrow table, and which services are alike."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

import numpy as np

from model.features import Array
from serve_app.api.schemas.embeddings import EmbeddingsDocument, ServiceEmbedding, SimilarDocument, SimilarService


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
        """All of them."""
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

    def similar(self, service: str, limit: int) -> SimilarDocument:
        """The services that are most like one of them, by the cosine of their embeddings less the mean of the mesh.

        Without the mean, all services of a mesh would be alike: what they have in common is most of an embedding.
        """
        row = list(self.services).index(service)
        centred = self.vectors - self.vectors.mean(axis=0)
        lengths = np.linalg.norm(centred, axis=1) + np.float32(1e-12)
        cosine = centred @ centred[row] / (lengths * lengths[row])
        order = np.argsort(-cosine, kind="stable")
        nearest = [int(i) for i in order[: limit + 1] if i != row][:limit]
        return SimilarDocument(
            service=service,
            observed_at=self.observed_at,
            model=self.model,
            similar=[
                SimilarService(
                    service=self.services[i],
                    similarity=round(float(cosine[i].clip(-1, 1)), 4),
                    deviation=None if np.isnan(self.deviations[i]) else float(self.deviations[i]),
                )
                for i in nearest
            ],
        )
