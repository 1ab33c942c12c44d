"""One row for each call, however many proxies report it, under the names of its services."""

from collections.abc import Mapping

import numpy as np
import pytest

from serve_app.collect.prometheus.keys import Column, Key, KeyMap, KeyTable
from serve_app.collect.prometheus.reporters import join_rows, without_relayed

CALL: Key = ("shop", "web", "shop", "cart")
PROBE: Key = ("shop", "probe", "shop", "cart")
PREFERRED = ("source", "waypoint", "destination")


def join(
    columns: dict[str, dict[Key, float]],
    renamed: Mapping[str, str] | None = None,
    reporters: tuple[str, ...] = PREFERRED,
) -> dict[str, Column]:
    """Join columns whose callers have these new names."""
    keys = KeyTable()
    shown = KeyMap(keys, lambda key: (key[0], (renamed or {}).get(key[1], key[1]), *key[2:4]))
    return join_rows({role: Column.of(values, keys) for role, values in columns.items()}, reporters, shown, 4)


def by_reporter(**values: float) -> dict[Key, float]:
    return {(*CALL, reporter): value for reporter, value in values.items()}


@pytest.mark.parametrize(
    ("rates", "requests", "p99"),
    [
        ({"source": 60.0, "waypoint": 60.0}, 60.0, 0.1),
        ({"source": 58.0, "waypoint": 61.0}, 61.0, 0.1),  # scrapes at different times
        ({"source": 30.0, "waypoint": 60.0}, 60.0, 0.2),  # half of the callers have a sidecar
        ({"waypoint": 10.0, "destination": 60.0}, 60.0, 0.3),
        ({"destination": 5.0}, 5.0, 0.3),
        ({"": 5.0}, 5.0, 0.4),  # recorded by older rules
        ({"source": 0.0, "waypoint": 0.0}, 0.0, 0.1),
    ],
)
def test_the_reporter_that_sees_most_counts(rates: dict[str, float], requests: float, p99: float) -> None:
    latencies = dict(zip((*PREFERRED, ""), (0.1, 0.2, 0.3, 0.4), strict=True))
    found = join({"requests": by_reporter(**rates), "p99": by_reporter(**{name: latencies[name] for name in rates})})
    assert found == {"requests": {CALL: requests}, "p99": {CALL: p99}}


def call(caller: str, callee: str, reporter: str, rate: float) -> dict[Key, float]:
    return {("shop", caller, "shop", callee, reporter): rate}


@pytest.mark.parametrize(
    ("reported", "callers"),
    [
        # The sidecar of cart takes the waypoint for the caller, also where others call the same service.
        (call("web", "cart", "waypoint", 9) | call("way", "cart", "destination", 9), ["web"]),
        (
            call("web", "cart", "source", 9)
            | call("web", "cart", "waypoint", 9)
            | call("gw", "cart", "waypoint", 4)
            | call("way", "cart", "destination", 13),
            ["gw", "web"],
        ),
        (call("gw", "cart", "waypoint", 9) | call("way", "cart", "destination", 4), ["gw"]),
        # Callers that something else knows, and services without a waypoint.
        (
            call("gw", "cart", "waypoint", 9) | call("web", "cart", "destination", 4) | call("gw", "web", "source", 4),
            ["gw", "gw", "web"],
        ),
        (
            call("gw", "cart", "waypoint", 9) | call("web", "cart", "destination", 4) | call("web", "db", "source", 4),
            ["gw", "web", "web"],
        ),
        (call("gw", "db", "waypoint", 9) | call("job", "cart", "destination", 4), ["gw", "job"]),
        (call("gw", "cart", "waypoint", 0) | call("job", "cart", "destination", 4), ["gw", "job"]),
    ],
)
def test_a_waypoint_is_no_caller(reported: dict[Key, float], callers: list[str]) -> None:
    found = join({"requests": reported, "p99": dict.fromkeys(reported, 0.1)})
    assert sorted(key[1] for key in found["requests"]) == callers
    assert found["p99"].keys() == found["requests"].keys()


