"""Missing telemetry: exporters, scrape shards or the whole monitoring fall silent for a while. The mesh itself is fine.

Silences depend only on the spec and the time, so that two runs of one mesh have the same ones. They use random streams
of their own, so a run without silences does not change.
"""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from lab.simulator.mesh.topology import MeshSpec
from model.snapshot import MeshSnapshot, namespace_of

SHORTEST, LONGEST = 2, 20  # snapshots in a silence
LEAST_SLOT = 2 * LONGEST  # snapshots in a slot of meshes with long intervals
SLOT_SECONDS = 3600.0  # silences are drawn an hour at a time
SHARDS = (3, 10)  # fewest and most shards over which scrapes are spread
ONE_SIDE = 0.4  # share of the silences of one service or a group that leave either its metrics or its calls
_STREAM = 10


class Reporter(StrEnum):
    """Which telemetry of a service is missing."""

    BOTH = "both"  # an exporter or a scrape shard: its own metrics, and the calls that it reports as caller
    METRICS = "metrics"  # its own metrics alone
    CALLS = "calls"  # the calls that it reports alone


class Reach(StrEnum):
    """Whose telemetry is missing."""

    SERVICE = "service"
    GROUP = "group"  # some services of one namespace
    SHARD = "shard"  # the services that one of several Prometheus servers scrapes
    RESTART = "restart"  # all services, because Prometheus restarts


REACHES = (Reach.SERVICE, Reach.GROUP, Reach.SHARD, Reach.RESTART)
REACH_SHARES = (0.35, 0.35, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class PlannedSilence:
    """A period in which services do not report.

    Attributes:
        start, end: index of the first snapshot with it, and of the first one without.
        reach: how many services fall silent together, and why.
        reporter: what is missing.
        services: their node ids.
    """

    start: int
    end: int
    reach: Reach
    reporter: Reporter
    services: frozenset[str]

    def to_json(self, spec: MeshSpec) -> dict[str, Any]:
        """Return the label of a recording's meta.json. ``end`` is the time of the first snapshot without the silence,
        unless that snapshot was lost."""
        return {
            "start": spec.time_of(self.start).isoformat(),
            "end": spec.time_of(self.end).isoformat(),
            "reach": self.reach.value,
            "reporter": self.reporter.value,
            "services": sorted(self.services),
        }


def draw_silences(spec: MeshSpec, services: Sequence[str], slot: int) -> tuple[PlannedSilence, ...]:
    """Draw the silences of one slot of :func:`silence_slot` snapshots. Each ends within its slot.

    Args:
        slot: number of the slot, from 0.
    """
    rng = spec.stream_of(_STREAM, slot)
    ticks = silence_slot(spec)
    hours = ticks * spec.interval_seconds / 3600.0
    return tuple(_draw(rng, services, slot * ticks, ticks) for _ in range(rng.poisson(spec.silences_per_hour * hours)))


def plan_silences(spec: MeshSpec, services: Sequence[str], snapshots: int) -> tuple[PlannedSilence, ...]:
    """Return the silences that begin in the first snapshots of a run, by start."""
    slots = -(-snapshots // silence_slot(spec))
    drawn = [one for slot in range(slots) for one in draw_silences(spec, services, slot) if one.start < snapshots]
    return tuple(sorted(drawn, key=lambda one: one.start))


def silence_slot(spec: MeshSpec) -> int:
    return max(LEAST_SLOT, round(SLOT_SECONDS / spec.interval_seconds))


def silence(snapshot: MeshSnapshot, services: Collection[str], reporter: Reporter = Reporter.BOTH) -> MeshSnapshot:
    """Return the snapshot without what these services (node ids) report. Calls from others to them are still there."""
    silent = np.fromiter((name in services for name in snapshot.node_ids), bool, snapshot.num_nodes)
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)
    kept = np.ones(snapshot.num_edges, bool)
    if reporter is not Reporter.CALLS:
        nodes[silent] = np.nan
    if reporter is not Reporter.METRICS:
        kept = ~silent[snapshot.edge_index[0]]
    return MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index[:, kept],
        node_features=nodes,
        edge_features=edges[kept],
        observed_at=snapshot.observed_at,
        changes=snapshot.changes,
        signals=snapshot.signals,
    )


def _draw(rng: np.random.Generator, services: Sequence[str], first: int, ticks: int) -> PlannedSilence:
    length = int(rng.integers(SHORTEST, LONGEST + 1))
    start = first + int(rng.integers(0, ticks - length + 1))
    reach = REACHES[int(rng.choice(len(REACHES), p=REACH_SHARES))]
    reporter = Reporter.BOTH
    if reach in (Reach.SERVICE, Reach.GROUP) and rng.random() < ONE_SIDE:
        reporter = (Reporter.METRICS, Reporter.CALLS)[int(rng.integers(2))]
    return PlannedSilence(start, start + length, reach, reporter, _draw_services(rng, services, reach))


def _draw_services(rng: np.random.Generator, services: Sequence[str], reach: Reach) -> frozenset[str]:
    chosen = services[int(rng.integers(len(services)))]
    if reach is Reach.SERVICE:
        return frozenset({chosen})
    if reach is Reach.GROUP:
        beside = [name for name in services if namespace_of(name) == namespace_of(chosen)]
        share = rng.uniform(0.2, 1.0)
        return frozenset({chosen, *(name for name in beside if rng.random() < share)})
    if reach is Reach.SHARD:
        shards = int(rng.integers(SHARDS[0], SHARDS[1] + 1))
        return frozenset(name for name in services if _shard(name, shards) == _shard(chosen, shards))
    return frozenset(services)


def _shard(service: str, shards: int) -> int:
    """Return the Prometheus server that scrapes a service, as ``hashmod`` assigns it."""
    return zlib.crc32(service.encode()) % shards
