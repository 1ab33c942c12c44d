"""Decisions of controllers between two instants of a cluster."""

import pytest

from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.workloads import HOLD_BACK_POLLS, Controller, Controllers, WorkloadState

CART: Key
CART_2: Key
CART, CART_2 = ("shop", "cart-v1"), ("shop", "cart-v2")
SERVES: dict[Key, list[Key]] = {CART: [("shop", "cart")]}
BOTH: dict[Key, list[Key]] = {**SERVES, CART_2: [("shop", "cart")]}


def find_changes(
    before: Controllers, now: Controllers, serves: dict[Key, list[Key]], later: dict[Key, list[Key]] | None = None
) -> list[tuple[str, str]]:
    """Return kind and service of each change; ``later``: workloads by service at the second instant."""
    _, known = WorkloadState().update(before, serves, frozenset())
    changes, _ = known.update(now, serves if later is None else later, frozenset())
    return [(change.kind, change.service) for change in changes]


def of(desired: int, generation: int = 1) -> Controller:
    return Controller(desired, generation)


@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        ({CART: of(2)}, {CART: of(2)}, []),
        ({CART: of(2)}, {CART: of(4, 2)}, ["scale_out"]),
        ({CART: of(4)}, {CART: of(1, 2)}, ["scale_in"]),
        ({CART: of(2)}, {CART: of(2, 2)}, ["deploy"]),
        ({CART: of(2)}, {CART: of(0, 2)}, ["retirement"]),
        ({CART: of(0)}, {CART: of(2, 2)}, ["scale_out"]),
        ({CART: of(0)}, {CART: of(0, 2)}, []),
        ({CART: of(2), ("shop", "web"): of(1)}, {("shop", "web"): of(1)}, ["deletion"]),
        ({CART: of(0), ("shop", "web"): of(1)}, {("shop", "web"): of(1)}, []),
    ],
)
def test_one_workload(before: Controllers, now: Controllers, kinds: list[str]) -> None:
    assert find_changes(before, now, SERVES) == [(kind, "shop/cart") for kind in kinds]


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        ((3, None), (3, 1), "deploy"),  # a canary starts
        ((3, 1), (3, None), "deploy"),  # and ends
        ((3, 3), (0, 3), "deploy"),  # the old version is scaled to zero, the new one stays
        ((3, 3), (None, 3), "deploy"),  # or it is deleted
        ((3, 3), (None, None), "deletion"),
        ((3, 3), (0, 0), "retirement"),
        ((3, 1), (2, 2), "deploy"),  # replica by replica
        ((3, 1), (3, 3), "scale_out"),
        ((None, None), (1, 1), "new_service"),
    ],
)
def test_versions_beside_each_other_are_one_service(
    before: tuple[int | None, int | None], now: tuple[int | None, int | None], kind: str
) -> None:
    """A version that ends while another stays must neither mute the service nor make the state forget it."""
    web = {("shop", "web"): of(1)}
    was, is_now = (
        web
        | {key: of(desired, 1 + i) for key, desired in zip((CART, CART_2), some, strict=True) if desired is not None}
        for i, some in enumerate((before, now))
    )
    assert find_changes(was, is_now, BOTH) == [(kind, "shop/cart")]


def test_workloads_of_a_service_are_remembered_beyond_the_last_request() -> None:
    """kube-state-metrics is scraped rarely. A pod's series may be gone when its deletion is reported."""
    assert find_changes({CART: of(2), CART_2: of(1)}, {CART_2: of(1)}, SERVES, {}) == [("deletion", "shop/cart")]


def test_a_version_that_gets_its_first_traffic_is_a_deploy_of_the_service_it_serves() -> None:
    before: Controllers = {CART: of(3), CART_2: of(1)}
    assert find_changes(before, before, SERVES, BOTH) == [("deploy", "shop/cart")]
    assert find_changes(before, before, BOTH) == []


def test_while_kube_state_metrics_is_down_nothing_changes_and_nothing_is_forgotten() -> None:
    _, known = WorkloadState().update({CART: of(2)}, SERVES, frozenset())
    changes, known = known.update({}, {}, None)
    assert changes == []
    changes, _ = known.update({CART: of(3, 2)}, {}, None)
    assert [(c.kind, c.service, c.reason) for c in changes] == [
        ("scale_out", "shop/cart", "cart-v1: replicas changed from 2 to 3")
    ]


def test_a_missing_part_deletes_no_service_unless_it_stays_missing() -> None:
    mesh: dict[Key, Controller] = {("shop", f"s{i}"): of(2) for i in range(40)}
    left = {key: one for key, one in mesh.items() if int(key[1][1:]) >= 20}
    _, known = WorkloadState().update(mesh, {}, frozenset())
    for _ in range(HOLD_BACK_POLLS):
        changes, known = known.update(left, {}, frozenset())
        assert changes == []
    back, _ = known.update(mesh, {}, frozenset())
    assert back == []
    gone, known = known.update(left, {}, frozenset())
    assert {(c.kind, c.service) for c in gone} == {("deletion", f"shop/s{i}") for i in range(20)}
    assert known.update(left, {}, frozenset())[0] == []


def test_a_few_deletions_together_are_reported_at_once() -> None:
    mesh: dict[Key, Controller] = {("shop", f"s{i}"): of(2) for i in range(40)}
    left = {key: one for key, one in mesh.items() if key[1] not in ("s1", "s2", "s3")}
    assert find_changes(mesh, left, {}) == [("deletion", f"shop/s{i}") for i in (1, 2, 3)]


def test_a_cordoned_node_is_reported_once_for_each_service_on_it() -> None:
    mesh: Controllers = {CART: of(2), ("shop", "web"): of(1), ("shop", "db"): of(1)}
    _, known = WorkloadState().update(mesh, SERVES, frozenset())
    decided = {**mesh, ("shop", "web"): of(2, 2)}
    changes, known = known.update(decided, {}, frozenset({CART, ("shop", "web")}))
    assert [(c.kind, c.service) for c in changes] == [("scale_out", "shop/web"), ("node_drain", "shop/cart")]
    assert known.update(decided, {}, None)[0] == []  # unknown in this poll
    changes, known = known.update(decided, {}, frozenset({CART, ("shop", "db")}))
    assert [(c.kind, c.service) for c in changes] == [("node_drain", "shop/db")]


def test_a_scaling_has_its_origin_and_the_origin_alone_is_no_change() -> None:
    _, known = WorkloadState().update({CART: of(2)}, SERVES, frozenset())
    assert known.update({CART: Controller(2, 1, by_autoscaler=True)}, {}, frozenset())[0] == []
    ((change,), _) = known.update({CART: Controller(5, 2, by_autoscaler=True)}, {}, frozenset())
    assert change.reason == "cart-v1: replicas changed from 2 to 5 by the autoscaler"


def test_a_new_replica_set_of_a_rollout_is_its_deploy() -> None:
    """kube-state-metrics does not know the generation of a rollout, only when its replica sets were made."""
    _, known = WorkloadState().update({CART: of(3, 1_764_000_000)}, SERVES, frozenset())
    [change], _ = known.update({CART: of(3, 1_764_000_100)}, SERVES, frozenset())
    assert (change.kind, change.service) == ("deploy", "shop/cart")
    assert change.reason == "cart-v1: another replica set"
