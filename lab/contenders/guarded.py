"""The same static limits for every service, as in a runbook, without the services that exceed them all the time."""

from dataclasses import dataclass

import numpy as np

from lab.contenders.limits import samples, times_over
from lab.contenders.paging import PagingState, build_verdict
from model.snapshot import NODE_METRICS, MeshSnapshot
from model.verdict import Verdict

LABEL = "guarded"
LIMITS = {"p99_latency": 0.5, "error_rate": 0.05, "cpu_utilization": 0.8, "memory_utilization": 0.9}
_LIMITS = np.array([LIMITS.get(name, np.inf) for name in NODE_METRICS])


@dataclass(frozen=True, slots=True)
class GuardedState:
    """``left_out``: services that exceeded a limit in the warm-up."""

    watch: PagingState
    left_out: frozenset[str] = frozenset()


def start(interval_seconds: float, warm_up: int) -> GuardedState:
    return GuardedState(PagingState(interval_seconds, warm_up))


def advance(state: GuardedState, snapshot: MeshSnapshot) -> tuple[Verdict, GuardedState]:
    watch, left_out, names = state.watch, state.left_out, snapshot.node_ids
    over = times_over(samples(snapshot, watch.interval_seconds), _LIMITS)
    if watch.is_warming_up and not watch.has_gap_before(snapshot):
        left_out |= {names[i] for i in np.flatnonzero(over > 1.0) if watch.scores.get(names[i], 0.0) > 1.0}
    is_included = ~np.fromiter((name in left_out for name in names), bool, len(names))
    verdict, watch = build_verdict(watch, snapshot, over * (is_included | watch.is_warming_up), 1.0)
    return verdict, GuardedState(watch, left_out)
