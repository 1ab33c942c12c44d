"""Settings for the scoring replicas."""

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.base import SettingsGroup

GPU_BATCH = 8  # groups that share the fixed cost of a GPU pass
CPU_BATCH = 2  # groups: one snapshot's usual number, so that its services are computed once


class ScorerSettings(SettingsGroup):
    """The place where snapshots are scored, and the scoring replicas."""

    place: Literal["auto", "session", "replicas"] = Field(
        "auto",
        description="session: in the process that holds the mesh, on its CPU; replicas: in processes of their own; "
        "auto: replicas if there is a GPU or more than one node, else the session",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description="auto: a GPU if there is one and all ops pass their check on it, else the CPU; cuda: a GPU; "
        "without a working one, the service does not start; `tagae serve --single` uses a GPU only with cuda",
    )
    num_replicas: int = Field(2, ge=1, description="replicas")
    max_replicas: int | None = Field(None, ge=1, description="autoscaling limit for num_replicas; none: no autoscaling")
    meta_replicas: int = Field(1, ge=1, description="replicas that combine the scores of a divided mesh's parts")
    max_meta_replicas: int | None = Field(
        None, ge=1, description="autoscaling limit for meta_replicas; none: no autoscaling"
    )
    num_cpus: float = Field(
        0.5, ge=0, description="CPUs reserved per replica; below 1 so that all deployments run on two cores"
    )
    num_gpus: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of a GPU for each process that uses one, also of its memory; 0: no reservation and no limit",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.place == "session" and self.device == "cuda":
            raise ValueError("expected device cpu or auto with place session, which scores on the CPU, got cuda")
        return self
