"""Documents of embeddings."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant, ServiceKey


class ServiceEmbedding(Document):
    """The embedding of one service."""

    service: ServiceKey
    deviation: float | None = Field(
        description="how unusual its series are in this snapshot, in decades of improbability; null: not scored"
    )
    embedding: list[float]


class EmbeddingsDocument(Document):
    """The embeddings of the services of a mesh: what the network knows of each one, from its own metrics, its
    neighbours' metrics, and the recent course of its calls."""

    observed_at: Instant = Field(description="time of the newest snapshot")
    model: str = Field(description="digest of the weights; embeddings of different weights cannot be compared")
    status: str = Field(description="of the newest verdict", examples=["normal"])
    mesh_score: float = Field(description="of the newest verdict")
    dimensions: int = Field(ge=1, description="length of each embedding")
    services: list[ServiceEmbedding] = Field(description="of the newest snapshot, in its order")
