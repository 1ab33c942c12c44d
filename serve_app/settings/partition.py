"""Settings of how a large mesh is divided."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class PartitionSettings(SettingsGroup):
    """How a large mesh is divided into parts."""

    max_services: int = Field(2000, ge=2, description="core services of one part; smaller meshes are not divided")
    groups: int | None = Field(
        None, ge=1, description="concurrent scoring calls for the parts of a snapshot; none: one per scoring replica"
    )
    seed: int = Field(0, ge=0, description="seed of the partitioning")
