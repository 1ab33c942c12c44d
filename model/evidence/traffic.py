"""Requests from outside that fell or rose suddenly: of the mesh, of a namespace, or of one entry point.

Nothing inside the mesh has to fail when its load balancer, DNS or the network in front of it does. Every service is
then explained by its callers, and the entry points by nothing.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from model.evidence.kinds import EVENT_SURPRISE
from model.features import Array
from model.snapshot import BoolArray, IntArray, mark_services, namespace_of
from model.state.mesh_state import MeshState
from model.state.traffic import OFFSET
from model.verdict import MAX_SUSPECTS

MESH = "*"
LOST, LOST_AT_ONE = 0.65, 0.55  # of the usual requests, below which they are lost; at one entry point of several
SURGE, GROSS_SURGE = 2.5, 4.5  # times the usual requests: of a notice, and of an alert
RETURNED = 0.8  # of the usual requests, from which they are back
SIGMAS = 3.0  # that a fall or rise has to exceed
AVERAGED = 4.0  # snapshots that the average is worth: (2 - LATELY) / LATELY
MIN_REQUESTS = 8.0  # usual requests in these snapshots
LONG_KNOWN = 1800.0  # s of measurements, before a rise is a surge: traffic grows slowly in a new mesh
MIN_SHARE = 0.02  # of the mesh's requests, that one entry point or namespace needs
MOVED = 0.5  # of the loss at one entry point, gained by the others; then its requests only moved


@dataclass(frozen=True, slots=True)
class TrafficChange:
    """Requests from outside that are not as usual, or are only just back.

    Attributes:
        scope: ``*``, ``namespace/*``, or the node id of an entry point.
        observed, expected: requests/s, over the entry points that were measured.
        entry_points: node ids, those whose requests changed most first.
        is_far: far enough for an incident; False: not yet back to normal.
    """

    scope: str
    observed: float
    expected: float
    entry_points: tuple[str, ...]
    is_surge: bool
    is_far: bool

    @property
    def is_gross(self) -> bool:
        """Whether it is a loss, or a surge of the mesh or of a namespace that is worth an alert even if nothing
        suffers."""
        is_wide = self.scope == MESH or self.scope.endswith("/*")
        return not self.is_surge or (is_wide and self.observed > GROSS_SURGE * self.expected)


def traffic_score(change: TrafficChange) -> float:
    """Return the surprise of a loss or a gross surge, in decades; 0 for another surge, which harms no one."""
    return EVENT_SURPRISE if change.is_far and change.is_gross else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Scopes:
    """The mesh, its namespaces and its entry points, without a set of entry points that another scope is too.

    Attributes:
        names: of C scopes, the widest first.
        rows: entry points ``[S']`` of all scopes, one scope after the other.
        scope: ``[S']`` the position of its scope.
    """

    names: tuple[str, ...]
    rows: IntArray
    scope: IntArray

    def total(self, values: Array) -> NDArray[np.float64]:
        """Sum ``[S]`` over the entry points of each scope, ``[C]``."""
        return np.bincount(self.scope, values[self.rows].astype(np.float64), len(self.names)).astype(np.float64)

    def members(self, scope: int, count: int) -> BoolArray:
        """Return the entry points ``[S]`` of a scope."""
        is_member = np.zeros(count, bool)
        is_member[self.rows[self.scope == scope]] = True
        return is_member


@lru_cache(maxsize=64)
def _scopes(entry_points: tuple[str, ...]) -> _Scopes:
    """Return the scopes of these entry points; meshes keep theirs for long."""
    spaces: dict[str, list[int]] = {}
    for i, name in enumerate(entry_points):
        spaces.setdefault(namespace_of(name), []).append(i)
    rows_of_scope = {MESH: list(range(len(entry_points)))}
    if len(spaces) > 1:
        rows_of_scope |= {f"{space}/*": rows for space, rows in sorted(spaces.items())}
    for rows in spaces.values():
        if len(rows) > 1:
            rows_of_scope |= {entry_points[i]: [i] for i in rows}
    rows = [i for of in rows_of_scope.values() for i in of]
    scope = [c for c, of in enumerate(rows_of_scope.values()) for _ in of]
    return _Scopes(tuple(rows_of_scope), np.array(rows, np.int64), np.array(scope, np.int64))


def traffic_changes(state: MeshState) -> tuple[TrafficChange, ...]:
    """Return the changes of traffic in the newest snapshot: of the mesh, else of namespaces, else of entry points."""
    traffic = state.traffic
    is_known = traffic.is_known
    if not is_known.any():
        return ()
    planned_deletions = state.memory.planned_deletions()
    if planned_deletions:
        is_known &= ~mark_services(traffic.names, planned_deletions)
    expected = np.where(is_known, np.exp(np.nan_to_num(traffic.level)) - OFFSET, 0)
    observed = np.where(is_known, np.nan_to_num(traffic.lately), 0)
    scopes = _scopes(traffic.names)
    usual, now = scopes.total(expected), scopes.total(observed)
    ratio = now / np.maximum(usual, 1e-9)
    min_requests = np.maximum(MIN_REQUESTS / (state.interval_seconds * AVERAGED), MIN_SHARE * expected.sum())
    is_candidate = (usual >= min_requests) & ((ratio < RETURNED) | (ratio > 1 / RETURNED))
    changes: list[TrafficChange] = []
    for c in np.flatnonzero(is_candidate).tolist():
        scope = scopes.names[c]
        if not any(contains(change.scope, scope) for change in changes if change.is_far):
            rows = scopes.members(c, len(is_known)) & is_known
            change = _judge(state, scope, rows, observed, expected)
            changes += [change] if change else []
    return tuple(changes)


def contains(scope: str, other: str) -> bool:
    return scope in (MESH, other) or (scope.endswith("/*") and other.startswith(scope[:-1]))


def _judge(state: MeshState, scope: str, rows: BoolArray, observed: Array, expected: Array) -> TrafficChange | None:
    """Return the change of a scope with these entry points ``[S]``; None if it is within the usual variation."""
    traffic = state.traffic
    now, usual = float(observed[rows].sum()), float(expected[rows].sum())
    requests = usual * state.interval_seconds * AVERAGED
    spread = float((expected[rows] * np.sqrt(traffic.variance[rows])).sum() / usual)
    margin = SIGMAS * np.sqrt(spread**2 + 1 / requests)
    ratio = now / usual
    far_below = min(LOST if scope == MESH or scope.endswith("/*") else LOST_AT_ONE, float(np.exp(-margin)))
    is_young = bool((rows & (traffic.seconds < LONG_KNOWN)).any())
    far_above = np.inf if is_young else max(SURGE, float(np.exp(margin)))
    low = float((np.exp(np.nan_to_num(traffic.low)) - OFFSET)[rows].sum())
    is_far = now < far_below * min(low, usual) or ratio > far_above
    if not is_far and min(RETURNED, np.exp(-margin)) <= ratio <= 1 / RETURNED:
        return None
    if scope != MESH and ratio < 1 and _has_moved(rows, observed, expected):
        return None
    change = np.abs(observed - expected) * rows
    order = np.argsort(-change, kind="stable")[: min(MAX_SUSPECTS, int(rows.sum()))]
    names = tuple(traffic.names[i] for i in order)
    return TrafficChange(scope, now, usual, names, ratio > 1, is_far)


def _has_moved(rows: BoolArray, observed: Array, expected: Array) -> bool:
    """Return whether other entry points gained what these ones lost."""
    loss = float((expected - observed)[rows].sum())
    gain = float((observed - expected)[~rows].clip(0).sum())
    return gain >= MOVED * loss
