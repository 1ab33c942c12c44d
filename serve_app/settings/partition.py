"""Settings of how a large mesh is divided."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class PartitionSettings(SettingsGroup):
    """How a large mesh is divided into parts."""

    max_services: int = Field(2000, ge=2, description="core services of one part; smaller meshes are not divided")
