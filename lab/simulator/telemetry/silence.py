"""Missing telemetry: exporters, scrape shards or the whole monitoring fall silent for a while. The mesh itself is fine.

Silences depend only on the spec and the time, so two runs of a mesh have the same ones. They use random streams of
their own, so a run without silences does not change.
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
LEAST_SLOT = 2 * LONGEST  # minimum number of snapshots in a slot
SLOT_SECONDS = 3600.0  # silences are drawn an hour at a time
SHARDS = (3, 10)  # bounds of the number of scrape shards
ONE_SIDE = 0.4  # share of silences of one service or a group that leave either metrics or calls
_STREAM = 10


class Reporter(StrEnum):
    """The missing part of a service's telemetry."""

    BOTH = "both"  # an exporter or a scrape shard: its own metrics, and the calls that it reports as caller
    METRICS = "metrics"  # its own metrics alone
    CALLS = "calls"  # the calls that it reports alone


class Reach(StrEnum):
    """The services whose telemetry is missing."""

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
        start, end: indices of the first snapshot with it and the first one without.
        services: node ids.
    """

    start: int
    end: int
    reach: Reach
    reporter: Reporter
    services: frozenset[str]

    def to_json(self, spec: MeshSpec) -> dict[str, Any]:
        """Return the label for a recording's meta.json. ``end`` is the time of the first snapshot without the silence,
        unless that snapshot was lost."""
        return {
            "start": spec.time_of(self.start).isoformat(),
            "end": spec.time_of(self.end).isoformat(),
            "reach": self.reach.value,
            "reporter": self.reporter.value,
            "services": sorted(self.services),
        }


def draw_silences(spec: MeshSpec, services: Sequence[str], slot: int) -> tuple[PlannedSilence, ...]:
    """Draw the silences in slot number ``slot``, from 0. Each ends within its slot."""
    rng = spec.stream_of(_STREAM, slot)
    ticks = silence_slot(spec)
    hours = ticks * spec.interval_seconds / 3600.0
    return tuple(_draw(rng, services, slot * ticks, ticks) for _ in range(rng.poisson(spec.silences_per_hour * hours)))


def plan_silences(spec: MeshSpec, services: Sequence[str], snapshots: int) -> tuple[PlannedSilence, ...]:
    """Return the silences that begin in a run's first snapshots, by start."""
    slots = -(-snapshots // silence_slot(spec))
    silences = [
        planned for slot in range(slots) for planned in draw_silences(spec, services, slot) if planned.start < snapshots
    ]
    return tuple(sorted(silences, key=lambda planned: planned.start))


def silence_slot(spec: MeshSpec) -> int:
    return max(LEAST_SLOT, round(SLOT_SECONDS / spec.interval_seconds))


def silence(snapshot: MeshSnapshot, services: Collection[str], reporter: Reporter = Reporter.BOTH) -> MeshSnapshot:
    """Return the snapshot without the reports by these services (node ids). Others' calls to them remain."""
    is_silent = np.fromiter((name in services for name in snapshot.node_ids), bool, snapshot.num_nodes)
    nodes = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
    edges = np.where(snapshot.edge_observed, snapshot.edge_features, np.nan)
    is_reported = np.ones(snapshot.num_edges, bool)
    if reporter is not Reporter.CALLS:
        nodes[is_silent] = np.nan
    if reporter is not Reporter.METRICS:
        is_reported = ~is_silent[snapshot.edge_index[0]]
    return MeshSnapshot.create(
        node_ids=snapshot.node_ids,
        edge_index=snapshot.edge_index[:, is_reported],
        node_features=nodes,
        edge_features=edges[is_reported],
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
    service = services[int(rng.integers(len(services)))]
    if reach is Reach.SERVICE:
        return frozenset({service})
    if reach is Reach.GROUP:
        beside = [name for name in services if namespace_of(name) == namespace_of(service)]
        share = rng.uniform(0.2, 1.0)
        return frozenset({service, *(name for name in beside if rng.random() < share)})
    if reach is Reach.SHARD:
        shards = int(rng.integers(SHARDS[0], SHARDS[1] + 1))
        return frozenset(name for name in services if _shard(name, shards) == _shard(service, shards))
    return frozenset(services)


def _shard(service: str, shards: int) -> int:
    """Return the number of the Prometheus server that scrapes a service, as ``hashmod`` assigns it."""
    return zlib.crc32(service.encode()) % shards
