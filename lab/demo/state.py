"""The demo's state, and its changes by the story, a button or a verdict."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from lab.demo.controls import Controls, Option, apply_key, build_menu
from lab.demo.story import (
    Chapter,
    MeshEvent,
    chapter_of,
    event_text,
    name_suspects,
    start_of,
)
from lab.evaluation.measures.located import AlertRecord, LocatedFault, LocatedRun
from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import WIRING_KINDS
from lab.simulator.simulator import Simulator
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument

MESH = "demo"
WARM_UP = 70  # normal snapshots before the first event
KEPT = 400  # verdicts
PAUSED = "Paused at the first incident: look at the page, then press Resume"
CHANGE_SNAPSHOTS = 20  # for which a change counts as under way


@dataclass(frozen=True, slots=True)
class ScoredSnapshot:
    """A snapshot: index, verdict, and milliseconds from POST to verdict."""

    index: int
    verdict: VerdictDocument
    milliseconds: float


@dataclass(frozen=True, slots=True)
class DemoState:
    """The demo's whole state.

    Attributes:
        title: describes the mesh.
        menu: the faults and changes that the buttons start.
        chapter: the story; None after its end, or a button.
        snapshots: the newest last.
        news: label, one of ``lab.demo.lines.STYLES``, and text of each line about the newest snapshot.
        events: all faults and changes so far, in the order of their starts.
        alerts, notices: all so far, by incident, as last shown on the page.
        passed: whether the detector passed the story; None: it has not ended.
        notice: answer to the last button.
    """

    title: str
    interval_seconds: float
    menu: tuple[Option, ...]
    controls: Controls = field(default_factory=Controls)
    chapter: Chapter | None = None
    snapshots: tuple[ScoredSnapshot, ...] = ()
    news: tuple[tuple[str, str], ...] = ()
    events: tuple[MeshEvent, ...] = ()
    alerts: Mapping[str, AlertRecord] = field(default_factory=dict)
    notices: Mapping[str, AlertRecord] = field(default_factory=dict)
    passed: bool | None = None
    notice: str = ""

    @property
    def next_index(self) -> int:
        return self.snapshots[-1].index + 1 if self.snapshots else 0

    def time_of(self, index: int) -> datetime:
        """Return a snapshot's time, also before the oldest one in the state and in the future."""
        newest = self.snapshots[-1]
        return newest.verdict.observed_at + timedelta(seconds=(index - newest.index) * self.interval_seconds)

    def run(self, faults: Sequence[Fault]) -> LocatedRun:
        """Return the alerts and notices so far, and these faults, as the evaluation judges them.

        A fault shows at its culprit and ends at once: unlike a recording, the demo has no second run without faults.
        """
        begin = self.time_of(0) if self.snapshots else datetime.min.replace(tzinfo=UTC)
        alerts, notices = (
            tuple(record for record in records.values() if record.begin >= begin)
            for records in (self.alerts, self.notices)
        )
        located_faults = tuple(
            LocatedFault(
                start=self.time_of(fault.start),
                end=self.time_of(fault.end),
                recovered=self.time_of(fault.end),
                culprit=fault.service,
                candidates=frozenset(),
                affected=frozenset(),
                kind=fault.kind,
            )
            for fault in faults
        )
        return LocatedRun(
            alerts, located_faults, timedelta(seconds=self.interval_seconds), begin, datetime.max, notices
        )

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(event for event in self.events if isinstance(event, Fault))

    def choose_service(self, option: Option) -> str | None:
        """Return the service where an option starts next; None if no service is left."""
        busy = {event.service for event in self.events if self.is_under_way(event)}
        used_up = {event.service for event in self.events if event.kind in WIRING_KINDS}  # join, or are retired, once
        return option.choose_service(self.controls.turn, busy, used_up)

    def is_under_way(self, event: MeshEvent) -> bool:
        """Return whether an event can show in the newest snapshot or the next one."""
        end = event.end if isinstance(event, Fault) else event.at + CHANGE_SNAPSHOTS
        return start_of(event) <= self.next_index <= end


