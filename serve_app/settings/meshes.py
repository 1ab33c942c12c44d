"""How much each mesh matters, where not all meshes fit: under overload, and in the memory of a session."""

from enum import StrEnum

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class Priority(StrEnum):
    """Which meshes come first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    @property
    def weight(self) -> float:
        """How much more than a normal mesh it is worth to keep such a mesh in memory."""
        return WEIGHTS[self]


WEIGHTS = {Priority.LOW: 0.25, Priority.NORMAL: 1.0, Priority.HIGH: 4.0}


class ServedMeshSettings(SettingsGroup):
    """Settings of one mesh of the service, collected or pushed."""

    priority: Priority = Field(
        Priority.NORMAL,
        description="under overload, snapshots of low meshes are refused first and of high ones last; high ones also "
        "stay in memory longer",
    )
