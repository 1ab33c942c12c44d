"""Settings of the registry of models."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class ModelsSettings(SettingsGroup):
    """The registry of models, from which a running service takes new weights."""

    registry: str | None = Field(
        None,
        min_length=1,
        description="folder, or URL that fsspec can open, such as s3://bucket/models; none: there is no registry, and "
        "meshes use model.weights",
    )
    memory_bytes: int = Field(
        256 * 2**20,
        ge=2**20,
        description="memory for weights from the registry, in each process that scores; others are loaded when "
        "they are needed; on a GPU at most what is free there",
    )
    canary_share: float = Field(
        0.1, ge=0, lt=1, description="share of the meshes that try a candidate, if `tagae models canary` names none"
    )
