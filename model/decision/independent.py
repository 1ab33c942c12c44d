"""Services whose symptoms nothing else in the mesh explains.

The root-cause scores of an incident add up to 1, as if it had one cause. Two faults at the same time, in services that
call each other, are one incident, and the stronger fault takes all of the score. A service is a fault of its own if it
deviates by itself: its callees show no symptom that could be the cause of its own, and it gets no more requests than
usual. In simulated meshes with one fault this finds no other service, unless traffic moves: then everything that it
moves away from or towards deviates by itself.
"""

import numpy as np

from model.decision.ranking import with_neighbours
from model.evidence.gather import Evidence
from model.evidence.kinds import WORTH_A_LOOK, EvidenceKind
from model.features import Array
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import Tracks
from model.ordering import largest_of_group, largest_of_rows
from model.snapshot import BoolArray, IntArray

OWN_SHARE = 0.8  # of the page level, from which a symptom alone makes a service suspect
MAX_EXPLAINED = 0.3  # of a symptom by the calls of a service, up to which it is the service's own
MAX_LOAD = 1.5  # times the usual requests, up to which a service is not overloaded
CLEARLY = 4.0  # surprise of its self time, or of its callers' symptoms, from which these cannot be by chance
LATENCY = [EvidenceKind.LATENCY, EvidenceKind.CALLS_IN_LATENCY]
LATENCY_RAW = [EvidenceKind.LATENCY_RAW, EvidenceKind.CALLS_IN_LATENCY]
ERRORS = [EvidenceKind.ERROR, EvidenceKind.CALLS_IN_ERROR]
ERRORS_RAW = [EvidenceKind.ERROR_RAW, EvidenceKind.CALLS_IN_ERROR]


def find_independent(evidence: Evidence, tracks: Tracks, level: float, policy: AlertPolicy) -> BoolArray:
    """Return which candidates ``[M]`` are probably the cause of their own symptoms.

    Errors can make a caller slow, because it retries, but not the median of its own time. Slow callees make it fail,
    because it waits in vain. A service that disappeared never exceeds the page level itself; its callers show it.
    """
    count = len(evidence.names)
    if evidence.attribution is None or not count:
        return np.zeros(count, bool)
    kinds, (source, destination) = evidence.kinds, evidence.calls
    is_missed = kinds[:, EvidenceKind.VANISHED] > WORTH_A_LOOK
    is_gone = is_missed & (evidence.explanation.gone > 0)
    failing, slow, missing = (
        largest_of_group(of[destination], source, count) > WORTH_A_LOOK
        for of in (
            largest_of_rows(kinds[:, ERRORS_RAW]),
            largest_of_rows(kinds[:, LATENCY_RAW]),
            kinds[:, EvidenceKind.VANISHED],
        )
    )
    of_errors, of_time = (
        np.bincount(source, share, count).astype(np.float32)
        for share in (evidence.attribution.errors, evidence.attribution.time)
    )
    min_surprise = OWN_SHARE * level
    fails = (largest_of_rows(kinds[:, ERRORS]) > min_surprise) & ~missing & ~slow & (~failing | _is_small(of_errors))
    is_slow = (largest_of_rows(kinds[:, LATENCY]) > min_surprise) & ~missing & (~slow | _is_small(of_time))
    is_slow &= ~failing | (kinds[:, EvidenceKind.OWN_TIME] > CLEARLY)
    is_flooded = largest_of_group(kinds[source, EvidenceKind.CALLS_OUT], destination, count) >= WORTH_A_LOOK
    candidate_tracks = (tracks.get(name) for name in evidence.names)
    lasts = [
        track is not None and track.times_above(level, policy.confirm_of) >= policy.confirm
        for track in candidate_tracks
    ]
    alerts = np.array(lasts, bool) & (evidence.page > level)
    has_disappeared = is_gone & (kinds[:, EvidenceKind.CALLERS] > CLEARLY)
    is_independent: BoolArray = (alerts & (fails | is_slow | is_missed)) | has_disappeared
    return is_independent & (evidence.inbound_load < MAX_LOAD) & ~is_flooded


def _is_small(share: Array) -> BoolArray:
    """Return which shares of symptoms that calls explain are known, and small, ``[M]``; 0 is unknown."""
    return (share > 0) & (share < MAX_EXPLAINED)


def independent_of(evidence: Evidence, rows: IntArray, independent: BoolArray) -> IntArray:
    """Return the independent services of an incident. If traffic moved, only services that disappeared are.

    Args:
        independent: ``[M]`` by :func:`find_independent`.
    """
    own_faults = rows[independent[rows]]
    near = with_neighbours(rows, evidence.calls)
    gone = evidence.explanation.gone > 0
    has_moved = (evidence.kinds[near, EvidenceKind.VANISHED] > WORTH_A_LOOK) & ~gone[near]
    return own_faults[gone[own_faults]] if has_moved.any() else own_faults
