"""Signals that say that a resource of a service is at its limit, and that this is not usual for the service.

Signals are not inputs of the network: most meshes lack most of them. They are evidence for notices, and they explain
what the metrics show: a service that is throttled is slow, a killed one fails. Callers that give up are evidence only
if the service is slower than usual: otherwise they leave for reasons of their own. All services are looked at in the
newest snapshots, and only those with a signal that may matter in the whole window.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import numpy as np

from model.evidence.explanations import Fact
from model.evidence.kinds import EVENT_SURPRISE
from model.features import P50, P99, Array
from model.snapshot import COUNTS, MOSTLY_ZERO, BoolArray, MeshSnapshot, SignalKind, find_rows
from model.state.change_impact import OWN
from model.state.mesh_state import MeshState, Observation

KINDS = tuple(SignalKind)
THROTTLING, KILLS, RESTARTS, DISK, PENDING, QUEUE, CANCELLED = range(len(KINDS))
LATELY = 4  # snapshots that are compared with the older ones
BEFORE = 20  # older snapshots with a value, without which the usual value is unknown
MIN_THROTTLED = 0.25  # share of CPU periods, from which throttling slows a service
TIMES_THROTTLED = 2.0  # the usual share
RESTART_SECONDS, MANY_RESTARTS = 600.0, 2  # one restart may be chance; a second one within ten minutes is a loop
MIN_CANCELLED, TIMES_CANCELLED = 0.05, 2.0  # share of requests on which callers give up, and times the usual share
SLOWER = 0.4  # rise of the logarithm of a latency, from which callers give up because they wait: 1.5 times the usual
FULL_DISK, NO_DISK = 0.95, 0.99  # share in use at which a volume is short, and at which it is so even if this is usual
DISK_GROWTH = 0.005  # above the usual share, from which a volume that is short grows
MIN_QUEUE = 100.0  # messages; fewer are read within seconds
TIMES_QUEUE = 3.0  # the highest older depth
# Snapshots in which a queue may have begun to grow. A rise over 12 or more may be less steep if it is steady.
QUEUE_SPANS, MIN_STEADY = (4, 12, 24, 48, 96), 12
MIN_TAU, TIMES_STEADY = 0.7, 2.0  # Kendall's tau of a steady rise, and times the highest older depth
MAX = 512  # services examined for throttling, and as many for other signals; one service matters little beyond that
# From these values on, a service is examined.
_MIN = np.array([MIN_THROTTLED, 0.5, 0.5, FULL_DISK, 0.5, MIN_QUEUE, MIN_CANCELLED], np.float32)
_IS_COUNT = np.array([kind in COUNTS for kind in KINDS])
_IS_MOSTLY_ZERO = np.array([kind in MOSTLY_ZERO for kind in KINDS])


def pressure(unusual: Mapping[int, tuple[Fact, ...]], services: int) -> Array:
    """Return the surprise ``[N]``, decades, of services that lack a resource by their signals: ``EVENT_SURPRISE``,
    or 0.
    """
    surprise = np.zeros(services, np.float32)
    is_short = (row for row, facts in unusual.items() if any(fact.metric != SignalKind.CANCELLED for fact in facts))
    surprise[list(is_short)] = EVENT_SURPRISE
    return surprise


def impatience(observation: Observation, unusual: Mapping[int, tuple[Fact, ...]]) -> Array:
    """Return the surprise ``[N]``, decades, of services that are slow and whose callers give up more than usual:
    ``EVENT_SURPRISE``, or 0; ``unusual`` is from :func:`unusual_signals`."""
    node = observation.node
    surprise = np.zeros(len(node.value), np.float32)
    for row, facts in unusual.items():
        if any(fact.metric == SignalKind.CANCELLED for fact in facts):
            rise = (node.value - node.expected)[row, [P50, P99]]
            if (node.observed[row, [P50, P99]] & (rise >= SLOWER)).any():
                surprise[row] = EVENT_SURPRISE
    return surprise


def unusual_signals(state: MeshState, observation: Observation) -> dict[int, tuple[Fact, ...]]:
    """Return facts about the unusual signals of services, by row. A fact has the name of the kind as its metric, the
    value now, and the usual value: the median before; not a number if it is unknown. For kills and restarts, the value
    is their number in the last snapshots or minutes.

    Near a planned change of the service, restarts and pending pods are expected.
    """
    if not any(snapshot.signals for snapshot in state.window):
        return {}
    names = _names_to_examine(state.window)
    row_of = find_rows(state.node_ids, names)
    names = [name for name in names if name in row_of]
    if not names:
        return {}
    values = _series(state.window, names)
    recent = _is_recent(state.window, RESTART_SECONDS)
    facts_of_row: dict[int, tuple[Fact, ...]] = {}
    for i, name in enumerate(names):
        is_planned = bool(observation.node_exposure[row_of[name]] == OWN)
        if facts := _facts(values[:, i], recent, is_planned):
            facts_of_row[row_of[name]] = facts
    return facts_of_row


def _names_to_examine(window: Sequence[MeshSnapshot]) -> list[str]:
    """Return the services with a signal in the newest snapshots that may matter: ids, in a stable order.

    In some meshes, hundreds of services are always throttled, or many callers always give up. If there are too many,
    those whose share rose most since the middle of the window are examined.
    """
    names: dict[str, None] = {}
    shares: dict[tuple[SignalKind, str], float] = {}
    recent = _is_recent(window, RESTART_SECONDS)
    for age, snapshot in enumerate(reversed(window)):
        if age >= LATELY and not recent[len(window) - 1 - age]:
            break
        places, values = snapshot.signal_places
        row, kind = np.divmod(places, len(KINDS))
        matters = values >= _MIN[kind]
        if age >= LATELY:
            matters &= kind == RESTARTS
        is_share = matters & _IS_MOSTLY_ZERO[kind]
        if not age:
            shares = {
                (KINDS[k], snapshot.node_ids[i]): value
                for k, i, value in zip(kind[is_share], row[is_share], values[is_share], strict=True)
            }
        names |= dict.fromkeys(snapshot.node_ids[i] for i in row[matters & ~is_share].tolist())
    rise = shares
    if len(shares) > MAX:
        middle = window[len(window) // 2].signals
        before = {(signal.kind, signal.service): signal.value for signal in middle if signal.kind in MOSTLY_ZERO}
        rise = {key: value - before.get(key, 0.0) for key, value in shares.items()}
    most_risen = dict.fromkeys(name for _, name in sorted(rise, key=lambda key: -rise[key])[:MAX])
    return [*list(names)[:MAX], *(name for name in most_risen if name not in names)]


def _is_recent(window: Sequence[MeshSnapshot], seconds: float) -> BoolArray:
    """Return which snapshots ``[T]`` are within this many seconds before the newest one."""
    since = window[-1].observed_at - timedelta(seconds=seconds)
    return np.array([snapshot.observed_at > since for snapshot in window])


def _series(window: Sequence[MeshSnapshot], names: Sequence[str]) -> Array:
    """Return the signals ``[T, k, 7]`` of k services, oldest first; not a number where a kind was not measured."""
    values = np.full((len(window), len(names), len(KINDS)), np.nan, np.float32)
    at = np.zeros(0, np.int64)
    row: dict[str, int] = {}
    of: tuple[str, ...] | None = None  # whose rows `at` has; most snapshots share their names
    for t, snapshot in enumerate(window):
        if snapshot.node_ids is not of:
            of, row = snapshot.node_ids, find_rows(snapshot.node_ids, names, row)
            at = np.array([row.get(name, -1) for name in names], np.int64)
        places, signal_values = snapshot.signal_places
        is_zero = _IS_COUNT.copy()  # where it is missing
        is_zero |= _IS_MOSTLY_ZERO & np.isin(np.arange(len(KINDS)), places % len(KINDS))
        values[t][np.ix_(at >= 0, is_zero)] = 0
        if not len(places):
            continue
        keys = at[:, None] * len(KINDS) + np.arange(len(KINDS))
        nearest = np.searchsorted(places, keys).clip(0, len(places) - 1)
        is_there = (places[nearest] == keys) & (at >= 0)[:, None]
        values[t][is_there] = signal_values[nearest[is_there]]
    return values


def _facts(values: Array, recent: BoolArray, is_planned: bool) -> tuple[Fact, ...]:
    """Return the facts about one service.

    Args:
        values: ``[T, 7]`` its signals, oldest first.
        recent: ``[T]`` snapshots in which restarts count together.
    """
    restarts = _total(values[recent, RESTARTS])
    tests: dict[int, Callable[[float], float]] = {  # of the usual value, to the value to report; 0: not unusual
        KILLS: lambda _: _total(values[-LATELY:, KILLS]),
        THROTTLING: lambda usual: _high_share(values[-2:, THROTTLING], usual, MIN_THROTTLED, TIMES_THROTTLED),
        RESTARTS: lambda _: restarts if restarts >= MANY_RESTARTS and not is_planned else 0.0,
        DISK: lambda usual: _full(float(values[-1, DISK]), usual),
        PENDING: lambda usual: 0.0 if is_planned else _waiting(values[-LATELY:, PENDING], usual),
        QUEUE: lambda _: _grown(values[:, QUEUE]),
        CANCELLED: lambda usual: _high_share(values[-2:, CANCELLED], usual, MIN_CANCELLED, TIMES_CANCELLED),
    }
    matters = np.asarray((values[-LATELY:] >= _MIN).any(axis=0))  # most services have one such kind
    matters[RESTARTS] = True
    facts = []
    for kind, test in tests.items():
        if matters[kind]:
            usual = _usual(values[:-LATELY, kind])
            if (value := test(usual)) > 0:
                facts.append(Fact(KINDS[kind].value, value, usual))
    return tuple(facts)


def _usual(older: Array) -> float:
    """Return the median of the older snapshots; not a number if it is unknown."""
    values = np.sort(older[np.isfinite(older)])
    middle = len(values) // 2  # np.median takes ten times as long
    return float((values[middle] + values[-middle - 1]) / 2) if len(values) >= BEFORE else float("nan")


def _high_share(lately: Array, usual: float, min_share: float, times: float) -> float:
    """Two snapshots in a row, because a burst of requests throttles for a moment. Some services are always throttled,
    and browsers always cancel some requests, so without a usual value nothing is unusual."""
    smaller = float(lately.min()) if len(lately) == 2 else 0.0
    return float(lately[-1]) if smaller >= min_share and smaller > times * usual else 0.0


def _total(counts: Array) -> float:
    return float(counts[counts > 0].sum())


def _full(now: float, usual: float) -> float:
    """A volume that is always as full is short only if nothing is left."""
    is_new = not usual >= FULL_DISK or now > usual + DISK_GROWTH
    return now if now >= (FULL_DISK if is_new else NO_DISK) else 0.0


def _waiting(lately: Array, usual: float) -> float:
    """Pods that wait for longer than a start usually takes. Some may always wait, such as the pods of a DaemonSet on a
    full node."""
    finite = lately[np.isfinite(lately)]
    is_long = len(finite) == LATELY and finite.min() > (usual if usual == usual else 0)
    return float(finite[-1]) if is_long else 0.0


def _grown(depth: Array) -> float:
    """Queues rise and fall with batches, so only a depth far above everything before counts."""
    lately = depth[-LATELY:][np.isfinite(depth[-LATELY:])]
    now = float(np.median(lately)) if len(lately) == LATELY else 0.0
    if now <= MIN_QUEUE:
        return 0.0
    for span in QUEUE_SPANS:
        older, recent = (part[np.isfinite(part)] for part in (depth[:-span], depth[-span:]))
        if len(older) < BEFORE:
            break
        highest = float(older.max())
        is_steady = span >= MIN_STEADY and now >= TIMES_STEADY * highest and _tau(recent) >= MIN_TAU
        if now > TIMES_QUEUE * highest or is_steady:
            return float(lately[-1])
    return 0.0


def _tau(values: Array) -> float:
    first, second = np.triu_indices(len(values), 1)
    return float(np.sign(values[second] - values[first]).mean()) if len(first) else 0.0
