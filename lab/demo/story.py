"""The story of the demo: which changes and faults happen when, and whether the alerts were right."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from lab.simulator.events.faults import KINDS, Fault, FaultKind, candidates
from lab.simulator.events.operations import WIRING_KINDS, BenignChange, ChangeKind
from lab.simulator.events.wiring import eligible_services
from lab.simulator.mesh.topology import Ints
from lab.simulator.physics.propagation import MeshPhysics
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument

MeshEvent = Fault | BenignChange

CHANGES, FAULT, RECOVERY, END = (2, 10), 22, 42, 64  # snapshots after a chapter's start
# Visible within minutes. The first one opens the story: its alert comes soonest, and one service alone causes it.
STORY_FAULTS: tuple[FaultKind, ...] = ("error_burst", "latency_injection", "retry_storm")
LONG: frozenset[ChangeKind] = frozenset({"canary"})  # would still be under way when the fault begins
FAULT_SNAPSHOTS = RECOVERY - FAULT
PAUSE = 30  # quiet snapshots before the next chapter
GRACE_SECONDS = 120.0  # an alert this long after the end of a fault still counts for it
FIRST_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Chapter:
    """Benign changes, which must not raise an alert, then a fault, which must. Positions are snapshot indices.

    Attributes:
        since: alerts from here on count.
        start, end: start <= index < end.
        changes: at services with traffic, never at the culprit.
        fault: its ``service`` is the culprit.
    """

    since: int
    start: int
    changes: tuple[BenignChange, ...]
    fault: Fault
    end: int

    @property
    def events(self) -> tuple[MeshEvent, ...]:
        """Return its changes and its fault."""
        return (*self.changes, self.fault)

    def shift(self, start: int, since: int) -> "Chapter":
        """Return the same chapter from snapshot ``start`` on."""
        by = start - self.start
        return Chapter(
            since,
            start,
            tuple(replace(change, at=change.at + by) for change in self.changes),
            replace(self.fault, start=self.fault.start + by, end=self.fault.end + by),
            self.end + by,
        )


@dataclass(frozen=True, slots=True)
class RaisedIncident:
    """An incident that raised an alert, or a notice.

    Attributes:
        incident: its id.
        index: snapshot of the first verdict with it.
        score: its highest score so far.
        suspects: services suspected when the score was highest, best first.
    """

    incident: str
    index: int
    score: float
    suspects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the detector passed a chapter, see :func:`judge`; ``reason`` says it in words."""

    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """The detector's findings about one fault so far.

    Attributes:
        fault: the fault.
        named_at: first snapshot in which the culprit is one of the first suspects; None if it never was.
        rank: best rank of the culprit.
    """

    fault: Fault
    named_at: int | None = None
    rank: int | None = None


def event_text(event: MeshEvent) -> str:
    """Return an event for people: ``error burst at shop/cart``."""
    return f"{event.kind.replace('_', ' ')} at {event.service}"


def start_of(event: MeshEvent) -> int:
    """Return the snapshot in which an event begins."""
    return event.start if isinstance(event, Fault) else event.at


def find_candidates(mesh: MeshPhysics) -> tuple[Mapping[FaultKind, Ints], Mapping[ChangeKind, Ints]]:
    """Return the positions of the services where each kind of fault and of change can start; kinds without any are left
    out."""
    faults = {kind: candidates(mesh, kind) for kind in KINDS}
    busy = candidates(mesh, "error_burst")
    changes = {kind: eligible_services(mesh, kind) for kind in get_args(ChangeKind)}
    changes = {kind: at if kind == "new_service" else np.intersect1d(at, busy) for kind, at in changes.items()}
    return {kind: at for kind, at in faults.items() if len(at)}, {kind: at for kind, at in changes.items() if len(at)}


def used_up_services(events: Collection[MeshEvent]) -> frozenset[str]:
    """Return the services that take no further event: a service joins, gets a canary or is retired only once."""
    return frozenset(event.service for event in events if event.kind in WIRING_KINDS)


