"""Settings of the service level."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class SlaSettings(SettingsGroup):
    """Targets of the service level."""

    p95_seconds: float = Field(
        1.0, gt=0, description="target for the 95th percentile of the time from push to verdict; inf: no target"
    )
    p99_seconds: float = Field(2.0, gt=0, description="the same for the 99th percentile")
    requests_per_second: float = Field(
        0.0, ge=0, description="pushes per second up to which none may be refused with 429; 0: no target"
    )
    error_rate: float = Field(
        0.01, ge=0, le=1, description="largest share of requests that may fail through the service; 1: no target"
    )
    availability: float = Field(
        0.99, ge=0, le=1, description="minimum share of the time in which the service can answer; 0: no target"
    )
