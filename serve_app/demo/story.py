"""What is done to the mesh in the demo, and whether what the detector said of it was right. No service in here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from serve_app.schemas import IncidentDocument, VerdictDocument
from serve_app.sources.faults import KINDS, Fault, candidates
from serve_app.sources.operations import Change
from serve_app.sources.physics import Mesh

DEPLOY, SCALE_OUT, FAULT, RECOVERY, END = 2, 10, 22, 42, 64  # snapshots after a chapter's start
PAUSE = 30  # quiet snapshots before the next chapter
GRACE_SECONDS = 120.0  # a page this long after the fault's end is still about it
FIRST_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Chapter:
    """A deploy and a scale-out, which must not page, then a fault, which must. Positions are snapshot indices.

    Attributes:
        start, end: start <= index < end.
        deploy, scale_out: benign, at services with traffic other than the culprit.
        fault: its ``service`` is the culprit.
    """

    start: int
    deploy: Change
    scale_out: Change
    fault: Fault
    end: int


@dataclass(frozen=True, slots=True)
class Page:
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


def chapters(mesh: Mesh, seed: int, first: int) -> Iterator[Chapter]:
    """Chapters without end, the first one from snapshot ``first`` on; kinds of faults come in shuffled rounds."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(77,)))
    busy = candidates(mesh, "error_burst")
    start = first
    while True:
        for kind in rng.permutation(KINDS):
            culprit = int(rng.choice(candidates(mesh, kind)))
            deployed, scaled = rng.choice(busy[busy != culprit], 2, replace=False)
            name = mesh.topology.node_ids
            yield Chapter(
                start,
                Change("deploy", name[deployed], start + DEPLOY),
                Change("scale_out", name[scaled], start + SCALE_OUT),
                Fault(kind, name[culprit], start + FAULT, start + RECOVERY),
                start + END,
            )
            start += END + PAUSE


def paged(pages: Sequence[Page], index: int, verdict: VerdictDocument) -> tuple[Page, ...]:
    """The pages after one more verdict: new incidents, and known ones that grew stronger."""
    known = {page.incident: page for page in pages}
    for incident in verdict.incidents:
        before = known.get(incident.id)
        known[incident.id] = _stronger(before, incident) if before else _page(incident, index)
    return tuple(known.values())


def judge(chapter: Chapter, pages: Sequence[Page], interval_seconds: float) -> Judgement:
    """What a chapter's pages are worth: all pages since the chapter before.

    The culprit is looked for where an incident was strongest. Passed only if one incident paged, it began between the
    fault's start and ``GRACE_SECONDS`` after its end, and the culprit is among its first three suspects.
    """
    fault = chapter.fault
    until = fault.end + GRACE_SECONDS / interval_seconds
    about = [page for page in pages if fault.start <= page.index <= until]
    others = [page for page in pages if page not in about]
    if others:
        return Judgement(False, f"paged without a fault: {_told(others[0])} in snapshot {others[0].index}")
    if not about:
        return Judgement(False, f"{fault.kind} at {fault.service} was not found")
    page, *further = about
    if fault.service not in page.suspects[:FIRST_SUSPECTS]:
        return Judgement(False, f"{fault.kind} at {fault.service} was found, but suspects are {_told(page)}")
    if further:
        return Judgement(False, f"a second page for {fault.kind} at {fault.service}: {_told(further[0])}")
    rank = page.suspects.index(fault.service) + 1
    after = (page.index - fault.start + 1) * interval_seconds
    return Judgement(
        True, f"{fault.kind} at {fault.service} paged within {after:.0f} s, culprit named as suspect {rank}"
    )


def _page(incident: IncidentDocument, index: int) -> Page:
    return Page(incident.id, index, incident.score, tuple(suspect.service for suspect in incident.suspects))


def _stronger(page: Page, incident: IncidentDocument) -> Page:
    return _page(incident, page.index) if incident.score > page.score else page


def _told(page: Page) -> str:
    return ", ".join(page.suspects[:FIRST_SUSPECTS]) or "nobody"
