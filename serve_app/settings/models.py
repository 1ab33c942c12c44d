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
