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
    promote_after_hours: float | None = Field(
        None,
        gt=0,
        description="hours of a canary within all limits after which its candidate is promoted; none: people promote",
    )
    confirm_after_hours: float = Field(
        24.0, gt=0, description="hours within all limits after which the trial of a promoted model ends"
    )
    least_snapshots: int = Field(
        100,
        ge=60,
        description="snapshots that both models of a trial must have scored before a limit counts, or a rule promotes; "
        "for most_failures, snapshots that one of them must have scored",
    )
    most_failures: float = Field(
        0.05,
        ge=0,
        le=1,
        description="limit: share of the snapshots that the candidate cannot score, or not in time; if it is surely "
        "above, and above the baseline's, the trial is rolled back; 1: no limit",
    )
    most_alerts: float = Field(
        2.0,
        gt=0,
        description="limit: alerts per day of the candidate, relative to the budget (alert.false_pages_per_day); if it "
        "is surely above this, and above the baseline, the trial is rolled back; inf: no limit",
    )
    least_agreement: float = Field(
        0.9,
        ge=0,
        le=1,
        description="limit: share of the snapshots in which both models, or neither, alert; if it is surely below, the "
        "trial is rolled back; 0: no limit",
    )
    most_cost: float = Field(
        2.0,
        gt=0,
        description="limit: duration of the candidate's passes, relative to the baseline's; if it is surely above, the "
        "trial is rolled back; it is also if a latency target of the group sla is missed and it is surely slower; "
        "inf: no limit",
    )
    check_seconds: float = Field(30.0, ge=1, description="time between two looks at a trial")
    shadow_share: float = Field(
        0.2,
        gt=0,
        le=1,
        description="largest share of the time for which a session scores in the shadow while snapshots wait for it; "
        "others are left out",
    )
