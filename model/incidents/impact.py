"""The impact of an incident: how many services it affects, and how many of the requests from outside.

The share of front-door requests is an estimate from the calls of the last snapshot before the incident. A service that
no other one calls is an entry point, and its requests are front-door requests. The origins of an incident are its first
suspect and the affected services that call no affected service. Callers of an origin deviate because some of their
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
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.features import RATE
from model.snapshot import IntArray, MeshSnapshot
from model.verdict import Impact, Incident, Verdict

Rates = NDArray[np.float64]  # 1/s
MOST_HOPS = 16  # from an entry point to an origin; calls from farther away do not count


def add_impact(verdict: Verdict, window: Sequence[MeshSnapshot]) -> Verdict:
    """Return the verdict with the impact of its incidents; nothing else changes.

    Args:
        verdict: of the newest snapshot.
        window: the last snapshots, oldest first, the newest included.
    """
    if not verdict.incidents:
        return verdict
    return replace(verdict, incidents=tuple(_add_impact(incident, window) for incident in verdict.incidents))


def _add_impact(incident: Incident, window: Sequence[MeshSnapshot]) -> Incident:
    before = next((snapshot for snapshot in reversed(window) if snapshot.observed_at < incident.since), window[0])
    suspect = incident.suspects[0].service if incident.suspects else ""
    return replace(incident, impact=estimate_impact(before, incident.affected, suspect))


def estimate_impact(snapshot: MeshSnapshot, affected: Collection[str], suspect: str) -> Impact:
    """Estimate the impact as the formula of this module says.

    It takes ``O(calls)`` for each hop from an origin to the farthest entry point, at most ``MOST_HOPS``.

    Args:
        snapshot: before the incident.
        affected: ids of services; those that are not in the snapshot have no requests.
        suspect: the first one; empty: none.

    Returns:
        The impact. Its share is None if no entry point has requests.
    """
    source, destination, calls = _measured_calls(snapshot)
    requests = _requests(snapshot, source, destination, calls)
    entry = np.where(np.bincount(destination, minlength=snapshot.num_nodes) == 0, requests, 0.0)
    if not entry.sum() > 0:
        return Impact(len(affected))
    chosen = set(affected)
    is_affected = np.fromiter((name in chosen for name in snapshot.node_ids), bool, snapshot.num_nodes)
    is_origin = is_affected & (np.bincount(source, is_affected[destination], snapshot.num_nodes) == 0)
    is_origin |= np.fromiter((name == suspect for name in snapshot.node_ids), bool, snapshot.num_nodes)
    per_request = np.divide(calls, requests[source], out=np.zeros_like(calls), where=requests[source] > 0)
    reaching = is_origin.astype(np.float64)
    for _ in range(MOST_HOPS):
        reached = np.bincount(source, per_request * reaching[destination], snapshot.num_nodes)
        farther = np.where(is_origin, 1.0, np.minimum(reached, 1.0))
        if np.array_equal(farther, reaching):
            break
        reaching = farther
    return Impact(len(affected), float(entry @ reaching / entry.sum()))


def _measured_calls(snapshot: MeshSnapshot) -> tuple[IntArray, IntArray, Rates]:
    """Return source, destination and requests (1/s) of the calls with a known rate between different services."""
    source, destination = snapshot.edge_index
    known = snapshot.edge_observed[:, RATE] & (snapshot.edge_features[:, RATE] > 0) & (source != destination)
    return source[known], destination[known], snapshot.edge_features[known, RATE].astype(np.float64)


def _requests(snapshot: MeshSnapshot, source: IntArray, destination: IntArray, calls: Rates) -> Rates:
    """Return the requests of each service, ``[N]`` 1/s: measured, or else its calls from others, or else its own calls,
    as if it forwarded each request once. A gateway often has no metrics of its own."""
    count = snapshot.num_nodes
    received, made = (np.bincount(ends, calls, count) for ends in (destination, source))
    measured = np.where(snapshot.node_observed[:, RATE], snapshot.node_features[:, RATE], 0.0).astype(np.float64)
    return np.select([measured > 0, received > 0], [measured, received], made)
