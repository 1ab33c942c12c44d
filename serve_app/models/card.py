"""Model cards: created from weights, and written beside them."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from model.checkpoint import Checkpoint, load
from model.errors import IncompatibleWeights
from model.features import SCHEMA
from serve_app.api.schemas.models import ModelCard
from serve_app.api.views import feature_schema_document

SUFFIX = ".card.json"


def path_of_card(weights: Path) -> Path:
    """The path of the card beside a weights file."""
    return weights.with_suffix(SUFFIX)


def describe(
    checkpoint: Checkpoint,
    content: bytes,
    *,
    created_at: datetime | None = None,
    parent: str | None = None,
    figures: Mapping[str, float] | None = None,
) -> ModelCard:
    """Create a model's card.

    Args:
        checkpoint: with a digest, as :func:`~model.checkpoint.load` reads it.
        content: of its file.
        created_at: None: now.
        parent: version that it replaces; None: unknown.
        figures: training results by name.
    """
    network = type(checkpoint.network)
    return ModelCard(
        version=checkpoint.digest,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        created_at=created_at or datetime.now(UTC).replace(microsecond=0),
        parent=parent,
        network=f"{network.__module__}:{network.__qualname__}",
        architecture=asdict(checkpoint.network.config),
        schema_version=SCHEMA.version,
        features=feature_schema_document(),
        data=dict(checkpoint.provenance),
        figures=dict(figures or {}),
    )


def write_card(
    weights: Path,
    *,
    parent: str | None = None,
    figures: Mapping[str, float] | None = None,
    network: str | None = None,
) -> ModelCard:
    """Write a card beside a weights file, which may name this ``network``, and return it. :func:`describe` explains the
    other arguments.

    Raises:
        IncompatibleWeights: this version cannot read the file.
    """
    card = describe(load(weights, network=network), weights.read_bytes(), parent=parent, figures=figures)
    path_of_card(weights).write_bytes(encode_card(card))
    return card


def encode_card(card: ModelCard) -> bytes:
    return card.model_dump_json(indent=2).encode() + b"\n"


def decode_card(content: bytes, place: str) -> ModelCard:
    """Read a card.

    Args:
        place: its location, for the message.

    Raises:
        IncompatibleWeights: this version cannot read the card.
    """
    try:
        return ModelCard.model_validate_json(content)
    except ValueError as error:  # pydantic's errors are ValueErrors
        raise IncompatibleWeights(
            f"model card {place}: expected a card of this version, got something else ({error}); add the model again"
        ) from error
