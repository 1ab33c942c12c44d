"""What is told to people, as remembered between verdicts and over restarts: plain, frozen, equal if the same."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from model.verdict import Severity

Name = tuple[tuple[str, str], ...]  # sorted labels: what Alertmanager knows an alert by


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as Alertmanager knows them.

    Attributes:
        labels: who it is; another label is another alert.
        annotations: what is known of it now.
        starts_at: UTC; stays as it was first told.
        ends_at: UTC, not before the start; None: it fires.
        url: where it comes from; empty: not told.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: datetime
    ends_at: datetime | None = None
    url: str = ""

    @property
    def name(self) -> Name:
        return tuple(sorted(self.labels.items()))

    def ended(self, at: datetime, **annotations: str) -> "Alert":
        """Resolved at this time, with why."""
        return replace(self, ends_at=max(at, self.starts_at), annotations={**self.annotations, **annotations})


@dataclass(frozen=True, slots=True)
class AlertedIncident:
    """An incident that pages, as it was told last.

    Attributes:
        incident: its id.
        severity: as told; never falls.
        opened_at: when it was told first: an id that comes back later is another page.
        sequence: of its newest event, from 1.
        services: that it was about when a verdict last listed it.
        alert: which fires for it.
        document: the incident as on the wire (``IncidentDocument``).
    """

    incident: str
    severity: Severity
    opened_at: datetime
    sequence: int
    services: tuple[str, ...]
    alert: Alert
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeshAlerts:
    """What was told of one mesh.

    Attributes:
        at: when its newest verdict was heard; None: never.
        observed_at: of that verdict.
        open: incidents that page.
    """

    at: datetime | None = None
    observed_at: datetime | None = None
    open: tuple[AlertedIncident, ...] = ()


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """Something that happened to an incident, for webhooks: ``id`` is the same however often it is sent."""

    id: str
    at: datetime
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Transition:
    """What follows from a verdict: what is told from now on, alerts that end with it and what happened, in order."""

    told: MeshAlerts
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertState:
    """Everything that must outlive the process.

    Attributes:
        meshes: what was told, by mesh.
        ended: resolved alerts that some Alertmanager may not know of yet, oldest first.
        events: by webhook, those that it has not acknowledged, oldest first.
    """

    meshes: dict[str, MeshAlerts] = field(default_factory=dict)
    ended: tuple[Alert, ...] = ()
    events: dict[str, tuple[IncidentEvent, ...]] = field(default_factory=dict)

    def firing(self) -> Iterator[Alert]:
        """Of all meshes, whenever they were heard last."""
        return (page.alert for told in self.meshes.values() for page in told.open)

    def after(self, mesh: str, heard: Transition, webhooks: Iterable[str]) -> "AlertState":
        """With what a verdict of a mesh changed; an alert that fires again is no longer among the ended."""
        meshes = {**self.meshes, mesh: heard.told}
        events = {key: (*self.events.get(key, ()), *heard.events) for key in webhooks}
        back = {page.alert.name for page in heard.told.open}
        ended = tuple(alert for alert in (*self.ended, *heard.ended) if alert.name not in back)
        return AlertState(meshes, ended, events)

    def without(self, mesh: str) -> "AlertState":
        """As if this mesh had never been heard; what ended stays until it is delivered."""
        return replace(self, meshes={name: told for name, told in self.meshes.items() if name != mesh})

    def with_events(self, events: Mapping[str, tuple[IncidentEvent, ...]]) -> "AlertState":
        """With these events waiting instead."""
        return replace(self, events=dict(events))
