"""Settings of alerts: for all meshes, for one mesh, for some of its services; and who is notified."""

from typing import Literal, Self

from pydantic import Field, model_validator

from model.incidents.tracking import AlertPolicy
from model.snapshot import Sensitivity, ServicePolicy
from serve_app.api.schemas.base import MOST_REASON
from serve_app.settings.base import AccessSettings, Address, Location, MeshName, ServiceId, ServicesId, SettingsGroup
from serve_app.settings.links import LinkTemplate


class ServiceSettings(SettingsGroup):
    """Alert policy of one service."""

    sensitivity: Literal["low", "normal", "high"] | None = Field(
        None, description="low: alerts need a ten times less probable anomaly; high: one three times more probable"
    )
    mute: str = Field("", max_length=MOST_REASON, description="reason for a mute; empty: not muted")


class MeshAlertSettings(SettingsGroup):
    """Alert settings of one mesh, collected or pushed."""

    services: dict[ServicesId, ServiceSettings] = Field(
        default_factory=dict,
        description="policies by namespace/name, or by namespace/* for services without one of their own",
    )
    entry_points: tuple[ServiceId, ...] = Field(
        (),
        description="services that get requests from outside although other services call them too, as namespace/name; "
        "services that no other service calls are found without it",
    )


class AlertSettings(SettingsGroup):
    """When an incident opens and closes."""

    false_pages_per_day: float | None = Field(
        None, gt=0, description="budget of false alerts; none: 1 per 50 services, at least 1"
    )
    false_notices_per_day: float | None = Field(
        None, gt=0, description="budget of false notices; none: the budget of false alerts"
    )
    confirm_snapshots: int = Field(
        3,
        ge=1,
        description="k: anomalous snapshots among the last n that open an incident; fewer, at least 2, if they cover "
        "45 s; one more of each below 1.5 times the page level, if that is at most a minute",
    )
    window_snapshots: int = Field(4, ge=1, description="n: see confirm_snapshots")
    clear_snapshots: int = Field(
        8,
        ge=1,
        description="normal snapshots in a row that close an incident; fewer, at least 2, if they cover two minutes",
    )
    longest_gap_minutes: float = Field(
        30.0,
        ge=0,
        description="time without snapshots after which open incidents are closed as ended, unknown how; shorter gaps "
        "keep them open",
    )
    mute_after_deletion_intervals: int = Field(
        2, ge=0, description="intervals for which a planned deletion mutes its neighbours"
    )
    meshes: dict[MeshName, MeshAlertSettings] = Field(
        default_factory=dict, description="settings of single meshes, by name"
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
        """Policies of the services of a mesh."""
        services = self.meshes[mesh].services if mesh in self.meshes else {}
        return tuple(
            ServicePolicy(service, chosen.sensitivity and Sensitivity(chosen.sensitivity), chosen.mute)
            for service, chosen in services.items()
        )

    def entry_points(self, mesh: str) -> frozenset[str]:
        """Named entry points of a mesh."""
        return frozenset(self.meshes[mesh].entry_points) if mesh in self.meshes else frozenset()

    def budget(self, services: int) -> float:
        """Budget of false alerts for a mesh of so many services, 1/day; see :meth:`AlertPolicy.budget`."""
        return AlertPolicy(self.false_pages_per_day).budget(services)


class ReceiverSettings(AccessSettings):
    """A receiver of notifications."""

    url: Address = Field(description="its URL")


class WebhookSettings(ReceiverSettings):
    """A webhook. Its URL is used unchanged."""

    secret_file: Location | None = Field(
        None, description="file with the key that signs each request (HMAC-SHA256); none: unsigned"
    )
    format: Literal["event", "slack"] = Field(
        "event", description="event: all that is known, as JSON; slack: a message for an incoming webhook of Slack"
    )


class NotifySettings(SettingsGroup):
    """Who is notified of incidents, and how."""

    alertmanagers: tuple[ReceiverSettings, ...] = Field(
        (), description="base URLs of all replicas of an Alertmanager cluster"
    )
    webhooks: tuple[WebhookSettings, ...] = Field((), description="HTTP endpoints that receive incidents as JSON")
    grafana: ReceiverSettings | None = Field(
        None, description="a Grafana that shows incidents as annotations: its base URL, and a token in a file"
    )
    notices: bool = Field(
        True, description="whether to send notices too, with the severity notice; they are no reason to wake someone"
    )
    cluster: str = Field(
        "default", min_length=1, max_length=256, description="value of the label cluster of every alert"
    )
    external_url: Address | None = Field(None, description="URL at which people reach this service, for links")
    runbook_url: LinkTemplate | None = Field(None, description="former name of links.runbook, which wins")
    dashboard_url: LinkTemplate | None = Field(
        None, description="former name of links.dashboard, which wins; none of both: the page at external_url"
    )
    path: Location | None = Field(
        None,
        description="directory for the state of notifications; none: the Redis of the store, or notify in store.path",
    )
    deadline_seconds: float = Field(10.0, gt=0, description="deadline of one request")
    resend_seconds: float = Field(60.0, gt=0, le=120, description="time between two posts of an unchanged alert")
    longest_backoff_seconds: float = Field(60.0, ge=1, description="longest wait before a failed request is retried")
    drain_seconds: float = Field(5.0, ge=0, description="time to send pending notifications when the service stops")

    @property
    def has_receivers(self) -> bool:
        """Whether anyone is notified."""
        return bool(self.alertmanagers or self.webhooks or self.grafana)

    @model_validator(mode="after")
    def _all_different(self) -> Self:
        for name, receivers in (("alertmanagers", self.alertmanagers), ("webhooks", self.webhooks)):
            urls = [receiver.url.rstrip("/") for receiver in receivers]
            if twice := [url for url in urls if urls.count(url) > 1]:
                raise ValueError(f"{name}: expected each URL once, came {twice[0]} twice")
        return self
