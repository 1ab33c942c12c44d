"""Settings of what pages: for all meshes, for one, for some of its services."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from model.incidents.tracking import AlertPolicy
from model.snapshot import Sensitivity, ServicePolicy
from serve_app.api.schemas.base import MOST_REASON, SERVICES
from serve_app.settings.base import AccessSettings, Address, Location, MeshName, Subject


def _named(service: str) -> str:
    if not re.search(SERVICES, service):
        raise ValueError("expected namespace/name, or namespace/* for all of a namespace")
    return service


class ServiceSettings(Subject):
    """What is said of the pages of a service; only what is given counts."""

    sensitivity: Literal["low", "normal", "high"] | None = Field(
        None, description="low: what pages is ten times as improbable; high: a third"
    )
    mute: str = Field("", max_length=MOST_REASON, description="why it pages nobody; empty: it does")


class MeshAlertSettings(Subject):
    """What holds for one mesh, collected or pushed."""

    services: dict[Annotated[str, AfterValidator(_named)], ServiceSettings] = Field(
        default_factory=dict, description="by namespace/name, or namespace/* for those of which nothing nearer is said"
    )


class AlertSettings(Subject):
    """What pages."""

    false_pages_per_day: float | None = Field(None, gt=0, description="budget; none: grows with the mesh, see budget()")
    confirm_snapshots: int = Field(2, ge=1, description="k: anomalous snapshots, of the last n, that open an incident")
    window_snapshots: int = Field(3, ge=1, description="n")
    clear_snapshots: int = Field(4, ge=1, description="quiet snapshots in a row that close an incident")
    mute_after_deletion_intervals: int = Field(2, ge=0, description="a planned deletion mutes its neighbours so long")
    meshes: dict[MeshName, MeshAlertSettings] = Field(
        default_factory=dict, description="by name: what holds for one mesh"
    )

    @model_validator(mode="after")
    def _confirm_fits(self) -> Self:
        if self.confirm_snapshots > self.window_snapshots:
            raise ValueError(
                f"confirm_snapshots: expected at most window_snapshots ({self.window_snapshots}), "
                f"came {self.confirm_snapshots}"
            )
        return self

    def policies(self, mesh: str) -> tuple[ServicePolicy, ...]:
        """What is said of the services of a mesh."""
        services = self.meshes[mesh].services if mesh in self.meshes else {}
        return tuple(
            ServicePolicy(service, said.sensitivity and Sensitivity(said.sensitivity), said.mute)
            for service, said in services.items()
        )

    def budget(self, services: int) -> float:
        """False pages a day that a mesh of so many services may cause.

        ``false_pages_per_day`` where it is set, else 1 up to 50 services and 1 more for each 50 above, so that a
        service is watched as closely in a large mesh as in a small one. Growing with the square root cost a tenth of
        the incidents in meshes of 300.
        """
        return AlertPolicy(self.false_pages_per_day).budget(services)


class ReceiverSettings(AccessSettings):
    """Somebody who is told of incidents."""

    url: Address


class WebhookSettings(ReceiverSettings):
    """A webhook; its URL is complete."""

    secret_file: Location | None = Field(None, description="signs each request (HMAC-SHA256); none: unsigned")


class NotifySettings(Subject):
    """Who is told of incidents, and how."""

    alertmanagers: tuple[ReceiverSettings, ...] = Field((), description="base URLs of all replicas of the cluster")
    webhooks: tuple[WebhookSettings, ...] = ()
    cluster: str = Field("default", min_length=1, max_length=256, description="label of every alert")
    external_url: Address | None = Field(None, description="base of this service as people reach it, for links")
    runbook_url: Address | None = Field(None, description="{cluster}, {mesh}, {incident} are filled in")
    dashboard_url: Address | None = Field(None, description="likewise; none: the page at external_url")
    path: Location | None = Field(None, description="directory for what was told; none: notify, in store.path")
    deadline_seconds: float = Field(10.0, gt=0, description="of one request")
    resend_seconds: float = Field(60.0, gt=0, le=120, description="between two posts of an unchanged alert")
    longest_backoff_seconds: float = Field(60.0, ge=1, description="between two tries of what fails")
    drain_seconds: float = Field(5.0, ge=0, description="for what still waits when the service ends")

    @model_validator(mode="after")
    def _all_different(self) -> Self:
        for name, receivers in (("alertmanagers", self.alertmanagers), ("webhooks", self.webhooks)):
            urls = [receiver.url.rstrip("/") for receiver in receivers]
            if twice := [url for url in urls if urls.count(url) > 1]:
                raise ValueError(f"{name}: expected each URL once, came {twice[0]} twice")
        return self
