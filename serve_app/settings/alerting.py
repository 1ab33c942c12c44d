"""Alert settings for all meshes, and the receivers of notifications."""

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from model.incidents.policy import AlertPolicy
from serve_app.plugins import RECEIVERS
from serve_app.settings.base import AccessSettings, Address, SettingsGroup

POLICY = AlertPolicy()  # the defaults


class AlertSettings(SettingsGroup):
    """When an incident opens and closes."""

    false_pages_per_day: float | None = Field(
        None, gt=0, description="budget of false alerts; none: 1 per 50 services, at least 1"
    )
    false_notices_per_day: float | None = Field(
        None, gt=0, description="budget of false notices; none: the budget of false alerts"
    )
    confirm_snapshots: int = Field(
        POLICY.confirm,
        ge=1,
        description="k: number of snapshots above the threshold among the last n that opens an alert; fewer, at least "
        "2, if they cover 45 s; below 1.5 times the threshold, k and n are two larger, up to 75 s",
    )
    window_snapshots: int = Field(POLICY.confirm_of, ge=1, description="n: see confirm_snapshots")
    latency_floor_ms: float = Field(
        1000 * POLICY.latency_floor_seconds,
        ge=0,
        description="minimum rise of a latency that counts in full: users do not notice less; a tenth of the usual p50 "
        "at the front door, and a quarter of the p99, if that is more",
    )
    clear_snapshots: int = Field(
        POLICY.clear,
        ge=1,
        description="normal snapshots in a row that close an incident; fewer, at least 2, if they cover a minute",
    )
    longest_gap_minutes: float = Field(
        POLICY.longest_gap_seconds / 60,
        ge=0,
        description="time without snapshots after which open incidents are closed, outcome unknown; shorter gaps keep "
        "them open",
    )
    reconstruction: Literal["context", "alert"] = Field(
        POLICY.reconstruction,
        description="what happens if the reconstruction loss or the embedding displacement of the whole mesh exceeds "
        "model.anomaly_percentile (the displacement: 1.5 times it) in 2 x confirm_snapshots of 2 x window_snapshots; "
        "context: verdicts show it; alert: their status is also anomalous",
    )

    @model_validator(mode="after")
    def _confirm_fits(self) -> Self:
        if self.confirm_snapshots > self.window_snapshots:
            raise ValueError(
                f"confirm_snapshots: {self.confirm_snapshots} is too large: the limit is window_snapshots "
                f"({self.window_snapshots})"
            )
        return self

    def budget(self, services: int) -> float:
        """Return the budget of false alerts for a mesh of this many services, 1/day."""
        return AlertPolicy(false_pages_per_day=self.false_pages_per_day).budget(services)


class AlertmanagerSettings(AccessSettings):
    """An Alertmanager."""

    url: Address = Field(description="its base URL")


class ReceiverChoice(SettingsGroup):
    """A receiver of events, of any kind."""

    kind: str = Field(description="webhook, grafana, pagerduty, slack, or a kind that an installed package provides")
    notices: bool = Field(True, description="whether to send notices to it, too")
    options: dict[str, Any] = Field(default_factory=dict, description="its options, which depend on the kind")

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        return RECEIVERS.check_name(kind)

    @field_validator("options")
    @classmethod
    def _are_of_the_kind(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "kind" in info.data:  # it is missing if it is wrong
            RECEIVERS.check_options(info.data["kind"], options)
        return options


class NotifySettings(SettingsGroup):
    """Receivers of incidents."""

    alertmanagers: tuple[AlertmanagerSettings, ...] = Field((), description="all replicas of an Alertmanager cluster")
    receivers: tuple[ReceiverChoice, ...] = Field(
        (), description="receivers of incident events: webhooks, Grafana, PagerDuty, Slack and others"
    )
    cluster: str = Field("default", min_length=1, max_length=256, description="value of each alert's label `cluster`")
    external_url: Address | None = Field(None, description="URL at which people reach this service, for links")

    @property
    def has_receivers(self) -> bool:
        return bool(self.alertmanagers or self.receivers)

    @model_validator(mode="before")
    @classmethod
    def _webhooks_are_receivers(cls, settings: Any) -> Any:
        """Treat version 0.2.0's ``webhooks`` as receivers of this kind."""
        if not isinstance(settings, dict) or not isinstance(settings.get("webhooks"), list | tuple):
            return settings
        receivers = [*settings.get("receivers", ())]
        # The same file may have been read before, into these receivers.
        options = [dict(receiver).get("options") for receiver in receivers]
        hooks = [{"kind": "webhook", "options": hook} for hook in settings["webhooks"] if hook not in options]
        settings = {name: value for name, value in settings.items() if name != "webhooks"}
        return {**settings, "receivers": [*receivers, *hooks]}

    @model_validator(mode="after")
    def _all_different(self) -> Self:
        urls = [alertmanager.url.rstrip("/") for alertmanager in self.alertmanagers]
        if twice := [url for url in urls if urls.count(url) > 1]:
            raise ValueError(f"alertmanagers: expected each URL once, got {twice[0]} twice")
        if duplicates := [receiver.kind for receiver in self.receivers if self.receivers.count(receiver) > 1]:
            raise ValueError(f"receivers: expected each receiver once, got the same {duplicates[0]} twice; remove one")
        return self
