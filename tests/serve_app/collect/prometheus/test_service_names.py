"""A workload has the name of the Service that it serves; a service whose labels were not filled is a known one."""

from collections.abc import Mapping

import pytest

from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.service_names import MAX_WORKLOADS, NO_SERVICE, ServiceNames

WEB = ("shop", "web")


def serve(names: ServiceNames, requests: Mapping[tuple[str, str], float], namespace: str = "shop") -> None:
    """Tell the names which workload serves which Service, by requests so far."""
    keys: dict[Key, float] = {
        (namespace, workload, namespace, service): n for (workload, service), n in requests.items()
    }
    names.add_served(keys)


def test_a_workload_that_serves_nothing_keeps_its_name() -> None:
    names = ServiceNames()
    serve(names, {("cart", "cart-svc"): 5.0})
    assert names.of(("shop", "gateway")) == ("shop", "gateway")
    assert names.of(("other", "cart")) == ("other", "cart")
    assert names.of(("shop", "cart")) == ("shop", "cart-svc")


def test_of_several_services_the_one_with_its_own_name_counts() -> None:
    names = ServiceNames()
    serve(names, {("web", "admin"): 1e6, ("web", "web"): 1.0, ("web", "web-headless"): 1e5})
    assert names.of(WEB) == WEB


def test_of_several_services_the_busiest_counts_and_of_equal_ones_the_first_by_name() -> None:
    names = ServiceNames()
    serve(names, {("web", "admin"): 10.0, ("web", "users"): 300.0})
    assert names.of(WEB) == ("shop", "users")
    names = ServiceNames()
    serve(names, {("web", "b"): 7.0, ("web", "a"): 7.0})
    assert names.of(WEB) == ("shop", "a")


def test_a_name_stays_without_traffic_and_after_restarts() -> None:
    names = ServiceNames()
    serve(names, {("web", "users"): 300.0, ("web", "admin"): 200.0})
    assert names.of(WEB) == ("shop", "users")
    serve(names, {})
    assert names.of(WEB) == ("shop", "users")
    serve(names, {("web", "admin"): 9.0})  # all pods are new, and only administrators have called
    assert names.of(WEB) == ("shop", "users")
    serve(names, {("web", "users"): 12.0, ("web", "admin"): 400.0})  # not clearly more
    assert names.of(WEB) == ("shop", "users")
    serve(names, {("web", "admin"): 900.0})
    assert names.of(WEB) == ("shop", "admin")


def test_a_caller_is_named_by_all_of_its_workloads() -> None:
    names = ServiceNames(frozenset({"unknown"}))
    serve(names, {("web-v1", "web-svc"): 5.0, ("web-v2", "web-svc"): 5.0, ("web-v2", "probe"): 8.0})
    assert not names.is_known(WEB)
    assert names.of(WEB) == WEB
    names.add_callers([(*WEB, "shop", "web-v1"), (*WEB, "shop", "web-v2")], [WEB, ("shop", "gateway")])
    assert names.of(WEB) == ("shop", "web-svc")
    assert names.is_known(("shop", "gateway"))


def test_callers_outside_the_mesh_have_no_workload() -> None:
    names = ServiceNames(frozenset({"unknown"}))
    serve(names, {("unknown", "cart-svc"): 1e9})
    assert names.is_known(("unknown", "unknown"))
    assert names.of(("shop", "unknown")) == ("shop", "unknown")


def test_names_follow_a_service_that_is_seen_later() -> None:
    names = ServiceNames()
    assert names.of(WEB) == WEB
    serve(names, {("web", "web-svc"): float("nan")})
    assert names.of(WEB) == ("shop", "web-svc")


SEEN = [
    ("shop", "cart"),
    ("shop", "web"),
    ("bank", "ledger"),
    ("bank", "web"),
    ("east.shop", "cart"),
    ("west.shop", "cart"),
]


@pytest.mark.parametrize(
    ("service", "caller", "meant"),
    [
        (("shop", "cart"), None, ("shop", "cart")),
        (("shop", "new"), None, ("shop", "new")),
        (("unknown", "unknown"), None, ("unknown", "unknown")),  # from outside
        # The only service of the name.
        (("unknown", "ledger"), None, ("bank", "ledger")),
        (("unknown", "ledger"), ("shop", "web"), ("bank", "ledger")),
        (("unknown", "cart"), ("bank", "web"), ("shop", "cart")),  # the others are in clusters
        # Of several, the nearest one.
        (("unknown", "web"), ("bank", "ledger"), ("bank", "web")),
        (("unknown", "web"), ("other", "job"), NO_SERVICE),
        (("unknown", "web"), None, NO_SERVICE),
        (("unknown.shop", "cart"), ("west.bank", "web"), ("west.shop", "cart")),
        (("east.unknown", "cart"), ("west.shop", "web"), ("east.shop", "cart")),
        (("unknown.unknown", "cart"), ("east.bank", "web"), ("east.shop", "cart")),
        # None: where callers look for it.
        (("unknown", "mail"), ("shop", "web"), ("shop", "mail")),
        (("unknown.shop", "mail"), ("east.bank", "web"), ("east.shop", "mail")),
        (("unknown", "mail"), None, NO_SERVICE),
        # A host.
        (("unknown", "cart.shop"), ("bank", "web"), ("shop", "cart")),
        (("unknown", "cart.shop:8080"), ("bank", "web"), ("shop", "cart")),
        (("unknown", "cart:8080"), ("bank", "web"), ("shop", "cart")),
        (("unknown", "api.stripe.com"), ("bank", "web"), ("external", "api.stripe.com")),
    ],
)
def test_a_service_whose_labels_were_not_filled_is_a_known_one(service: Key, caller: Key | None, meant: Key) -> None:
    names = ServiceNames(frozenset({"unknown"}))
    names.see([*SEEN, ("unknown", "web"), ("shop", "unknown")])
    assert names.settle(service, caller) == meant


def test_a_service_that_is_seen_later_is_meant_from_then_on() -> None:
    names = ServiceNames(frozenset({"unknown"}))
    call = (*WEB, "unknown", "ledger")
    assert names.settle_key(call) == (*WEB, "shop", "ledger")
    names.see([("shop", "cart"), ("bank", "ledger")])
    assert names.settle_key(call) == (*WEB, "bank", "ledger")
    assert names.settle_key((*WEB, "shop", "unknown")) == (*WEB, *NO_SERVICE)


def test_the_services_seen_are_bounded() -> None:
    names = ServiceNames()
    names.see((f"ns-{i}", "web") for i in range(MAX_WORKLOADS + 2))
    assert names.settle(("unknown", "web"), ("ns-0", "job")) == NO_SERVICE, "the first was forgotten"
    assert names.settle(("unknown", "web"), ("ns-9", "job")) == ("ns-9", "web")
