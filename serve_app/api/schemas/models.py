"""Documents of models: their cards, and which meshes use which version."""

from typing import Annotated

from pydantic import ConfigDict, Field

from serve_app.api.schemas.base import Document, Instant
from serve_app.api.schemas.views import FeatureSchemaDocument

ModelVersion = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{16}$",
        description="version of a model: the digest of its weights, which verdicts name as `model`",
        examples=["20197a285a383037"],
    ),
]


class ModelCard(Document):
    """A model without its weights. The registry has one card beside each file of weights."""

    model_config = ConfigDict(extra="ignore")  # a newer version of TAGAE may have written it

    version: ModelVersion
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file of weights")
    size_bytes: int = Field(ge=0, description="size of this file")
    created_at: Instant
    parent: ModelVersion | None = Field(None, description="version that it was made to replace; null: unknown")
    network: str = Field(description="class of the network, as `module:Class`")
    architecture: dict[str, float] = Field(description="sizes of the network, by name")
    schema_version: int = Field(description="of the features")
    features: FeatureSchemaDocument = Field(description="inputs that it reads")
    data: dict[str, str] = Field(description="how it was trained: seed, data, steps, versions")
    figures: dict[str, float] = Field(description="results of its training, by name; empty: unknown")


class ModelsDocument(Document):
    """The models of the registry."""

    models: list[ModelCard] = Field(description="oldest first")
