"""Settings for the detector, the division of large meshes, and the model registry."""

from pydantic import Field

from serve_app.settings.base import Location, SettingsGroup


class ModelSettings(SettingsGroup):
    """The detector."""

    window_size: int = Field(120, ge=10, le=10_000, description="W: snapshots in the sliding window")
    anomaly_percentile: float = Field(
        99.0,
        gt=50,
        lt=100,
        description="percentile of the mesh's own history without alerts; an alert needs a score two decades above it, "
        "if that is more than the budget requires; also the threshold of the reconstruction loss and the embedding "
        "displacement",
    )
    weights: Location | None = Field(None, description="checkpoint file; none: the shipped one")
    network: str | None = Field(
        None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="network class in another package, package.module:Class, that checkpoints may name; its code "
        "runs in the service; none: only checkpoints of the built-in network are loaded",
    )
    warm_up_snapshots: int = Field(10, ge=1, description="snapshots of a mesh before its first verdict")
    threads: int = Field(1, ge=1, description="threads of one scoring process")


class PartitionSettings(SettingsGroup):
    """The division of a large mesh into parts."""

    max_services: int = Field(2000, ge=2, description="core services of one part; smaller meshes are not divided")


class ModelsSettings(SettingsGroup):
    """The model registry, from which a running service loads new weights."""

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
