"""Canaries and replacements share the traffic of their service: a share that moves is no fault."""

from collections.abc import Sequence

import numpy as np
import pytest

from model.scoring.evidence import Evidence
from model.scoring.finders.canaries import WORSE_SURPRISE, find_worse_canaries
from model.scoring.finders.dropped_calls import DROPPED_SURPRISE, LASTS
from model.scoring.kinds import EvidenceKind
from model.scoring.versions import find_versions, stem
from model.snapshot import MeshSnapshot
from tests.model.evidence_cases import CART, SEARCH, STORE, evidence_of, surprise_of
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

CANARY, OTHER, FAR = "shop/store-canary", "shop/depot", "bank/depot"
FIRST = 30  # index of the first snapshot with a change
RATE = EDGE[0]


def shares_of(
    index: int,
    share: float,
    *,
    name: str = CANARY,
    callers: Sequence[int] = (CART, SEARCH),
    lost: float = 0.0,
    present: bool = True,
) -> MeshSnapshot:
    """Return a snapshot in which another service takes a share of these callers' calls to the store.

    Args:
        index: of the snapshot.
        share: 0 to 1.
        name: of the other service.
        callers: whose calls move.
        lost: share of the calls that the callers no longer make.
        present: whether the other service is in the mesh.
    """
    calls = np.array([EDGE] * len(CALLS))
    for caller in callers:
        calls[CALLS.index((caller, STORE)), 0] *= (1 - share) * (1 - lost)
    if not present:
        return snapshot(index, edges=calls)
    services = (*SERVICES, name)
    nodes = np.tile(NODE, (len(services), 1))
    nodes[STORE, 0] *= 1 - share
    nodes[-1, 0] = share * RATE * len(callers)
    extra = np.array([EDGE] * len(callers))
    extra[:, 0] *= share * (1 - lost)
    return snapshot(
        index, services, (*CALLS, *((c, len(SERVICES)) for c in callers)), nodes=nodes, edges=[*calls, *extra]
    )


def disappearance_of(evidence: Evidence, *services: str) -> float:
    """Return the strongest evidence that one of these services is gone, or that calls to it were moved or dropped."""
    rows = [evidence.names.index(name) for name in services if name in evidence.names]
    return float(evidence.kinds[rows, EvidenceKind.VANISHED].max(initial=0))


def canary(shares: Sequence[float], each: int = 10, **kwargs: object) -> list[MeshSnapshot]:
    """Return the snapshots of a canary that takes each of these shares for ``each`` snapshots."""
    return [
        shares_of(FIRST + i, shares[i // each], **kwargs)  # type: ignore[arg-type]
        for i in range(each * len(shares))
    ]


def test_versions_have_a_name_in_common() -> None:
    assert stem("shop/cart-canary") == stem("shop/cart-v2") == stem("shop/cart-v1.4") == "shop/cart"
    assert [stem(name) for name in ("shop/cart-db", "shop/cart-2", "shop/cart")] == [
        "shop/cart-db",
        "shop/cart-2",
        "shop/cart",
    ]
    names = ("shop/cart-v1", "shop/cart-v2", "shop/cart-db", "bank/cart-v1", "shop/cartoon")
    assert find_versions(names, ["shop/cart-v1", "shop/cart-db"]) == {"shop/cart-v1": ["shop/cart-v2"]}


@pytest.mark.parametrize("name", [CANARY, OTHER, "shop/store-v2"])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9, 1.0])
def test_a_canary_with_any_share_is_no_fault(name: str, share: float) -> None:
    for length in (1, LASTS, LASTS + 6):
        evidence = evidence_of(*(shares_of(FIRST + i, share, name=name) for i in range(length)))
        assert disappearance_of(evidence, *SERVICES, name) == 0, length


def test_a_canary_of_one_caller_that_takes_all_at_once_is_no_fault() -> None:
    evidence = evidence_of(*(shares_of(FIRST + i, 0.95, callers=[CART]) for i in range(LASTS + 2)))
    assert disappearance_of(evidence, *SERVICES, CANARY) == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_canary_that_is_withdrawn_is_no_fault(share: float) -> None:
    """It is still there without requests, or it is gone."""
    used = canary([share], each=24)
    for present in (True, False):
        for length in (1, 3, LASTS + 2):
            idle = [shares_of(FIRST + 24 + i, 0.0, present=present) for i in range(length)]
            assert disappearance_of(evidence_of(*used, *idle), *SERVICES, CANARY) == 0, (present, length)


def test_a_canary_with_all_of_the_traffic_that_dies_is_missed() -> None:
    dead = [shares_of(FIRST + 24 + i, 1.0, present=False) for i in range(4)]
    assert disappearance_of(evidence_of(*canary([1.0], each=24), *dead), CANARY) > 4


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
    assert worst(slow, EvidenceKind.LATENCY) == WORSE_SURPRISE
    assert worst(failing, EvidenceKind.ERROR) == WORSE_SURPRISE
    assert worst(slow, EvidenceKind.LATENCY, SERVICES[STORE]) < 2


@pytest.mark.parametrize("length", [LASTS - 1, 10])
def test_a_canary_that_is_as_good_or_has_just_begun_is_not_named(length: int) -> None:
    slower, errors = (3.0, 0.2) if length < LASTS else (1.3, 0.03)
    evidence = evidence_of(*(with_canary(FIRST + i, slower=slower, errors=errors) for i in range(length)))
    assert max(worst(evidence, kind) for kind in (EvidenceKind.LATENCY, EvidenceKind.ERROR)) < WORSE_SURPRISE


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


@pytest.mark.parametrize("name", [FAR, ""])
def test_calls_that_no_replacement_gets_are_dropped(name: str) -> None:
    """A new service of another namespace, or none at all, is no replacement."""
    if name:
        used = [shares_of(FIRST + i, 0.0, name=name) for i in range(2)]
        fallen = [shares_of(FIRST + 2 + i, 0.0, name=name, callers=[CART], lost=0.9) for i in range(LASTS + 2)]
    else:
        used, fallen = [], [shares_of(FIRST + i, 0.9, callers=[CART], present=False) for i in range(LASTS + 2)]
    assert disappearance_of(evidence_of(*used, *fallen), SERVICES[STORE]) == DROPPED_SURPRISE
