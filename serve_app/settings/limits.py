"""Limits on requests and stored meshes."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class LimitSettings(SettingsGroup):
    """Limits on requests and on stored meshes."""

    max_services: int = Field(20_000, ge=1, description="services in one snapshot")
    max_calls: int = Field(200_000, ge=0, description="calls in one snapshot")
    max_changes: int = Field(1000, ge=0, description="planned changes in one snapshot")
    max_policies: int = Field(20_000, ge=0, description="policies in one snapshot")
    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="size of a body with snapshots")
    max_action_bytes: int = Field(2**20, ge=1024, description="size of any other body: feedback, a mute, a rollback")
    max_metrics_bytes: int = Field(
        4 * 2**20,
        ge=1024,
        description="size of a body of OTLP metrics, unpacked; decoding one takes up to 50 times that",
    )
    max_snapshots: int = Field(120, ge=10, description="snapshots in one request to /v1/score")
    max_meshes: int = Field(
        1000, ge=1, description="meshes in the store; snapshots for further meshes are refused with 409"
    )
    evict_idle_seconds: float | None = Field(
        None, gt=0, description="time without a write after which a new mesh can replace a mesh; none: never"
    )
    max_feedback: int = Field(200, ge=1, description="stored feedback of one mesh")
    max_mutes: int = Field(100, ge=1, description="active and future mutes of one mesh")
    max_mute_seconds: float = Field(30 * 86400.0, gt=0, description="longest mute")
    max_ahead_seconds: float = Field(
        600.0, ge=0, description="how far a snapshot's time can be ahead of the service's clock; inf: no limit"
    )
