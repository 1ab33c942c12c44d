"""Settings of the detector."""

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
        "if that is more than the budget asks for; also the threshold of the reconstruction loss and of the embedding "
        "displacement",
    )
    weights: Location | None = Field(None, description="checkpoint file; none: the shipped one")
    network: str | None = Field(
        None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="class of a network of another package, package.module:Class, that checkpoints may name; its code "
        "runs in the service; none: only checkpoints of the built-in network are loaded",
    )
    warm_up_snapshots: int = Field(10, ge=1, description="snapshots of a mesh before its first verdict")
    threads: int = Field(1, ge=1, description="threads of one scoring process")
