"""Kinds of gaps in telemetry: which values are missing, and when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from lab.simulator.telemetry.silence import silence
from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, EdgeMetric, MeshSnapshot

FIRST = 30  # snapshots before the first gap
SHORTEST_PAUSE = 4  # snapshots between two gaps; it is at least twice as long as the gap
AT_CULPRIT = 0.5  # share of the gaps during a fault that also hide its culprit, the worst place


class Missing(StrEnum):
    """What is missing in a gap."""

    METRIC = "metric"  # one metric of some services, and of the calls that they report
    SERVICE = "service"  # all that some services report: their metrics, and their calls
    EVERYWHERE = "everywhere"  # one metric of all services and calls
    RANDOM = "random"  # single values, all the time


@dataclass(frozen=True, slots=True)
class Pattern:
    """How telemetry goes missing.

    Attributes:
        name: for the table.
        missing: what is missing in a gap.
        lengths: snapshots of a gap, one of these.
        share: of the services that a gap hides, or of the values that are missing at random.
    """

    name: str
    missing: Missing
    lengths: tuple[int, ...] = ()
    share: float = 0.15


ANY_LENGTH = (1, 2, 4, 8, 20)
PATTERNS = (
    Pattern("one metric of a service", Missing.METRIC, ANY_LENGTH),
    Pattern("a service, 1 snapshot", Missing.SERVICE, (1,)),
    Pattern("a service, 20 snapshots", Missing.SERVICE, (20,)),
    Pattern("one metric everywhere", Missing.EVERYWHERE, ANY_LENGTH),
    Pattern("30% of the values", Missing.RANDOM, share=0.3),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in the snapshots ``[start, end)`` that starts at ``service`` (a node id)."""

    start: int
    end: int
    service: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing telemetry in the snapshots ``[start, end)``; ``metric`` is a column of the services' metrics."""

    start: int
    end: int
    services: frozenset[str]
    metric: int


def plan_gaps(
    names: Sequence[str], snapshots: int, faults: Sequence[Fault], pattern: Pattern, rng: np.random.Generator
) -> tuple[Gap, ...]:
    """Draw the gaps of a run, one after the other; none for values that are missing at random.

    Args:
        names: node ids of the mesh.
        snapshots: of the run.
        faults: in the run.
        pattern: how telemetry goes missing.
        rng: draws lengths, services and metrics.
    """
    gaps: list[Gap] = []
    start = FIRST
    while pattern.lengths and start < snapshots:
        end = start + int(rng.choice(pattern.lengths))
        hidden = set(rng.choice(names, max(1, round(pattern.share * len(names))), replace=False).tolist())
        culprits = {one.service for one in faults if one.start < end and start < one.end}
        hidden = hidden | culprits if rng.random() < AT_CULPRIT else hidden - culprits
        gaps.append(Gap(start, end, frozenset(hidden), int(rng.integers(len(NODE_METRICS)))))
        start = end + max(SHORTEST_PAUSE, 2 * (end - start))
    return tuple(gaps)


def remove(
    snapshots: Sequence[MeshSnapshot], faults: Sequence[Fault], pattern: Pattern, seed: int
) -> Iterator[MeshSnapshot]:
    """Yield the snapshots without what is missing.

    Args:
        snapshots: of a run.
        faults: in it.
        pattern: how telemetry goes missing.
        seed: another seed gives other gaps.
    """
    rng = np.random.default_rng(seed)
    names = sorted({name for snapshot in snapshots for name in snapshot.node_ids})
    gaps = plan_gaps(names, len(snapshots), faults, pattern, rng)
    for index, snapshot in enumerate(snapshots):
        if pattern.missing is Missing.RANDOM and index >= FIRST:
            kept = (
                rng.random(table.shape) >= pattern.share for table in (snapshot.node_observed, snapshot.edge_observed)
            )
            snapshot = keep_values(snapshot, *kept)
        for gap in gaps:
            if gap.start <= index < gap.end:
                snapshot = _with_gap(snapshot, gap, pattern.missing)
        yield snapshot


def keep_values(snapshot: MeshSnapshot, nodes: BoolArray, edges: BoolArray) -> MeshSnapshot:
    """Return the snapshot with these values only. The request rate of a call is always there.

    Args:
        snapshot: of N services and E calls.
        nodes: ``[N, 7]``, which metrics of services stay.
        edges: ``[E, 4]``, which metrics of calls stay.
    """
    node_observed, edge_observed = snapshot.node_observed & nodes, snapshot.edge_observed & edges
    edge_observed[:, EdgeMetric.REQUESTS_PER_SECOND] = True
    return replace(
        snapshot,
        node_observed=node_observed,
        edge_observed=edge_observed,
        node_features=np.where(node_observed, snapshot.node_features, np.float32(0)),
        edge_features=np.where(edge_observed, snapshot.edge_features, np.float32(0)),
    )


def _with_gap(snapshot: MeshSnapshot, gap: Gap, missing: Missing) -> MeshSnapshot:
    if missing is Missing.SERVICE:
        return silence(snapshot, gap.services)
    hidden = np.array([missing is Missing.EVERYWHERE or name in gap.services for name in snapshot.node_ids])
    nodes, edges = np.ones_like(snapshot.node_observed), np.ones_like(snapshot.edge_observed)
    nodes[hidden, gap.metric] = False
    name = NODE_METRICS[gap.metric]
    if name in EDGE_METRICS:
        edges[hidden[snapshot.edge_index[0]], EDGE_METRICS.index(name)] = False
    return keep_values(snapshot, nodes, edges)