def chapters(mesh: MeshPhysics, seed: int) -> Iterator[Chapter]:
    """Yield chapters without end, each from snapshot 0 on; kinds of faults and of changes come in shuffled rounds.

    The faults are ``STORY_FAULTS``, so that a spectator sees an alert within minutes. The others have buttons. The
    first chapter has the first of these kinds that is possible in the mesh.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(77,)))
    for_faults, for_changes = find_candidates(mesh)
    quick = [kind for kind in for_changes if kind not in LONG]
    name = mesh.topology.node_ids
    waiting: list[ChangeKind] = []
    for kind in _draw_kinds([kind for kind in STORY_FAULTS if kind in for_faults], rng):
        culprit = int(rng.choice(for_faults[kind]))
        changes, taken = [], [culprit]
        for at in CHANGES:
            waiting = waiting or [quick[i] for i in rng.permutation(len(quick))]
            change = waiting.pop()
            if len(free := np.setdiff1d(for_changes[change], taken)):
                taken.append(int(rng.choice(free)))
                changes.append(BenignChange(change, name[taken[-1]], at))
        yield Chapter(0, 0, tuple(changes), Fault(kind, name[culprit], FAULT, RECOVERY), END)


def _draw_kinds(possible: Sequence[FaultKind], rng: np.random.Generator) -> Iterator[FaultKind]:
    """Yield the kinds in shuffled rounds without end. The first round begins with the first kind."""
    yield from (*possible[:1], *rng.permutation(possible[1:]))
    while True:
        yield from rng.permutation(possible)


def update_incidents(
    raised: Sequence[RaisedIncident], index: int, incidents: Sequence[IncidentDocument]
) -> tuple[RaisedIncident, ...]:
    """Return the incidents after one more verdict with these: new ones, and known ones whose score rose."""
    known = {one.incident: one for one in raised}
    for incident in incidents:
        before = known.get(incident.id)
        if before is None or incident.score > before.score:
            suspects = tuple(suspect.service for suspect in incident.suspects)
            first = before.index if before else index
            known[incident.id] = RaisedIncident(incident.id, first, incident.score, suspects)
    return tuple(known.values())


def update_finding(
    finding: FaultFinding, index: int, verdict: VerdictDocument, interval_seconds: float
) -> FaultFinding:
    """Return the finding after one more verdict. An incident that an earlier fault opened may name a later culprit."""
    fault = finding.fault
    if not fault.start <= index <= _last_snapshot(fault, interval_seconds):
        return finding
    first_suspects = [incident.suspects[:FIRST_SUSPECTS] for incident in verdict.alerts]
    ranks = [rank for some in first_suspects for rank, one in enumerate(some, 1) if one.service == fault.service]
    if not ranks:
        return finding
    named_at = index if finding.named_at is None else finding.named_at
    return FaultFinding(fault, named_at, min(ranks if finding.rank is None else [*ranks, finding.rank]))


def find_cause(raised: RaisedIncident, faults: Sequence[Fault], interval_seconds: float) -> Fault | None:
    """Return the fault that an incident is about: of those active when it began, or until shortly before, one that it
    suspects, else the newest. None if no fault was active."""
    active = [fault for fault in faults if fault.start <= raised.index <= _last_snapshot(fault, interval_seconds)]
    return max(active, key=lambda fault: (_names(raised, fault), fault.start), default=None)


def judge(chapter: Chapter, raised: Sequence[RaisedIncident], interval_seconds: float) -> Judgement:
    """Judge a chapter by all alerts since the chapter before.

    The detector passed if

    - the fault raised an alert, between its start and ``GRACE_SECONDS`` after its end;
    - the strongest of these alerts has the culprit among its first three suspects when its score is highest;
    - each further alert in this time has it among them too. Such an alert repeats the first one: a person is disturbed
      again, but not misled. The reason counts these alerts;
    - no alert came at another time.
    """
    fault = chapter.fault
    raised = [one for one in raised if one.index >= chapter.since]
    own = sorted((one for one in raised if find_cause(one, [fault], interval_seconds)), key=lambda one: -one.score)
    others = [one for one in raised if one not in own]
    if others:
        return Judgement(
            False, f"false alert without a fault: {name_suspects(others[0])} in snapshot {others[0].index}"
        )
    if not own:
        return Judgement(False, f"{event_text(fault)}: no alert")
    strongest, *further = own
    if not _names(strongest, fault):
        return Judgement(False, f"{event_text(fault)}: alert, but the suspects are {name_suspects(strongest)}")
    if astray := [one for one in further if not _names(one, fault)]:
        return Judgement(
            False, f"{event_text(fault)}: a second alert without the culprit, suspects {name_suspects(astray[0])}"
        )
    rank = strongest.suspects.index(fault.service) + 1
    delay = (min(one.index for one in own) - fault.start + 1) * interval_seconds
    repeats = f"; {len(further)} further alert{'s' * (len(further) != 1)} on the same fault" if further else ""
    return Judgement(True, f"{event_text(fault)}: alert within {delay:.0f} s, culprit is suspect {rank}{repeats}")


def name_suspects(raised: RaisedIncident) -> str:
    """Return the first suspects for people."""
    return ", ".join(raised.suspects[:FIRST_SUSPECTS]) or "none"


def _names(raised: RaisedIncident, fault: Fault) -> bool:
    """Whether the culprit of a fault is one of the first suspects."""
    return fault.service in raised.suspects[:FIRST_SUSPECTS]


def _last_snapshot(fault: Fault, interval_seconds: float) -> float:
    return fault.end + GRACE_SECONDS / interval_seconds
