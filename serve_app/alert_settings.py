"""Settings of what pages."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model.incidents import AlertPolicy


class Subject(BaseModel):
    """One group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class AlertSettings(Subject):
    """What pages."""

    false_pages_per_day: float | None = Field(None, gt=0, description="budget; none: grows with the mesh, see budget()")
    confirm_snapshots: int = Field(2, ge=1, description="k: anomalous snapshots, of the last n, that open an incident")
    window_snapshots: int = Field(3, ge=1, description="n")
    clear_snapshots: int = Field(4, ge=1, description="quiet snapshots in a row that close an incident")
    mute_after_deletion_intervals: int = Field(2, ge=0, description="a planned deletion mutes its neighbours so long")

    @model_validator(mode="after")
    def _confirm_fits(self) -> Self:
        if self.confirm_snapshots > self.window_snapshots:
            raise ValueError(
                f"confirm_snapshots: expected at most window_snapshots ({self.window_snapshots}), "
                f"came {self.confirm_snapshots}"
            )
        return self

    def budget(self, services: int) -> float:
        """False pages a day that a mesh of so many services may cause.

        ``false_pages_per_day`` where it is set, else 1 up to 50 services and 1 more for each 50 above, so that a
        service is watched as closely in a large mesh as in a small one. Growing with the square root cost a tenth of
        the incidents in meshes of 300.
        """
        return AlertPolicy(self.false_pages_per_day).budget(services)
