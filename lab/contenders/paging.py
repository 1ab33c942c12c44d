"""From scores of services to a verdict, in the same way for every contender.

A service alarms if its score is above the threshold in two snapshots in a row. The *lasting* score is the lesser of the
two. Two snapshots with a gap between them are not in a row. Services that alarm and call each other share a page. A
page continues as long as the alarming services overlap with its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from model.snapshot import MeshSnapshot
from model.verdict import Incident, Severity, Status, Suspect, Verdict

Floats = NDArray[np.float64]

SUSPECTS = 5  # most suspects of a verdict or page
QUIET = 2  # snapshots without an alarm after which a page ends
GAP = 1.5  # intervals; two snapshots that are further apart are not in a row


@dataclass(frozen=True, slots=True)
class Page:
    """An open page.

    Attributes:
        number: counted from 1.
        since: time of the snapshot in which it opened.
        services: all services that have been part of it.
        quiet: snapshots since its last alarm.
    """

    number: int
    since: datetime
    services: frozenset[str]
    quiet: int = 0


@dataclass(frozen=True, slots=True)
class PagingState:
    """State between snapshots.

    Attributes:
        interval_seconds: expected time between two snapshots.
        warm_up: number of the snapshot that gets the first verdict, counted from 1.
        sequence: number of snapshots so far.
        observed_at: time of the newest snapshot.
        scores: of the services in the newest snapshot.
        open: open pages.
        pages: number of pages opened so far.
    """

    interval_seconds: float
    warm_up: int
    sequence: int = 0
    observed_at: datetime | None = None
    scores: dict[str, float] = field(default_factory=dict)
    open: tuple[Page, ...] = ()
    pages: int = 0

    @property
    def is_warming_up(self) -> bool:
        return self.sequence + 1 < self.warm_up

    def has_gap_before(self, snapshot: MeshSnapshot) -> bool:
        if self.observed_at is None:
            return True
        return not 0 < (snapshot.observed_at - self.observed_at).total_seconds() < GAP * self.interval_seconds


def build_verdict(
    watch: PagingState, snapshot: MeshSnapshot, scores: Floats, threshold: float
) -> tuple[Verdict, PagingState]:
    """Return the verdict and the next state.

    Args:
        watch: state after the snapshots before.
        snapshot: the new snapshot.
        scores: of its services, ``[N]``, 0 or more.
        threshold: services with a higher lasting score alarm.
    """
    names = snapshot.node_ids
    before = {} if watch.has_gap_before(snapshot) else watch.scores
    lasting = np.minimum(scores, [before.get(name, 0.0) for name in names])
    alarming = np.zeros(len(lasting), bool) if watch.is_warming_up else lasting > threshold
    open_now, opened = _follow(watch, _group(snapshot, alarming), snapshot.observed_at)
    incidents = tuple(_incident(page, names, lasting, alarming) for page in open_now)
    quiet = Status.WARMING_UP if watch.is_warming_up else Status.NORMAL
    verdict = Verdict(
        observed_at=snapshot.observed_at,
        sequence=watch.sequence + 1,
        status=Status.ANOMALOUS if incidents else quiet,
        mesh_score=0.0 if watch.is_warming_up else float(lasting.max()),
        threshold=threshold,
        probability=float(bool(incidents)),
        suspects=_suspects(names, lasting),
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


def _group(snapshot: MeshSnapshot, alarming: NDArray[np.bool_]) -> list[frozenset[str]]:
    graph = nx.Graph()
    graph.add_nodes_from(np.flatnonzero(alarming).tolist())
    graph.add_edges_from(snapshot.edge_index[:, alarming[snapshot.edge_index].all(axis=0)].T.tolist())
    return [frozenset(snapshot.node_ids[i] for i in members) for members in nx.connected_components(graph)]


def _follow(watch: PagingState, groups: Sequence[frozenset[str]], now: datetime) -> tuple[tuple[Page, ...], int]:
    """Return the open pages and the number of new ones. A group that overlaps with open pages continues the oldest."""
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


def _incident(page: Page, names: Sequence[str], lasting: Floats, alarming: NDArray[np.bool_]) -> Incident:
    """Build the incident of a page. While the page is quiet, all its services are suspects."""
    rows = np.array([i for i, name in enumerate(names) if name in page.services], np.int64)
    loud = rows[alarming[rows]] if len(rows) else rows
    shown = loud if len(loud) else rows
    return Incident(
        id=f"page-{page.number}",
        since=page.since,
        severity=Severity.MINOR,
        score=float(lasting[shown].max()) if len(shown) else 0.0,
        suspects=_suspects([names[i] for i in shown], lasting[shown]),
        affected=tuple(sorted(page.services)),
    )


def _suspects(names: Sequence[str], lasting: Floats) -> tuple[Suspect, ...]:
    """Return the suspects, the strongest first; all get the same score if all scores are 0."""
    order = np.argsort(-lasting, kind="stable")[:SUSPECTS]
    total = float(lasting[order].sum())
    return tuple(Suspect(names[i], float(lasting[i]) / total if total > 0 else 1.0 / len(order)) for i in order)
