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
    max_alerts: float = Field(
        2.0,
        gt=0,
        description="limit: alerts per day of the candidate, relative to the budget (alert.false_pages_per_day); if "
        "the lower confidence bound exceeds this, and the baseline's rate, the trial is rolled back; inf: no limit",
    )
    min_agreement: float = Field(
        0.9,
        ge=0,
        le=1,
        description="limit: share of the snapshots in which both models, or neither, alert; if the upper confidence "
        "bound is below, the trial is rolled back; 0: no limit",
    )
