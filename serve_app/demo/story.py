"""What is done to the mesh in the demo, and whether what the detector said of it was right. No service in here."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument
from serve_app.simulator.events.faults import KINDS, Fault, FaultKind, candidates
from serve_app.simulator.events.operations import WIRING_KINDS, BenignChange, ChangeKind
from serve_app.simulator.events.wiring import possible
from serve_app.simulator.mesh.topology import Ints
from serve_app.simulator.physics.propagation import MeshPhysics

Deed = Fault | BenignChange

CHANGES, FAULT, RECOVERY, END = (2, 10), 22, 42, 64  # snapshots after a chapter's start
TOLD: tuple[FaultKind, ...] = ("latency_injection", "error_burst", "retry_storm")  # show at the culprit in minutes
LONG: frozenset[ChangeKind] = frozenset({"canary"})  # not over when a chapter's fault begins: left to keys
FAULT_SNAPSHOTS = RECOVERY - FAULT
PAUSE = 30  # quiet snapshots before the next chapter
GRACE_SECONDS = 120.0  # a page this long after the fault's end is still about it
FIRST_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Chapter:
    """Benign changes, which must not page, then a fault, which must. Positions are snapshot indices.

    Attributes:
        since: pages from here on count.
        start, end: start <= index < end.
        changes: benign, at services with traffic other than the culprit.
        fault: its ``service`` is the culprit.
    """

    since: int
    start: int
    changes: tuple[BenignChange, ...]
    fault: Fault
    end: int

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """All that is done in it."""
        return (*self.changes, self.fault)

    def moved(self, start: int, since: int) -> "Chapter":
        """The same chapter from snapshot ``start`` on."""
        by = start - self.start
        return Chapter(
            since,
            start,
            tuple(replace(change, at=change.at + by) for change in self.changes),
            replace(self.fault, start=self.fault.start + by, end=self.fault.end + by),
            self.end + by,
        )


@dataclass(frozen=True, slots=True)
class ShownIncident:
    """An incident as it was paged.

    Attributes:
        incident: its id.
        index: snapshot of the first verdict with it.
        score: of its strongest verdict so far.
        suspects: services suspected in its strongest verdict, best first.
    """

    incident: str
    index: int
    score: float
    suspects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a chapter's fault was found, its culprit named, and nothing else paged; ``reason`` says it in words."""

    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FaultFinding:
    """What became of one fault so far.

    Attributes:
        fault: it.
        named: snapshot since its start in which the culprit was first among the first suspects; None if it never was.
        rank: best of the culprit among them.
    """

    fault: Fault
    named: int | None = None
    rank: int | None = None


def deed_text(deed: Deed) -> str:
    """A deed for people: ``error burst at shop/cart``."""
    return f"{deed.kind.replace('_', ' ')} at {deed.service}"


def begins(deed: Deed) -> int:
    """The snapshot in which a deed begins."""
    return deed.start if isinstance(deed, Fault) else deed.at


def places(mesh: MeshPhysics) -> tuple[Mapping[FaultKind, Ints], Mapping[ChangeKind, Ints]]:
    """Positions of the services with traffic where each kind of fault and of change is one; no kind without any."""
    faults = {kind: candidates(mesh, kind) for kind in KINDS}
    busy = candidates(mesh, "error_burst")
    changes = {kind: possible(mesh, kind) for kind in get_args(ChangeKind)}
    changes = {kind: at if kind == "new_service" else np.intersect1d(at, busy) for kind, at in changes.items()}
    return {kind: at for kind, at in faults.items() if len(at)}, {kind: at for kind, at in changes.items() if len(at)}


def spent(deeds: Collection[Deed]) -> frozenset[str]:
    """Services with which nothing more can be done: a service joins, is tried as a canary or is retired but once."""
    return frozenset(deed.service for deed in deeds if deed.kind in WIRING_KINDS)


