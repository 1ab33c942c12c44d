"""Services that are worse after a planned change of their own than services are after their changes.

Tails near planned changes are heavy, because new processes are slow for a moment. So a gross deviation is hardly
improbable there. But what new processes do is soon over: caches fill, and a rollout restarts a few replicas at a time.
A service that stays far slower than before its change, or fails far more, has a bad version or another fault. Baselines
pause near a change, so what is usual is the level before it. The slowest requests say little, since a few cold replicas
make p99 several times as high during a harmless rollout. A version changes the self time of its service: four times as
much of it can be half of what a request takes there, when its callees take the rest.
"""

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from model.features import EDGE_CHANNELS, ERROR, NODE_CHANNELS, P50, RATE, Array, Channel
from model.ordering import largest_of_rows
from model.snapshot import BoolArray
from model.state.change_impact import KNOWN, OWN
from model.state.filters import BOUND, SEEN, SHORT_RATE, Deviation

LASTS_SECONDS, MIN_SNAPSHOTS = 105.0, 3  # for which it has been worse by ``BOUND`` sigmas, whichever is longer
TOLERANCE = 0.95  # of the average over 4 snapshots after such a time
SLOWER = 2.2  # times as slow as before it
NOTICEABLE = 0.15  # of the rise that users notice: a version that is far slower can be rolled back before they do
OPEN_SECONDS = 1800.0  # for which an alert that began after a change is still about it
FAILS = 0.05  # share of its requests that fail, beyond the usual one
SIGMAS = 3.0  # of the newest deviation
MIN_SELF = 0.05  # of a latency, that is self time
OWN_SHARE = 0.5  # of the rise, that callees must not explain
NOTICEABLE_SELF = 0.3  # of the rise that users notice: rollouts often multiply a small self time for two minutes


def find_bad_changes(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find services that are far slower since their own planned change, and services that fail far more, by their own
    metrics or by the metrics of the calls to them."""
    state, observation = mesh.state, mesh.observation
    assert state.learned_at is not None  # time of the snapshot that was observed
    own = observation.node_exposure == OWN
    alerted = state.memory.is_alerted_after_change(state.node_ids, state.learned_at, OPEN_SECONDS)
    if not own.any() and not alerted.any():
        return ()
    slow, failing = np.zeros((2, len(state.node_ids)), np.float32)
    own = (own & state.memory.has_new_version(state.node_ids)) | alerted
    own &= largest_of_rows(state.node_filters[SEEN]) >= KNOWN
    calls = own[state.edge_index[1]] & (state.edge_filters[SEEN, :, RATE] >= KNOWN)
    snapshots = max(MIN_SNAPSHOTS, round(LASTS_SECONDS / state.interval_seconds))
    min_average = TOLERANCE * BOUND * (1 - (1 - SHORT_RATE) ** snapshots)
    destination = state.edge_index[1, calls]
    for surprise, is_worse in (
        (slow, _is_slow(observation.node, own, min_average, mesh.floors.p50, _waits(mesh, own))),
        (failing, _is_failing(observation.node, own, NODE_CHANNELS[ERROR], min_average)),
    ):
        surprise[np.flatnonzero(own)[is_worse]] = EVENT_SURPRISE
    for surprise, is_worse in (
        (slow, _is_slow(observation.edge, calls, min_average, mesh.floors.p50)),
        (failing, _is_failing(observation.edge, calls, EDGE_CHANNELS[ERROR], min_average)),
    ):
        surprise[destination[is_worse]] = EVENT_SURPRISE
    return Finding(EvidenceKind.LATENCY, slow), Finding(EvidenceKind.ERROR, failing)


def _is_slow(
    past: Deviation, rows: BoolArray, min_average: float, floor: float, waits: tuple[Array, Array] | None = None
) -> BoolArray:
    """Return which of n rows have a median latency that is far higher for long, ``[n]``, or a self time.

    Args:
        min_average: average deviation of those that last.
        floor: s, of which users notice a rise.
        waits: for callees in a request, now and usually, ``[n]`` each, s; None: not known.
    """
    now, usual = np.exp(past.value[rows, P50]), np.exp(past.expected[rows, P50])
    rise = now - usual
    is_slow = (now >= SLOWER * usual) & (rise >= NOTICEABLE * floor)
    if waits is not None:
        wait, usual_wait = waits
        self_time = np.maximum(usual - usual_wait, MIN_SELF * usual)
        by_itself = rise - np.maximum(wait - usual_wait, 0)
        is_multiple = by_itself >= np.maximum((SLOWER - 1) * self_time, OWN_SHARE * rise)
        is_slow |= is_multiple & (rise >= NOTICEABLE_SELF * floor)
    return _lasts(past, rows, P50, min_average) & is_slow


def _waits(mesh: ScoredMesh, rows: BoolArray) -> tuple[Array, Array]:
    """Return how long n services wait for their callees in a request, now and usually, ``[n]`` each, s. Calls whose
    latency is not measured are left out of both."""
    node, edge = mesh.observation.node, mesh.observation.edge
    source = mesh.state.edge_index[0]
    measured = np.flatnonzero(rows[source] & edge.observed[:, P50])
    requests, calls = NODE_CHANNELS[RATE], EDGE_CHANNELS[RATE]
    waits = []
    for of_node, of_edge in ((node.value, edge.value), (node.expected, edge.expected)):
        wait = calls.invert(of_edge[measured, RATE]) * np.exp(of_edge[measured, P50])
        total = np.bincount(source[measured], wait, len(rows))[rows]
        waits.append((total / np.maximum(requests.invert(of_node[rows, RATE]), 0.05)).astype(np.float32))
    now, usually = waits
    return now, usually


def _is_failing(past: Deviation, rows: BoolArray, channel: Channel, min_average: float) -> BoolArray:
    """Return which of n rows fail far more for long, ``[n]``."""
    now, usual = (channel.invert(of[rows, ERROR]) for of in (past.value, past.expected))
    return _lasts(past, rows, ERROR, min_average) & (now - usual >= FAILS)


def _lasts(past: Deviation, rows: BoolArray, channel: int, min_average: float) -> BoolArray:
    """Return which of n rows deviate in a channel now as they did on average, ``[n]``."""
    now, before = past.now[rows, channel], past.past_short[rows, channel]
    return past.observed[rows, channel] & (now >= SIGMAS) & (before >= min_average)
