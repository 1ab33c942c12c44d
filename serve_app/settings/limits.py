"""Limits on requests and stored meshes."""

from typing import ClassVar

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class LimitSettings(SettingsGroup):
    """Limits on requests and on stored meshes."""

    # Fixed bounds for one document, which only a mistake reaches: a mesh has far fewer.
    max_changes: ClassVar[int] = 1000
    max_policies: ClassVar[int] = 20_000
    max_snapshots: ClassVar[int] = 120  # in a request to score

    max_services: int = Field(20_000, ge=1, description="services in one snapshot, and a tenth of the calls")
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="size of a body with snapshots")
    max_meshes: int = Field(
        1000, ge=1, description="meshes in the store; snapshots for further meshes are refused with 409"
    )
    max_ahead_seconds: float = Field(
        600.0, ge=0, description="how far a snapshot's time can be ahead of the service's clock; inf: no limit"
    )

    @property
    def max_calls(self) -> int:
        """Calls in one snapshot. Meshes have two to six calls per service."""
        return 10 * self.max_services
