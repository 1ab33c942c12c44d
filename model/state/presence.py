"""Measured, silent or gone: what missing telemetry says about a service or a call.

A service without measurements is *gone* only if there is evidence: its callers, whose telemetry is present, no longer
make the calls that they usually make to it, or these calls fail; or the services that it mainly calls receive less.
Otherwise it is *silent*: only its telemetry is missing.

A call without a row has *stopped* only if its caller reports other calls or fails, if its destination receives less, or
if a second caller of a missing service stopped too. Otherwise the call is silent too.

A silent service is not observed. Its values do not count as zero, its filters pause, and it is not a symptom.
"""

from dataclasses import dataclass

import numpy as np

from model.features import EDGE_CHANNELS, ERROR, NODE_CHANNELS, RATE, Array
from model.snapshot import BoolArray, FloatArray, IntArray
from model.state.filters import CENTRE, SEEN

FEWEST_REQUESTS = 5.0  # expected in a snapshot; the chance of none at all is then below 1% (Poisson)
FAILING = 0.5  # error rate from which a call counts as not answered, and a caller as failing
LOST_SHARE = 0.5  # of the expected requests, not made or not answered, from which a service is gone
RECEIVED_SHARE = 0.5  # of a call's usual requests by which its destination's own rate has to fall
MAIN_SHARE = 0.3  # of a destination's usual requests, from which its own rate can show that this caller is gone
MISSED_SHARE = 0.7  # of a call's usual requests by which this rate has to fall then
SOLE_SHARE = 0.7  # of a destination's usual requests, from which its own rate can also show that this caller works


@dataclass(frozen=True, slots=True)
class Presence:
    """The services and calls of a mesh that a snapshot shows.

    Attributes:
        measured: bool ``[N]``: at least one of the service's own metrics is observed.
        gone: bool ``[N]``: not measured, and missed by callers that are.
        silent: bool ``[N]``: not measured, was measured before, and not gone.
        stopped: bool ``[E]``: the call is not in the snapshot, and there is evidence that it is not made.
    """

    measured: BoolArray
    gone: BoolArray
    silent: BoolArray
    stopped: BoolArray


@dataclass(frozen=True, slots=True)
class Rows:
    """A snapshot's metrics on the rows of a mesh's table.

    Attributes:
        node_features, node_observed: ``[N, 7]``.
        edge_features, edge_observed: ``[E, 4]``.
        edge_present: bool ``[E]``: in the snapshot.
    """

    node_features: FloatArray
    node_observed: BoolArray
    edge_features: FloatArray
    edge_observed: BoolArray
    edge_present: BoolArray


def find_presence(
    node_filters: Array, edge_filters: Array, edge_index: IntArray, rows: Rows, interval_seconds: float
) -> Presence:
    """Tell services and calls that are gone from those whose telemetry is missing.

    Args:
        node_filters, edge_filters: ``[13, n, 9]``, ``[13, e, 5]`` before the snapshot; rows added with it are missing.
    """
    count = len(rows.node_features)
    source, destination = edge_index
    present = rows.edge_present
    measured: BoolArray = np.any(rows.node_observed, axis=1)
    if measured.all() and present.all():
        return Presence(measured, ~measured, ~measured, ~present)
    node_usual, was_measured = _usual_traffic(node_filters, NODE_CHANNELS[RATE].offset, count)
    edge_usual, _ = _usual_traffic(edge_filters, EDGE_CHANNELS[RATE].offset, len(source))
    # If a measured caller reports no call at all, either it makes none, or only what reports its calls is silent. Its
    # failures, a destination that receives less, or a second caller of the same missing service tell these apart.
    reports_calls = np.bincount(source[present], minlength=count) > 0
    fails = rows.node_observed[:, ERROR] & (rows.node_features[:, ERROR] >= FAILING)
    drop = (node_usual - rows.node_features[:, RATE])[destination]
    receives_less = rows.node_observed[destination, RATE] & (drop > RECEIVED_SHARE * edge_usual)
    missing = ~measured & was_measured
    is_unreported = ~present & ~reports_calls[source] & measured[source]
    is_agreed = missing & (np.bincount(destination, is_unreported, count) >= 2)
    is_stopped = ~present & reports_calls[source]
    is_stopped |= is_unreported & (receives_less | fails[source] | is_agreed[destination])
    if not missing.any():
        return Presence(measured, missing, missing, is_stopped)
    is_unanswered = present & rows.edge_observed[:, ERROR] & (rows.edge_features[:, ERROR] >= FAILING)
    expected = np.bincount(destination, edge_usual * (present | is_stopped), count)
    lost_requests = np.bincount(destination, edge_usual * (is_unanswered | is_stopped), count)
    gone = missing & (expected * interval_seconds >= FEWEST_REQUESTS) & (lost_requests >= LOST_SHARE * expected)
    # A service without callers, such as an entry point, is missed by its callees: those that it mainly calls receive
    # less.
    mainly = edge_usual >= MAIN_SHARE * np.maximum(node_usual[destination], 1e-6)
    expected = np.bincount(source, edge_usual * (mainly & ~present & rows.node_observed[destination, RATE]), count)
    less = mainly & ~present & rows.node_observed[destination, RATE] & (drop >= MISSED_SHARE * edge_usual)
    lost_requests = np.bincount(source, edge_usual * less, count)
    # One that gets its requests almost only from this service, and still gets them, is better evidence.
    works = edge_usual >= SOLE_SHARE * np.maximum(node_usual[destination], 1e-6)
    works &= ~present & rows.node_observed[destination, RATE] & (drop <= (1 - MISSED_SHARE) * edge_usual)
    is_denied = np.bincount(source, works & (edge_usual * interval_seconds >= FEWEST_REQUESTS), count) > 0
    gone |= (
        missing
        & (expected * interval_seconds >= FEWEST_REQUESTS)
        & (lost_requests >= LOST_SHARE * expected)
        & ~is_denied
    )
    return Presence(measured, gone, missing & ~gone, is_stopped)


def _usual_traffic(filters: Array, offset: float, count: int) -> tuple[Array, BoolArray]:
    """Return the usual traffic of each row, ``[count]`` 1/s, and whether any was ever measured. Both are 0 for rows
    that have no filters yet."""
    rows = filters.shape[1]
    rate, was_measured = np.zeros(count, np.float32), np.zeros(count, bool)
    was_measured[:rows] = filters[SEEN, :, RATE] > 0
    rate[:rows] = np.where(was_measured[:rows], np.maximum(np.exp(filters[CENTRE, :, RATE]) - np.float32(offset), 0), 0)
    return rate, was_measured
