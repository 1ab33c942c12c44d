"""Services whose users suffer so much that no history excuses it."""

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from model.features import ERROR, NODE_CHANNELS, P99, RATE, Array, rate_of
from model.snapshot import BoolArray
from model.state.change_impact import OWN

MIN_REQUESTS = 50  # requests in a snapshot that count in full, for errors
MIN_TAIL = 300  # the same for p99: three requests have to be slower
MIN_TIMES, MIN_WAIT = 4.0, 1.0  # times the usual p99, and s above it


def find_gross_harm(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find services that fail a third of their requests, and entry points where one request in a hundred takes a second
    longer than usual, and four times as long.

    Deploys cause errors for a moment in most meshes, so the tails near changes are heavy. Where an autoscaler is often
    late, slow minutes are frequent. Both make harm less surprising, and do not excuse it: it counts in full if it is
    true of enough requests in the snapshot. Few requests count less each time; together they count as
    :func:`with_rare_failures`, near changes too. Errors are looked at near planned changes only. Without one, they are
    surprising enough.
    """
    state, observation = mesh.state, mesh.observation
    node = observation.node
    is_known = node.observed[:, RATE]
    requests = np.zeros(len(is_known), np.float32)
    failing, waiting = np.zeros((2, len(is_known)), np.float32)
    is_exposed = is_known & (observation.node_exposure == OWN) & node.observed[:, ERROR]
    entry = is_known & mesh.receives_users & node.observed[:, P99]
    is_candidate = is_exposed | entry
    requests[is_candidate] = rate_of(node.value[is_candidate, RATE]) * np.float32(state.interval_seconds)
    now, usual = (NODE_CHANNELS[ERROR].invert(of[is_exposed, ERROR]) for of in (node.value, node.expected))
    enough = np.clip(requests[is_exposed] / MIN_REQUESTS, 0, 1)
    failing[is_exposed] = EVENT_SURPRISE * enough * np.clip((now - usual - 0.15) / 0.15, 0, 1)
    waiting[entry] = EVENT_SURPRISE * _waits(node.value[entry], node.expected[entry], requests[entry])
    return Finding(EvidenceKind.ERROR, failing), Finding(EvidenceKind.LATENCY, waiting)


def _waits(value: Array, expected: Array, requests: Array) -> BoolArray:
    """Return at which of n entry points one request in a hundred waits, ``[n]``."""
    now, usual = (NODE_CHANNELS[P99].invert(of[:, P99]) for of in (value, expected))
    return (now >= MIN_TIMES * usual) & (now - usual >= MIN_WAIT) & (requests >= MIN_TAIL)
