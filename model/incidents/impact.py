"""The impact of an incident: how many services it affects, and how many of the requests from outside.

The share of front-door requests is an estimate from the calls of the last snapshot before the incident. The requests of
entry points are front-door requests, see :mod:`model.front_door`. If none is known to get any, as where every service
is called by another one, the requests of all services stand for them. The origins of an incident are its first suspect
and the affected services that call no affected service. Callers of an origin deviate because some of their
requests reach it, so only these requests count. ``r(u)`` are the requests of service ``u`` and ``w(u, v)`` its calls to
``v``, both 1/s. Of the requests of ``u``, this share reaches an origin:

    a(u) = 1                                            if u is an origin
    a(u) = min(1, sum over v of w(u, v) / r(u) * a(v))  otherwise

It is the number of calls to an origin for each request, at most one. The front-door share is the mean of ``a`` over the
entry points, weighted by ``r``.

Limits: a request that makes several such calls counts several times, so the share is an upper estimate of the requests
that reach an origin. They need not fail or be slow. A caller that waits for an origin may also harm its other requests,
which do not count. Calls that are not measured do not count.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from model.features import RATE
from model.front_door import find_entry_points, measure_entries_of
from model.snapshot import IntArray, MeshSnapshot, find_rows
from model.verdict import Impact, Incident, Verdict, first_service

Rates = NDArray[np.float64]  # 1/s
MAX_HOPS = 16  # from an entry point to an origin; calls from farther away do not count


def add_impact(verdict: Verdict, window: Sequence[MeshSnapshot], entry_points: Collection[str]) -> Verdict:
    """Return the verdict with the impact of its incidents; nothing else changes."""
    traffic: dict[int, Traffic] = {}  # of a snapshot by its position; incidents that begin at once share it

    def estimate(incident: Incident) -> Impact:
        before = next((i for i in reversed(range(len(window))) if window[i].observed_at < incident.since), 0)
        if before not in traffic:
            traffic[before] = measure_traffic(window[before], entry_points)
        suspect = first_service(incident.suspects)
        return estimate_impact(traffic[before], incident.affected, suspect)

    incidents = tuple(replace(incident, impact=estimate(incident)) for incident in verdict.incidents)
    return replace(verdict, incidents=incidents) if incidents else verdict


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The requests of a snapshot's N services, and its C calls with a known rate between different services.

    Attributes:
        source, destination: ``[C]`` rows of the ends.
        per_request: ``[C]`` calls for each request of the source.
        entry: ``[N]`` front-door requests, 1/s; 0 for other services than entry points.
    """

    node_ids: tuple[str, ...]
    source: IntArray
    destination: IntArray
    per_request: Rates
    entry: Rates


def measure_traffic(snapshot: MeshSnapshot, entry_points: Collection[str]) -> Traffic:
    """Return the traffic of a snapshot.

    Args:
        entry_points: of the mesh, by name. Services that no call of the snapshot leads to are entry points, too.
    """
    source, destination, calls = _measured_calls(snapshot)
    requests = _requests(snapshot, source, destination, calls)
    rows = np.flatnonzero(find_entry_points(snapshot.node_ids, np.stack([source, destination]), entry_points))
    entry = np.zeros(snapshot.num_nodes)
    entry[rows] = np.nan_to_num(measure_entries_of(snapshot, rows)[:, RATE])
    if not entry.any():
        entry = requests
    per_request = np.divide(calls, requests[source], out=np.zeros_like(calls), where=requests[source] > 0)
    return Traffic(snapshot.node_ids, source, destination, per_request, entry)


def estimate_impact(traffic: Traffic, affected: Collection[str], suspect: str) -> Impact:
    """Estimate the impact as the formula of this module says.

    It takes ``O(calls)`` for each hop from an origin to the farthest entry point, at most ``MAX_HOPS``.

    Args:
        affected: ids of services; those that are not in the snapshot have no requests.

    Returns:
        The impact. Its share is None if no service has requests.
    """
    if not traffic.entry.sum() > 0:
        return Impact(len(affected))
    reaching = find_reaching(traffic, affected, suspect)
    return Impact(len(affected), float(traffic.entry @ reaching / traffic.entry.sum()))


def find_reaching(traffic: Traffic, affected: Collection[str], suspect: str) -> Rates:
    """Return the share ``[N]`` of each service's requests that reach an origin; arguments as in
    :func:`estimate_impact`."""
    count = len(traffic.node_ids)
    row = find_rows(traffic.node_ids, {*affected, suspect})
    is_affected, is_origin = np.zeros(count, bool), np.zeros(count, bool)
    is_affected[[row[name] for name in affected if name in row]] = True
    calls_affected = np.zeros(count, bool)
    calls_affected[traffic.source[is_affected[traffic.destination]]] = True
    is_origin |= is_affected & ~calls_affected
    if suspect in row:
        is_origin[row[suspect]] = True
    reaching = is_origin.astype(np.float64)
    for _ in range(MAX_HOPS):
        share = np.bincount(traffic.source, traffic.per_request * reaching[traffic.destination], count)
        farther = np.where(is_origin, 1.0, np.minimum(share, 1.0))
        if np.array_equal(farther, reaching):
            break
        reaching = farther
    return reaching


def _measured_calls(snapshot: MeshSnapshot) -> tuple[IntArray, IntArray, Rates]:
    """Return source, destination and requests (1/s) of the calls with a known rate between different services."""
    source, destination = snapshot.edge_index
    is_known = snapshot.edge_observed[:, RATE] & (snapshot.edge_features[:, RATE] > 0) & (source != destination)
    return source[is_known], destination[is_known], snapshot.edge_features[is_known, RATE].astype(np.float64)


def _requests(snapshot: MeshSnapshot, source: IntArray, destination: IntArray, calls: Rates) -> Rates:
    """Return the requests of each service, ``[N]`` 1/s: measured, or else its calls from others, or else its own calls,
    as if it forwarded each request once. A gateway often has no metrics of its own."""
    count = snapshot.num_nodes
    calls_in, calls_out = (np.bincount(ends, calls, count) for ends in (destination, source))
    measured = np.where(snapshot.node_observed[:, RATE], snapshot.node_features[:, RATE], 0.0).astype(np.float64)
    return np.select([measured > 0, calls_in > 0], [measured, calls_in], calls_out)
