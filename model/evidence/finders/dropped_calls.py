"""Calls that a working caller suddenly no longer makes: a network partition that loses requests without an error.

No service reports such a failure. The caller has as many requests as usual, and its calls to one service fall to a
fraction within a snapshot or two and stay there. A retired service looks different: its traffic drains over minutes,
goes to another service, or follows a planned change. Calls to a service with a canary or a replacement fall in the same
way; see :mod:`model.evidence.release_versions`.
"""

from itertools import chain

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.release_versions import shares_traffic
from model.evidence.scored_mesh import ScoredMesh
from model.features import RATE, Array, rate_of
from model.ordering import largest_of_group
from model.snapshot import (
    DELETIONS,
    SCALINGS,
    BoolArray,
    EdgeMetric,
    IntArray,
    MeshSnapshot,
    find_calls,
    find_rows,
    mark_services,
)
from model.state.mesh_state import MeshState, Observation

MIN_REQUESTS = 15.0  # usual requests of a call in a snapshot
LOW, FULL = 0.5, 0.4  # of the usual requests: where a fall begins to count, and where it counts in full
HIGHEST = 0.6  # of the usual requests, below which every snapshot since the fall stays, and hardly any before it
RARELY = 0.1  # share of the snapshots before the fall that may be as low; some calls come and go by themselves
SUDDEN = 0.8  # of the usual requests, just before the fall
STEADY = 0.75  # of each other: the first and the next snapshots after the fall, or the caller's requests and usual
LASTS = 8  # snapshots since the fall, measured
BEFORE = 12  # measured snapshots before the fall; one more may be on the way down
UNMEASURED = 2  # snapshots since the fall that may be missing
MAX = 32  # calls examined, those that lost most first
CONTINUED = DELETIONS | SCALINGS  # planned changes after which callers make the calls that they made before


