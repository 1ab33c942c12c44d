"""Canaries that are worse than the version beside them."""

from collections.abc import Sequence

import numpy as np
import pytest

from model.evidence.finders.canaries import find_worse_canaries
from model.evidence.finders.dropped_calls import LASTS
from model.evidence.gather import Evidence
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.snapshot import MeshSnapshot
from tests.model.evidence.version_cases import CANARY, FIRST, shares_of
from tests.model.evidence_cases import CART, SEARCH, STORE, evidence_of, surprise_of
from tests.model.model_cases import CALLS, SERVICES, settled_state, watch


def with_canary(index: int, *, slower: float = 1.0, errors: float = 0.01, both: bool = False) -> MeshSnapshot:
    """Return a snapshot with a canary that takes a fifth of the calls and is so many times as slow."""
    whole = shares_of(index, 0.2)
    calls = whole.edge_features.copy()
    rows = slice(-2, None) if not both else [-2, -1, CALLS.index((CART, STORE)), CALLS.index((SEARCH, STORE))]
    calls[rows, 2:] *= slower
    calls[rows, 1] = errors
    return whole.with_values(whole.observed_at, whole.node_features, calls)


def worst(evidence: Evidence, kind: EvidenceKind, service: str = CANARY) -> float:
    return float(evidence.kinds[evidence.names.index(service), kind]) if service in evidence.names else 0.0


def test_a_canary_that_is_worse_than_the_version_beside_it_is_named() -> None:
    slow = evidence_of(*(with_canary(FIRST + i, slower=3.0) for i in range(10)))
    failing = evidence_of(*(with_canary(FIRST + i, errors=0.2) for i in range(10)))
    assert worst(slow, EvidenceKind.LATENCY) == EVENT_SURPRISE
    assert worst(failing, EvidenceKind.ERROR) == EVENT_SURPRISE
    assert worst(slow, EvidenceKind.LATENCY, SERVICES[STORE]) < 2


@pytest.mark.parametrize("length", [LASTS - 1, 10])
def test_a_canary_that_is_as_good_or_has_just_begun_is_not_named(length: int) -> None:
    slower, errors = (3.0, 0.2) if length < LASTS else (1.3, 0.03)
    evidence = evidence_of(*(with_canary(FIRST + i, slower=slower, errors=errors) for i in range(length)))
    assert max(worst(evidence, kind) for kind in (EvidenceKind.LATENCY, EvidenceKind.ERROR)) < EVENT_SURPRISE


def are_worse(snapshots: Sequence[MeshSnapshot]) -> bool:
    """Return whether a canary is worse than the version beside it in the last snapshot."""
    observation, state = watch(snapshots, settled_state())
    return any(surprise.any() for surprise in surprise_of(find_worse_canaries, state, observation).values())


def test_what_harms_both_versions_is_no_fault_of_the_canary() -> None:
    assert not are_worse([with_canary(FIRST + i, slower=3.0, errors=0.2, both=True) for i in range(10)])


def test_a_version_without_latencies_is_not_compared() -> None:
    snapshots = []
    for i in range(10):
        one = with_canary(FIRST + i)
        calls = one.edge_features.copy()
        calls[[CALLS.index((CART, STORE)), CALLS.index((SEARCH, STORE))], 1:] = np.nan
        snapshots.append(one.with_values(one.observed_at, one.node_features, calls))
    assert not are_worse(snapshots)


def test_a_canary_with_few_requests_is_not_judged() -> None:
    few = [with_canary(FIRST + i, slower=3.0) for i in range(10)]
    scaled = [one.with_values(one.observed_at, one.node_features, one.edge_features * [0.03, 1, 1, 1]) for one in few]
    assert not are_worse(scaled)