def begin(simulator: Simulator, seed: int, controls: Controls) -> DemoState:
    spec = simulator.spec
    namespaces = len({name.split("/")[0] for name in simulator.node_ids})
    calls = int((~simulator.mesh.topology.latent_calls).sum())
    title = (
        f"{spec.services:,} services in {namespaces} namespaces, {calls:,} calls, "
        f"a snapshot every {spec.interval_seconds:.0f} s (seed {seed})"
    )
    chapter = chapter_of(simulator.mesh, seed, WARM_UP)
    return DemoState(title, spec.interval_seconds, build_menu(simulator.mesh, seed), controls, chapter)


def advance_story(state: DemoState) -> DemoState:
    """Return the state with the events that the story starts in the next snapshot."""
    events: tuple[MeshEvent, ...] = (*state.chapter.changes, state.chapter.fault) if state.chapter else ()
    due = (event for event in events if start_of(event) == state.next_index and event not in state.events)
    return replace(state, events=(*state.events, *due))


def press(state: DemoState, key: str) -> DemoState:
    controls, option = apply_key(state.controls, key, state.menu)
    if option is None:
        return replace(state, controls=controls, notice="")
    if state.next_index < WARM_UP:
        return replace(state, notice=f"Not yet: TAGAE learns this mesh from the first {WARM_UP} snapshots")
    service = state.choose_service(option)
    if service is None:
        return replace(state, notice=f"No service is left for another {option.words}")
    event = option.start(service, state.next_index)
    notice = f"{event_text(event)} begins: {option.meaning}"
    return replace(state, controls=controls, chapter=None, events=(*state.events, event), notice=notice)


def add_verdict(state: DemoState, snapshot: ScoredSnapshot) -> DemoState:
    """Return the state with a snapshot and its verdict. At the first incident, it may pause."""
    verdict, controls, notice = snapshot.verdict, state.controls, state.notice
    alerts, notices = _update(state.alerts, verdict, verdict.alerts), _update(state.notices, verdict, verdict.notices)
    new_incidents = [incident for incident in verdict.alerts if incident.id not in state.alerts]
    new_incidents += [incident for incident in verdict.notices if incident.id not in state.notices]
    news = (*_news_of_events(state, snapshot), *map(_news_of_incident, new_incidents))
    if controls.pauses and alerts:
        controls, notice = replace(controls, paused=True, pauses=False), PAUSED
        news = (*news, ("paused", PAUSED))
    snapshots = (*state.snapshots, snapshot)[-KEPT:]
    return replace(
        state, snapshots=snapshots, alerts=alerts, notices=notices, news=news, controls=controls, notice=notice
    )


def _update(
    records: Mapping[str, AlertRecord], verdict: VerdictDocument, incidents: Sequence[IncidentDocument]
) -> dict[str, AlertRecord]:
    """Return the records by id, updated with the verdict's incidents."""
    updates = {}
    for incident in incidents:
        begin = records[incident.id].begin if incident.id in records else verdict.observed_at
        suspects = tuple(suspect.service for suspect in incident.suspects)
        updates[incident.id] = AlertRecord(incident.id, begin, suspects, frozenset(incident.affected))
    return {**records, **updates}


def _news_of_events(state: DemoState, snapshot: ScoredSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the faults and changes that begin in this snapshot."""
    if snapshot.index == 0:
        yield "learning", f"TAGAE learns this mesh from {WARM_UP} normal snapshots"
    for event in state.events:
        if start_of(event) == snapshot.index:
            is_fault = isinstance(event, Fault)
            requirement = "must raise an alert" if is_fault else "must not raise an alert"
            yield "fault" if is_fault else "change", f"{event_text(event)}: {requirement}"


def _news_of_incident(incident: IncidentDocument) -> tuple[str, str]:
    if incident.is_notice:
        return "notice", incident.headline
    suspects = name_suspects([suspect.service for suspect in incident.suspects])
    return "ALERT", f"{incident.severity} incident, suspects {suspects}. {incident.headline}"
