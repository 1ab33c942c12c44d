"""Canaries and replacements share the traffic of their service: a share that moves is no fault."""

from collections.abc import Sequence

import pytest

from model.evidence.finders.dropped_calls import LASTS
from model.evidence.gather import Evidence
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.release_versions import find_versions, stem
from model.snapshot import MeshSnapshot
from tests.model.evidence.version_cases import CANARY, FAR, FIRST, OTHER, shares_of
from tests.model.evidence_cases import CART, STORE, evidence_of
from tests.model.model_cases import SERVICES


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


@pytest.mark.parametrize("name", [FAR, ""])
def test_calls_that_no_replacement_gets_are_dropped(name: str) -> None:
    """A new service of another namespace, or none at all, is no replacement."""
    if name:
        used = [shares_of(FIRST + i, 0.0, name=name) for i in range(2)]
        fallen = [shares_of(FIRST + 2 + i, 0.0, name=name, callers=[CART], lost=0.9) for i in range(LASTS + 2)]
    else:
        used, fallen = [], [shares_of(FIRST + i, 0.9, callers=[CART], present=False) for i in range(LASTS + 2)]
    assert disappearance_of(evidence_of(*used, *fallen), SERVICES[STORE]) == EVENT_SURPRISE
