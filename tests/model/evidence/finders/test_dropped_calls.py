"""Calls that a working caller suddenly stops making are evidence. Calls that decrease slowly or move are not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.dropped_calls import LASTS, find_dropped_calls
from model.evidence.gather import Evidence
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.snapshot import MeshSnapshot, PlannedChange
from model.verdict import DROPPED
from tests.model.evidence_cases import CART, STORE, evidence_of, scored_mesh, snapshot_with_move
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

CALL = CALLS.index((CART, STORE))
FIRST = 30  # index of the snapshot with the change


def with_share(index: int, share: float, *, busy: float = 1.0, changes: Sequence[PlannedChange] = ()) -> MeshSnapshot:
    """Return a snapshot: the cart makes this share of its calls to the store, at ``busy`` times its requests."""
    nodes, edges = {(CART, 0): busy * NODE[0]}, {(CALL, 0): share * EDGE[0]}
    return snapshot(index, nodes=nodes, edges=edges, changes=changes)


def vanished(evidence: Evidence, service: int = STORE) -> float:
    return float(evidence.kinds[evidence.names.index(SERVICES[service]), EvidenceKind.VANISHED])


def test_calls_that_a_busy_caller_suddenly_drops_are_evidence_against_their_destination() -> None:
    fallen = [with_share(FIRST + i, 0.15) for i in range(LASTS + 2)]
    evidence = evidence_of(*fallen)
    assert vanished(evidence) == EVENT_SURPRISE
    assert vanished(evidence, CART) == 0
    first = evidence.explanation.reasons[evidence.names.index(SERVICES[STORE])][0]
    assert (first.metric, first.source) == (DROPPED, SERVICES[CART])
    assert (first.observed, first.expected) == (pytest.approx(7.5), pytest.approx(50, rel=0.2))


def test_services_and_calls_may_stand_elsewhere_in_each_snapshot() -> None:
    rng = np.random.default_rng(0)
    moved = [
        one.take(rng.permutation(one.num_nodes), rng.permutation(one.num_edges))
        for one in (with_share(FIRST + i, 0.15) for i in range(LASTS + 2))
    ]
    assert vanished(evidence_of(*moved)) == EVENT_SURPRISE


def test_a_fall_counts_only_if_it_lasts_and_is_deep() -> None:
    assert vanished(evidence_of(*(with_share(FIRST + i, 0.15) for i in range(LASTS - 1)))) == 0
    assert vanished(evidence_of(*(with_share(FIRST + i, 0.55) for i in range(LASTS + 2)))) == 0


def test_traffic_that_drains_is_no_evidence() -> None:
    """A service that is retired receives fewer requests in each snapshot."""
    shares = np.linspace(1, 0.02, 16)
    for length in range(LASTS, len(shares) + 1):
        drained = [with_share(FIRST + i, float(share)) for i, share in enumerate(shares[:length])]
        assert vanished(evidence_of(*drained)) == 0, length


def test_a_caller_with_fewer_requests_makes_fewer_calls() -> None:
    assert vanished(evidence_of(*(with_share(FIRST + i, 0.15, busy=0.3) for i in range(LASTS + 2)))) == 0


@pytest.mark.parametrize(("kind", "surprise"), [("deploy", 0.0), ("canary", 0.0), ("scale_out", EVENT_SURPRISE)])
def test_a_new_version_may_make_other_calls_and_more_replicas_may_not(kind: str, surprise: float) -> None:
    changes = [PlannedChange(kind, SERVICES[CART], "")]
    fallen = [with_share(FIRST + i, 0.15, changes=changes * (i == 1)) for i in range(LASTS + 2)]
    assert vanished(evidence_of(*fallen)) == surprise


def test_calls_that_move_to_another_service_are_not_dropped() -> None:
    moved = evidence_of(*(snapshot_with_move(0.85, index=FIRST + i) for i in range(LASTS + 2)))
    assert DROPPED not in {reason.metric for reasons in moved.explanation.reasons for reason in reasons}


@pytest.mark.parametrize("length", [6, 14])
def test_intermittent_calls_are_no_evidence(length: int) -> None:
    """A batch job or a feature is used for some snapshots, and then unused for some."""
    bursts = [with_share(FIRST + i, 0.15 if i // length % 2 else 1.0) for i in range(3 * length)]
    idle = [with_share(FIRST + len(bursts) + i, 0.15) for i in range(LASTS + 2)]
    assert vanished(evidence_of(*bursts, *idle)) == 0


def test_without_stored_snapshots_there_is_no_evidence() -> None:
    observation, state = watch([with_share(FIRST, 0.15)], settled_state())
    assert find_dropped_calls(scored_mesh(replace(state, window=()), observation)) == ()
