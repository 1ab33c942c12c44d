"""Static thresholds as people write them, made fair.

*guarded*: p99 above 500 ms, errors above 5%, cpu above 0.8, memory above 0.9. *own limit*: 1.5 times the service's own
99th percentile in the warm-up, for errors, p50, p99, cpu and memory. Both: two samples in a row; at least 100 requests
in the sample for ratios and latencies; services that trip the guarded rule in normal operation are left out of it;
alarms of services that call each other are one page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import networkx as nx
import numpy as np

from model.evaluate.located import Page
from model.snapshot import NODE_METRICS, MeshSnapshot

Rule = Literal["guarded", "own limit"]
RULES: tuple[Rule, ...] = ("guarded", "own limit")
GUARDED = {"p99_latency": 0.5, "error_rate": 0.05, "cpu_utilization": 0.8, "memory_utilization": 0.9}
OWN = ("error_rate", "p50_latency", "p99_latency", "cpu_utilization", "memory_utilization")
PER_REQUEST = ("error_rate", "p50_latency", "p99_latency")
LEAST_REQUESTS = 100.0
OVER = 1.5
LEAST_ERRORS = 0.01  # below it nobody would set a limit: 1.5 times nothing is nothing
LEAST_LIMIT = 1e-9  # to divide by
IN_A_ROW = 2
QUIET = 2  # snapshots without an alarm that end a page
_RATE = NODE_METRICS.index("request_rate")

Limits = dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]  # of each service, [metrics]


@dataclass(frozen=True, slots=True)
class Open:
    """A page that is open: its number, services so far, and snapshots since the last alarm."""

    number: int
    services: frozenset[str]
    quiet: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """Between two snapshots: alarms in a row by service, open pages, all pages by number."""

    streak: dict[str, int] = field(default_factory=dict)
    open: tuple[Open, ...] = ()
    pages: tuple[Page, ...] = ()


def warm_up(rule: Rule, snapshots: Sequence[MeshSnapshot], interval_seconds: float) -> Limits:
    """Limits of each service, infinite where the rule does not apply to it."""
    history: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
    for snapshot in snapshots:
        values = _judged(snapshot, interval_seconds)
        for name, row in zip(snapshot.node_ids, values, strict=True):
            history.setdefault(name, []).append(row)
    return {name: _limits(rule, np.array(rows)) for name, rows in history.items()}


def step(rule: Rule, limits: Limits, state: State, snapshot: MeshSnapshot, interval_seconds: float) -> State:
    """One snapshot on; the pages it opened are the last of ``pages``."""
    fallback = _guarded() if rule == "guarded" else np.full(len(NODE_METRICS), np.inf)
    table = np.array([limits.get(name, fallback) for name in snapshot.node_ids])
    values = np.nan_to_num(_judged(snapshot, interval_seconds))
    hot = (values > table).any(axis=1)
    times_over = (values / np.maximum(table, LEAST_LIMIT)).max(axis=1)
    names = snapshot.node_ids
    streak = {names[i]: state.streak.get(names[i], 0) + 1 for i in np.flatnonzero(hot)}
    alarmed = {names[i]: float(times_over[i]) for i in np.flatnonzero(hot) if streak[names[i]] >= IN_A_ROW}
    return _follow(replace(state, streak=streak), _groups(snapshot, set(alarmed)), alarmed, snapshot)


def _limits(
    rule: Rule, rows: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    seen = ~np.isnan(rows).all(axis=0)
    if rule == "guarded":
        limits = _guarded()
        tripped = (np.nan_to_num(rows, nan=-np.inf) > limits).any(axis=1)
        twice = (tripped[1:] & tripped[:-1]).any()
        return np.full_like(limits, np.inf) if twice else limits
    limits = np.full(len(NODE_METRICS), np.inf)
    for name in OWN:
        at = NODE_METRICS.index(name)
        if seen[at]:
            limits[at] = OVER * np.nanquantile(rows[:, at], 0.99)
    at = NODE_METRICS.index("error_rate")
    limits[at] = max(limits[at], LEAST_ERRORS)
    return limits


def _guarded() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([GUARDED.get(name, np.inf) for name in NODE_METRICS])


def _judged(snapshot: MeshSnapshot, interval_seconds: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """``[N, 7]``, NaN where not observed or where too few requests stand behind it."""
    values = np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)
    few = ~(values[:, _RATE] * interval_seconds >= LEAST_REQUESTS)
    for name in PER_REQUEST:
        values[few, NODE_METRICS.index(name)] = np.nan
    return values


def _groups(snapshot: MeshSnapshot, alarmed: set[str]) -> list[frozenset[str]]:
    graph = nx.Graph()
    graph.add_nodes_from(sorted(alarmed))
    hot = np.array([name in alarmed for name in snapshot.node_ids])
    source, destination = snapshot.edge_index
    for e in np.flatnonzero(hot[source] & hot[destination]):
        graph.add_edge(snapshot.node_ids[source[e]], snapshot.node_ids[destination[e]])
    return [frozenset(group) for group in nx.connected_components(graph)]


def _follow(
    state: State, groups: Sequence[frozenset[str]], times_over: dict[str, float], snapshot: MeshSnapshot
) -> State:
    """A group that shares a service with an open page is that page, the oldest of several. Of a new one the service
    furthest over its limit is the first suspect."""
    pages, kept = list(state.pages), {page.number: replace(page, quiet=page.quiet + 1) for page in state.open}
    for group in groups:
        owners = sorted(number for number, page in kept.items() if page.services & group)
        if owners:
            first, *merged = owners
            services = group.union(*(kept[number].services for number in owners))
            for number in merged:
                del kept[number]
            kept[first] = Open(first, services)
            pages[first] = replace(pages[first], affected=services)
            continue
        ranked = tuple(sorted(group, key=lambda name: (-times_over[name], name)))
        kept[len(pages)] = Open(len(pages), group)
        pages.append(Page(f"{len(pages)}", snapshot.observed_at, ranked, group))
    alive = tuple(page for page in kept.values() if page.quiet < QUIET)
    return State(state.streak, alive, tuple(pages))
