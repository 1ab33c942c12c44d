"""From a score of each service to a verdict, alike for every contender.

A service alarms when its score is above the threshold in two snapshots in a row: what *lasts* is the lesser of the two,
and two snapshots with a gap between them are not in a row. Services that alarm and call each other are one page, which
is followed from snapshot to snapshot by the services that it shares with the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from model.snapshot import MeshSnapshot
from model.verdict import Incident, Severity, Status, Suspect, Verdict

Floats = NDArray[np.float64]

SUSPECTS = 5  # named at most
QUIET = 2  # snapshots without an alarm that end a page
GAP = 1.5  # intervals from which two snapshots are not in a row


@dataclass(frozen=True, slots=True)
class Page:
    """A page that is open.

    Attributes:
        number: from 1.
        since: the snapshot in which it opened.
        services: that were part of it so far.
        quiet: snapshots since its last alarm.
    """

    number: int
    since: datetime
    services: frozenset[str]
    quiet: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """What paging remembers between snapshots.

    Attributes:
        interval_seconds: expected between two snapshots.
        warm_up: the verdict of this snapshot, counted from 1, is the first one.
        sequence: snapshots seen.
        observed_at: time of the newest one.
        scores: of its services.
        open: pages.
        pages: opened so far.
    """

    interval_seconds: float
    warm_up: int
    sequence: int = 0
    observed_at: datetime | None = None
    scores: dict[str, float] = field(default_factory=dict)
    open: tuple[Page, ...] = ()
    pages: int = 0

    @property
    def learns(self) -> bool:
        """Whether the snapshot that comes next belongs to the warm-up."""
        return self.sequence + 1 < self.warm_up

    def resumes(self, snapshot: MeshSnapshot) -> bool:
        """Whether there is a gap before this snapshot, or it is the first one."""
        if self.observed_at is None:
            return True
        return not 0 < (snapshot.observed_at - self.observed_at).total_seconds() < GAP * self.interval_seconds


def lasting(watch: Watch, snapshot: MeshSnapshot, scores: Floats) -> Floats:
    """The lesser of this snapshot's scores and those of the one before, ``[N]``; 0 where there was none."""
    before = {} if watch.resumes(snapshot) else watch.scores
    return np.minimum(scores, [before.get(name, 0.0) for name in snapshot.node_ids])


def judged(
    watch: Watch, snapshot: MeshSnapshot, scores: Floats, threshold: float, blame: Floats | None = None
) -> tuple[Verdict, Watch]:
    """The verdict, and what is remembered.

    Args:
        watch: so far.
        snapshot: this one.
        scores: of each service in this snapshot, ``[N]``, 0 or more.
        threshold: what lasts above it alarms.
        blame: by which suspects are ranked, ``[N]``, 0 or more; by default what lasts.
    """
    names, lasts = snapshot.node_ids, lasting(watch, snapshot, scores)
    blame = lasts if blame is None else blame
    alarming = np.zeros(len(lasts), bool) if watch.learns else lasts > threshold
    open_now, opened = _followed(watch, _groups(snapshot, alarming), snapshot.observed_at)
    incidents = tuple(_incident(page, names, lasts, alarming, blame) for page in open_now)
    quiet = Status.WARMING_UP if watch.learns else Status.NORMAL
    verdict = Verdict(
        observed_at=snapshot.observed_at,
        sequence=watch.sequence + 1,
        status=Status.ANOMALOUS if incidents else quiet,
        mesh_score=0.0 if watch.learns else float(lasts.max()),
        threshold=threshold,
        probability=float(bool(incidents)),
        suspects=_suspects(names, blame),
        incidents=incidents,
    )
    remembered = dict(zip(names, scores.tolist(), strict=True))
    return verdict, replace(
        watch,
        sequence=watch.sequence + 1,
        observed_at=snapshot.observed_at,
        scores=remembered,
        open=open_now,
        pages=watch.pages + opened,
    )


def _groups(snapshot: MeshSnapshot, alarming: NDArray[np.bool_]) -> list[frozenset[str]]:
    """Services that alarm and hang together by direct calls."""
    group = {int(i): {int(i)} for i in np.flatnonzero(alarming)}
    for source, destination in snapshot.edge_index[:, alarming[snapshot.edge_index].all(axis=0)].T.tolist():
        if group[source] is not group[destination]:
            merged = group[source] | group[destination]
            group.update(dict.fromkeys(merged, merged))
    apart = {id(members): members for members in group.values()}
    return [frozenset(snapshot.node_ids[i] for i in members) for members in apart.values()]


def _followed(watch: Watch, groups: Sequence[frozenset[str]], now: datetime) -> tuple[tuple[Page, ...], int]:
    """The open pages, and how many are new. A group that shares services with pages is the oldest of them."""
    kept = {page.number: replace(page, quiet=page.quiet + 1) for page in watch.open}
    opened = 0
    for group in groups:
        owners = sorted(number for number, page in kept.items() if page.services & group)
        if not owners:
            opened += 1
            kept[watch.pages + opened] = Page(watch.pages + opened, now, group)
            continue
        first = kept[owners[0]]
        services = group.union(*(kept.pop(number).services for number in owners))
        kept[first.number] = Page(first.number, first.since, services)
    return tuple(page for page in kept.values() if page.quiet < QUIET), opened


def _incident(page: Page, names: Sequence[str], lasts: Floats, alarming: NDArray[np.bool_], blame: Floats) -> Incident:
    """A page as it is now; all its services are suspects while it is quiet."""
    rows = np.array([i for i, name in enumerate(names) if name in page.services], np.int64)
    loud = rows[alarming[rows]] if len(rows) else rows
    shown = loud if len(loud) else rows
    return Incident(
        id=f"page-{page.number}",
        since=page.since,
        severity=Severity.MINOR,
        score=float(lasts[shown].max()) if len(shown) else 0.0,
        suspects=_suspects([names[i] for i in shown], blame[shown]),
        affected=tuple(sorted(page.services)),
    )


def _suspects(names: Sequence[str], blame: Floats) -> tuple[Suspect, ...]:
    """The strongest first; where nobody stands out, all alike."""
    order = np.argsort(-blame, kind="stable")[:SUSPECTS]
    total = float(blame[order].sum())
    return tuple(Suspect(names[i], float(blame[i]) / total if total > 0 else 1.0 / len(order)) for i in order)
