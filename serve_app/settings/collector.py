"""Collector settings for all meshes."""

from pydantic import Field

from serve_app.settings.base import SettingsGroup


class CollectorSettings(SettingsGroup):
    """The collectors, which poll the meshes' sources."""

    replicas: int = Field(
        1,
        ge=1,
        description="collectors; each mesh is collected by one of them, and another takes over within 12 s if it ends; "
        "more than one needs a store in Redis",
    )
    interval_seconds: float = Field(15.0, ge=1, description="time between two snapshots; at least the scrape interval")
    window_seconds: float = Field(
        60.0,
        gt=0,
        description="rate window; at least four scrape intervals; if it is not set, longer where scrapes are rarer",
    )
    deadline_seconds: float = Field(10.0, gt=0, description="deadline of one snapshot's queries together")
    behind_seconds: float = Field(
        15.0,
        ge=0,
        description="age of the newest snapshot, so that all targets have been scraped; if it is not set, longer where "
        "data arrive late",
    )
    catch_up_snapshots: int = Field(
        20, ge=1, description="maximum number of missed snapshots collected after an outage"
    )
    replay_hours: float = Field(
        24.0,
        ge=0,
        description="hours of a new mesh's past that are read from its Prometheus at the start, without notifications; "
        "0: none",
    )