def find_dropped_calls(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find calls that their caller suddenly no longer makes, and makes no new ones instead."""
    state, observation = mesh.state, mesh.observation
    has_new_calls = np.bincount(state.edge_index[0, mesh.new_calls], minlength=len(state.node_ids)) > 0
    rows = _find_falls(state, observation, has_new_calls)
    if not len(rows):
        return ()
    usual = rate_of(observation.edge.expected[rows, RATE])
    shares = _shares(state, rows, usual, LASTS + UNMEASURED)
    low = ((shares < HIGHEST).sum(axis=0) >= LASTS) & ~(shares >= HIGHEST)[:LASTS].any(axis=0)
    rows, usual = rows[low], usual[low]
    if len(rows):
        stays = ~_may_have_moved(state, observation, rows)
        rows, usual = rows[stays], usual[stays]
    if not len(rows):
        return ()
    surprise = np.zeros(state.edge_index.shape[1], np.float32)
    shares = _shares(state, rows, usual, len(state.window))
    for i, row in enumerate(rows.tolist()):
        surprise[row] = EVENT_SURPRISE * _drop_strength(shares[:, i])
    of_services = largest_of_group(surprise, state.edge_index[1], len(state.node_ids))
    return (Finding(EvidenceKind.VANISHED, of_services, dropped=surprise > 0),)


def _may_have_moved(state: MeshState, observation: Observation, rows: IntArray) -> BoolArray:
    """Return which calls ``[k]`` another version of their destination may get."""
    edge = observation.edge
    now, usual = (rate_of(v[:, RATE]) for v in (edge.value, edge.expected))
    return shares_traffic(state, rows, now * observation.edge_present, usual)


def _find_falls(state: MeshState, observation: Observation, young_callers: BoolArray) -> IntArray:
    """Return the calls whose traffic fell below ``LOW`` while their caller works as usual, the largest loss first."""
    edge, (source, destination) = observation.edge, state.edge_index
    is_known = (observation.edge_present & edge.observed[:, RATE]) | observation.presence.stopped
    rows: IntArray = np.flatnonzero(is_known & (edge.value[:, RATE] < edge.expected[:, RATE]))
    now, usual = (rate_of(v[rows, RATE]) for v in (edge.value, edge.expected))
    now = now * observation.edge_present[rows]
    low = (now < LOW * usual) & (usual * state.interval_seconds >= MIN_REQUESTS) & ~young_callers[source[rows]]
    rows, change = rows[low], (now - usual)[low]
    if not len(rows):
        return np.zeros(0, np.int64)
    is_candidate = _works(state, observation)[source[rows]]
    planned_deletions = state.memory.planned_deletions()
    if planned_deletions:
        is_candidate &= ~mark_services(state.node_ids, planned_deletions)[destination[rows]]
    return rows[is_candidate][np.argsort(change[is_candidate], kind="stable")][:MAX]


def _works(state: MeshState, observation: Observation) -> BoolArray:
    """Return which services ``[N]`` have as many requests as usual; without own metrics, as many calls by half."""
    node, edge, source = observation.node, observation.edge, state.edge_index[0]
    now, usual = (rate_of(v[:, RATE]) for v in (edge.value, edge.expected))
    calls_now, due = (np.bincount(source, v * observation.edge_present, len(state.node_ids)) for v in (now, usual))
    own, own_usual = (rate_of(v[:, RATE]) for v in (node.value, node.expected))
    return np.where(node.observed[:, RATE], own >= STEADY * own_usual, calls_now >= LOW * due)


def _shares(state: MeshState, rows: IntArray, usual: Array, snapshots: int) -> Array:
    """Return the requests of k calls in the last snapshots, as shares of their usual ones, ``[snapshots, k]``, newest
    first; not a number where they are not known.

    A call that is not listed was not made if its caller is listed. Nothing is known about the time
    before a planned change of either end.
    """
    window = state.window[-snapshots:]
    requests = np.full((len(window), len(rows)), np.nan, np.float32)
    is_known, has_changed = np.zeros((2, len(window), len(rows)), bool)
    names = [(state.node_ids[a], state.node_ids[b]) for a, b in state.edge_index[:, rows].T.tolist()]
    there = at = absent = np.zeros(0, np.int64)
    row = dict(zip(chain(*names), state.edge_index[:, rows].T.ravel().tolist(), strict=True))
    of: MeshSnapshot | None = None  # whose calls `at` names; most snapshots share their arrays
    for age, snapshot in enumerate(reversed(window)):
        if of is None or snapshot.node_ids is not of.node_ids or snapshot.edge_index is not of.edge_index:
            of = snapshot
            if snapshot.node_ids is state.node_ids and snapshot.edge_index is state.edge_index:
                at = rows
            else:
                row = find_rows(snapshot.node_ids, set(chain(*names)), row)
                at = find_calls(snapshot, names, row)
            absent = np.flatnonzero((at < 0) & np.array([a in row for a, _ in names], bool))
            there, at = np.flatnonzero(at >= 0), at[at >= 0]
        requests[age, absent], is_known[age, absent] = 0, True
        requests[age, there], is_known[age, there] = (
            snapshot.edge_features[at, EdgeMetric.REQUESTS_PER_SECOND],
            snapshot.edge_observed[at, EdgeMetric.REQUESTS_PER_SECOND],
        )
        services = {change.service for change in snapshot.changes if change.kind not in CONTINUED}
        if services:
            has_changed[age:, [not services.isdisjoint(pair) for pair in names]] = True
    requests[~is_known | has_changed] = np.nan
    return requests / usual


def _drop_strength(share: Array) -> float:
    """Return how clearly a call dropped, 0 to 1.

    Args:
        share: of its usual requests, newest snapshot first; not a number where it is not known.
    """
    known_shares = share[~np.isnan(share)]
    is_low = known_shares < HIGHEST
    since = len(known_shares) if is_low.all() else int(np.argmin(is_low))
    low, older = known_shares[:since], known_shares[since + 1 :]  # one snapshot may be on the way down
    if since < LASTS or len(older) < BEFORE:
        return 0.0
    first, later = (float(np.median(v)) for v in (low[-LASTS // 2 :], low[-LASTS : -LASTS // 2]))
    is_steady = STEADY * first <= later <= first / STEADY
    is_sudden = np.median(older[:3]) >= SUDDEN and np.mean(older < HIGHEST) <= RARELY
    if not (is_steady and is_sudden):
        return 0.0
    return float(np.clip((LOW - np.median(low[:LASTS])) / (LOW - FULL), 0, 1))
