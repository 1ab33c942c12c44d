"""One mesh's settings: its source, weights, services, links, logs and traces."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from model.snapshot import Owner, Sensitivity, ServicePolicy
from model.verdict import Objective
from serve_app.api.schemas.base import MAX_CONTACT, MAX_REASON, MAX_TEAM
from serve_app.settings.base import Location, ServiceId, ServicePattern, ServicesId, SettingsGroup
from serve_app.settings.links import LinkSettings
from serve_app.settings.source import SourceSettings
from serve_app.settings.tools import MeshLogSettings, MeshTraceSettings

Share = Annotated[float, Field(gt=0, lt=1)]


class ServiceSettings(SettingsGroup):
    """One service's alert policy."""

    sensitivity: Literal["low", "normal", "high"] | None = Field(
        None,
        description="low: alert only on anomalies ten times rarer; high: also on anomalies three times more common",
    )
    mute: str = Field("", max_length=MAX_REASON, description="reason for a mute; empty: not muted")


class OwnerSettings(SettingsGroup):
    """The owner of the services that match a pattern."""

    team: str = Field(min_length=1, max_length=MAX_TEAM, description="name of the team, for routing alerts")
    contact: str = Field("", max_length=MAX_CONTACT, description="where to reach the team, for example a channel")


USUAL_LATENCY_SHARE = 0.99


class ObjectiveSettings(SettingsGroup):
    """Service level objectives of a front door."""

    availability: Share | None = Field(
        None, description="share of requests that succeed, such as 0.999; none: no objective"
    )
    latency_ms: float | None = Field(
        None, gt=0, description="longest duration of a fast request, a bound of its histogram; none: no objective"
    )
    latency_share: Share = Field(USUAL_LATENCY_SHARE, description="share of requests that are fast")
    days: float = Field(30.0, ge=1, le=365, description="period of the error budget")

    @model_validator(mode="after")
    def _promises_something(self) -> Self:
        if self.availability is None and self.latency_ms is None:
            raise ValueError("expected availability, latency_ms or both, got neither")
        # Not based on which fields are set: processes pass settings on with all fields.
        if self.latency_ms is None and self.latency_share != USUAL_LATENCY_SHARE:
            raise ValueError("latency_share: latency_ms is missing")
        return self

    def objectives(self, service: str) -> Iterator[Objective]:
        if self.availability is not None:
            yield Objective(service, self.availability, self.days)
        if self.latency_ms is not None:
            yield Objective(service, self.latency_share, self.days, self.latency_ms / 1000)


class MeshSettings(SourceSettings):
    """Everything about one mesh."""

    weights: Location | None = Field(None, description="checkpoint file of this mesh; none: model.weights")
    entry_points: tuple[ServiceId, ...] = Field(
        (),
        description="services that get requests from outside although other services call them too, as namespace/name; "
        "services that no other service calls are recognized without it",
    )
    services: dict[ServicesId, ServiceSettings] = Field(
        default_factory=dict,
        description="policies by namespace/name, or by namespace/* for services without a policy of their own",
    )
    owners: dict[ServicePattern, OwnerSettings] = Field(
        default_factory=dict,
        description="teams by namespace/name, with * for any characters; the pattern with the most other characters "
        "takes precedence, also over labels and pushed owners",
    )
    objectives: dict[ServiceId, ObjectiveSettings] = Field(
        default_factory=dict,
        description="service level objectives of front doors, by namespace/name; incidents show their use of the error "
        "budget, and `tagae rules --objectives` writes alert rules",
    )
    links: LinkSettings = Field(
        default_factory=LinkSettings,
        description="this mesh's links; each takes precedence over the same link in the group links",
    )
    logs: MeshLogSettings = Field(default_factory=MeshLogSettings)
    traces: MeshTraceSettings = Field(default_factory=MeshTraceSettings)

    @property
    def policies(self) -> tuple[ServicePolicy, ...]:
        return tuple(
            ServicePolicy(service, policy.sensitivity and Sensitivity(policy.sensitivity), policy.mute)
            for service, policy in self.services.items()
        )

    @property
    def service_objectives(self) -> tuple[Objective, ...]:
        return tuple(
            objective for service, settings in self.objectives.items() for objective in settings.objectives(service)
        )

    @property
    def owner_patterns(self) -> tuple[tuple[str, Owner], ...]:
        return tuple((pattern, Owner(owner.team, owner.contact)) for pattern, owner in self.owners.items())