def test_failures_come_from_the_reporter_that_sees_most_of_them() -> None:
    found = join({"requests": by_reporter(source=60, waypoint=50), "failures": by_reporter(source=10, waypoint=2)})
    assert found["failures"] == {CALL: 10.0}


def test_rows_with_the_same_new_name_are_one() -> None:
    canary: Key = ("shop", "web-canary", "shop", "cart")
    found = join(
        {
            "requests": {CALL: 90.0, canary: 10.0},
            "failures": {canary: 1.0},
            "p50": {CALL: 0.01, canary: 0.2},
            "p99": {CALL: 0.1, canary: 0.9},
            "in_flight": {CALL: 3.0, canary: 2.0},
        },
        {"web": "web-svc", "web-canary": "web-svc"},
        reporters=(),
    )
    key = ("shop", "web-svc", "shop", "cart")
    values = {role: of[key] for role, of in found.items()}
    assert values == {"requests": 100.0, "failures": 1.0, "p50": 0.01, "p99": 0.9, "in_flight": 5.0}
    assert all(of.keys() == {key} for of in found.values())


@pytest.mark.parametrize("requests", [{CALL: 90.0, PROBE: 0.1}, {CALL: 90.0}])  # the requests of the second may be late
def test_a_row_with_hardly_any_requests_does_not_decide_the_tail(requests: dict[Key, float]) -> None:
    columns = {"requests": requests, "p99": {CALL: 0.1, PROBE: 9.0}}
    assert join(columns, {"probe": "web"}, reporters=())["p99"] == {CALL: 0.1}


def test_nothing_changes_without_reporters_and_new_names() -> None:
    columns = {"requests": {CALL: 5.0}, "p99": {CALL: float("inf")}}
    assert join(columns, reporters=()) == columns


def test_values_that_are_not_numbers_are_not_observed() -> None:
    found = join({"requests": by_reporter(source=float("nan"), waypoint=4), "p50": by_reporter(source=1, waypoint=2)})
    assert found == {"requests": {CALL: 4.0}, "p50": {CALL: 2.0}}
    assert np.isnan(join({"requests": by_reporter(source=float("nan"))})["requests"][CALL])


def test_an_empty_mesh_has_no_rows() -> None:
    assert join({"requests": {}, "p50": {}}) == {"requests": {}, "p50": {}}
    assert join({"requests": {}}, reporters=()) == {"requests": {}}


@pytest.mark.parametrize(
    ("calls", "measured", "kept"),
    [
        # Through a gateway, to a service without a sidecar that others call.
        ({("web", "ext"): 40, ("gate", "ext"): 40}, {"web"}, {("web", "ext")}),
        ({("web", "ext"): 0, ("gate", "ext"): 40}, {"web"}, {("web", "ext")}),
        # A gateway is the only caller, or an ingress in front of a service that measures itself.
        ({("gate", "ext"): 40}, {"web"}, {("gate", "ext")}),
        ({("gate", "pay"): 9, ("web", "pay"): 5}, {"web", "pay"}, {("gate", "pay"), ("web", "pay")}),
        ({("gate", "ext"): 9, ("other-gate", "ext"): 9}, {"web"}, {("gate", "ext"), ("other-gate", "ext")}),
    ],
)
def test_requests_that_a_gateway_passes_on_count_once(
    calls: dict[tuple[str, str], float], measured: set[str], kept: set[tuple[str, str]]
) -> None:
    requests: dict[Key, float] = {("shop", a, "shop", b): float(rate) for (a, b), rate in calls.items()}
    services: dict[Key, float] = {("shop", name): 1.0 for name in measured}
    keys = KeyTable()
    made, measured_ones = Column.of(requests, keys), Column.of(services, keys)
    gates = keys.numbers([("shop", "gate"), ("shop", "other-gate")])
    found = without_relayed(made, measured_ones, gates)
    assert {(key[1], key[3]) for key in found} == kept
    assert without_relayed(made, measured_ones, gates[:0]) == requests