def chapters(mesh: MeshPhysics, seed: int) -> Iterator[Chapter]:
    """Chapters without end, each from snapshot 0 on; kinds of faults and of changes come in shuffled rounds.

    Of the faults those ``TOLD``: who only watches shall see in minutes what a page is. The others are left to keys.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(77,)))
    for_faults, for_changes = places(mesh)
    quick = [kind for kind in for_changes if kind not in LONG]
    name = mesh.topology.node_ids
    waiting: list[ChangeKind] = []
    while True:
        for kind in rng.permutation([kind for kind in TOLD if kind in for_faults]):
            culprit = int(rng.choice(for_faults[kind]))
            changes, taken = [], [culprit]
            for at in CHANGES:
                waiting = waiting or [quick[i] for i in rng.permutation(len(quick))]
                change = waiting.pop()
                if len(free := np.setdiff1d(for_changes[change], taken)):
                    taken.append(int(rng.choice(free)))
                    changes.append(BenignChange(change, name[taken[-1]], at))
            yield Chapter(0, 0, tuple(changes), Fault(kind, name[culprit], FAULT, RECOVERY), END)


def paged(pages: Sequence[ShownIncident], index: int, verdict: VerdictDocument) -> tuple[ShownIncident, ...]:
    """The pages after one more verdict: new incidents, and known ones that grew stronger."""
    known = {page.incident: page for page in pages}
    for incident in verdict.incidents:
        before = known.get(incident.id)
        known[incident.id] = _stronger(before, incident) if before else _page(incident, index)
    return tuple(known.values())


def found(finding: FaultFinding, index: int, verdict: VerdictDocument, interval_seconds: float) -> FaultFinding:
    """The finding after one more verdict. An incident that an earlier fault opened may name a later culprit."""
    fault = finding.fault
    if not fault.start <= index <= _until(fault, interval_seconds):
        return finding
    firsts = [incident.suspects[:FIRST_SUSPECTS] for incident in verdict.incidents]
    ranks = [rank for first in firsts for rank, who in enumerate(first, 1) if who.service == fault.service]
    if not ranks:
        return finding
    named = index if finding.named is None else finding.named
    return FaultFinding(fault, named, min(ranks if finding.rank is None else [*ranks, finding.rank]))


def about(page: ShownIncident, faults: Sequence[Fault], interval_seconds: float) -> Fault | None:
    """The fault a page is about: of those acting when it began, or until shortly before, one it suspects, else the
    newest. None where no fault can be what it is about."""
    acting = [fault for fault in faults if fault.start <= page.index <= _until(fault, interval_seconds)]
    return max(acting, key=lambda fault: (fault.service in page.suspects[:FIRST_SUSPECTS], fault.start), default=None)


def judge(chapter: Chapter, pages: Sequence[ShownIncident], interval_seconds: float) -> Judgement:
    """What a chapter's pages are worth: all pages since the chapter before.

    The culprit is looked for where an incident was strongest. Passed only if one incident paged, it began between the
    fault's start and ``GRACE_SECONDS`` after its end, and the culprit is among its first three suspects.
    """
    fault = chapter.fault
    pages = [page for page in pages if page.index >= chapter.since]
    own = [page for page in pages if about(page, [fault], interval_seconds)]
    others = [page for page in pages if page not in own]
    if others:
        return Judgement(False, f"paged without a fault: {_told(others[0])} in snapshot {others[0].index}")
    if not own:
        return Judgement(False, f"{deed_text(fault)} was not found")
    page, *further = own
    if fault.service not in page.suspects[:FIRST_SUSPECTS]:
        return Judgement(False, f"{deed_text(fault)} was found, but suspects are {_told(page)}")
    if further:
        return Judgement(False, f"a second page for {deed_text(fault)}: {_told(further[0])}")
    rank = page.suspects.index(fault.service) + 1
    after = (page.index - fault.start + 1) * interval_seconds
    return Judgement(True, f"{deed_text(fault)} paged within {after:.0f} s, culprit named as suspect {rank}")


def _until(fault: Fault, interval_seconds: float) -> float:
    return fault.end + GRACE_SECONDS / interval_seconds


def _page(incident: IncidentDocument, index: int) -> ShownIncident:
    return ShownIncident(incident.id, index, incident.score, tuple(suspect.service for suspect in incident.suspects))


def _stronger(page: ShownIncident, incident: IncidentDocument) -> ShownIncident:
    return _page(incident, page.index) if incident.score > page.score else page


def _told(page: ShownIncident) -> str:
    return ", ".join(page.suspects[:FIRST_SUSPECTS]) or "nobody"
