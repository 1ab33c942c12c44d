"""The state of alerting, kept between verdicts and across restarts. All values are frozen."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import Any

from model.verdict import Severity

LabelSet = tuple[tuple[str, str], ...]  # sorted; Alertmanager identifies an alert by its labels


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert in Alertmanager's terms.

    Attributes:
        labels: identity; a different label makes a different alert.
        annotations: current facts.
        starts_at: UTC; never changes after the first notification.
        ends_at: UTC, not before the start; None while it fires.
        url: link to the source; empty: no link.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: datetime
    ends_at: datetime | None = None
    url: str = ""

    @property
    def label_set(self) -> LabelSet:
        return tuple(sorted(self.labels.items()))

    def resolve(self, at: datetime, **annotations: str) -> "Alert":
        """Return the alert as resolved at this time, with more annotations."""
        return replace(self, ends_at=max(at, self.starts_at), annotations={**self.annotations, **annotations})


@dataclass(frozen=True, slots=True)
class IncidentAlert:
    """An open incident with its alert.

    Attributes:
        incident: id.
        opened_at: time of the first notification. An id that returns later opens another alert.
        sequence: number of its newest event, from 1.
        services: suspect and affected services of the last verdict that listed it.
        document: the incident in the HTTP interface's form (``IncidentDocument``).
        cause: first suspect in its newest event.
        next_cause: another first suspect, which no event has reported yet; empty: none.
        next_cause_since: time of the first verdict in a row with ``next_cause``.
        continues: id of the incident that it continues; empty: none.
        is_muted: whether a mute hides it, so that verdicts do not list it.
        clear_since: since when snapshots no longer show it while a mute may hide it; None: they do.
        actions: people's actions on it, oldest first, in the HTTP interface's form (``KeptActionDocument``).
    """

    incident: str
    severity: Severity
    opened_at: datetime
    sequence: int
    services: tuple[str, ...]
    alert: Alert
    document: dict[str, Any]
    _: KW_ONLY
    cause: str = ""
    next_cause: str = ""
    next_cause_since: datetime | None = None
    continues: str = ""
    is_muted: bool = False
    clear_since: datetime | None = None
    actions: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class EndedIncident:
    """An incident that ended recently: its end and its first suspect."""

    incident: str
    at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class MeshAlerts:
    """The incidents of one mesh.

    Attributes:
        at: when its newest verdict arrived; None before the first.
        observed_at: that verdict's snapshot time.
        open: incidents with a firing alert.
        ended: incidents that another one may continue, oldest first.
        interval_seconds: measured time between snapshots; 0: unknown.
    """

    at: datetime | None = None
    observed_at: datetime | None = None
    open: tuple[IncidentAlert, ...] = ()
    ended: tuple[EndedIncident, ...] = ()
    interval_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """A change to an incident, for receivers of events. Every attempt to send it has the same ``id``."""

    id: str
    at: datetime
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of one verdict: the mesh's new alerts, the alerts that it ended, and the events in order."""

    alerts: MeshAlerts
    ended: tuple[Alert, ...] = ()
    events: tuple[IncidentEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertState:
    """Everything that must outlive the process.

    Attributes:
        ended: resolved alerts that an Alertmanager may not have received yet, oldest first.
        events: unacknowledged events by receiver, oldest first.
    """

    meshes: dict[str, MeshAlerts] = field(default_factory=dict)
    ended: tuple[Alert, ...] = ()
    events: dict[str, tuple[IncidentEvent, ...]] = field(default_factory=dict)

    def apply(self, mesh: str, change: Transition, events: Mapping[str, tuple[IncidentEvent, ...]]) -> "AlertState":
        """Return the state after a mesh's transition, with its events by receiver. An alert that fires again is removed
        from ``ended``."""
        queues = {key: (*self.events.get(key, ()), *news) for key, news in events.items()}
        firing = {entry.alert.label_set for entry in change.alerts.open}
        resolved_alerts = tuple(alert for alert in (*self.ended, *change.ended) if alert.label_set not in firing)
        return AlertState({**self.meshes, mesh: change.alerts}, resolved_alerts, queues)

    def without(self, mesh: str) -> "AlertState":
        """Return the state without a mesh. Its ended alerts stay until they are delivered."""
        return replace(self, meshes={name: alerts for name, alerts in self.meshes.items() if name != mesh})
