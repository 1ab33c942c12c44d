"""What a poll reads of a real Prometheus with Istio's metrics of meshes that are not simple.

Each case has a namespace of its own, so all of them are one mesh, read once from counters and once from the recording
rules.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.collect.prometheus.client import Prometheus, QueryAnswer
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.query import QueryOptions
from serve_app.collect.prometheus.rules import recording_rules
from serve_app.collect.prometheus.source import PrometheusSource
from serve_app.net.endpoint import Endpoint
from tests.live.history import prometheus_with_text
from tests.live.istio_requests import SCRAPE_SECONDS, Requests, write_requests
from tests.live.programs import needs
from tests.live.series import Export

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]

ALL = ("source", "waypoint", "destination")
HOUR, UNKNOWN = 3599.0, None
GRPC = {"request_protocol": "grpc"}
GAVE_UP = {"response_code": "0", "response_flags": "DC"}
SWITCHED = {"response_code": "101", "response_flags": "DC"}
TIMED_OUT = {"response_code": "504", "response_flags": "UT"}
CASES = [
    # Who reports a request.
    Requests("gw", "cart", 60, ALL, namespace="thrice"),
    Requests("gw", "cart", 60, ("waypoint",), namespace="half-sidecars"),
    Requests("gw", "cart", 30, ("source",), namespace="half-sidecars"),
    Requests("gw", "cart", 60, ("source",), namespace="half-waypoint"),
    Requests("gw", "cart", 20, ("waypoint", "destination"), namespace="half-waypoint"),
    Requests("gw", "cart", 25, ("destination",), namespace="only-destination"),
    Requests("gw", "cart", 58, ("source",), 0.2, namespace="slow-network"),
    Requests("gw", "cart", 60, ("waypoint", "destination"), 0.02, namespace="slow-network"),
    Requests("gw", "cart", 8, ALL, namespace="dying"),
    Requests("gw", "cart", 2, ("source",), namespace="dying", labels={"response_code": "503", "response_flags": "UF"}),
    # Names that differ.
    Requests("gw", "web-svc", 10, destination_workload="web-v1", namespace="versions"),
    Requests("gw", "web-svc", 5, destination_workload="web-v2", namespace="versions"),
    Requests("web", "db-svc", 10, source_workload="web-v1", namespace="versions", destination_workload="db"),
    Requests("web", "db-svc", 5, source_workload="web-v2", namespace="versions", destination_workload="db"),
    Requests("gw", "web-svc", 90, destination_workload="web", namespace="canary"),
    Requests("gw", "web-svc", 10, destination_workload="web-canary", namespace="canary"),
    Requests("web", "db", 90, namespace="canary"),
    Requests("web-canary", "db", 10, seconds=0.2, namespace="canary"),
    Requests("gw", "shop", 1, destination_workload="shop", namespace="own-name"),
    Requests("gw", "shop-admin", 50, destination_workload="shop", namespace="own-name"),
    Requests("shop", "db", 7, namespace="own-name"),
    Requests("gw", "users", 30, destination_workload="app", namespace="busiest"),
    Requests("gw", "admin", 3, destination_workload="app", namespace="busiest"),
    Requests("app", "api.example.com", 4, destination_workload="unknown", namespace="busiest"),
    Requests("cart", "db-svc", 6, namespace="over", source_namespace="thrice", destination_workload="db"),
    # How long requests last.
    Requests("gw", "chat", 20, namespace="websocket", labels=GRPC),
    Requests("gw", "chat", 1, seconds=HOUR, namespace="websocket", labels=SWITCHED),
    Requests("gw", "feed", 0.5, seconds=HOUR, namespace="only-streams"),
    Requests("gw", "poll", 4, seconds=55, namespace="long-polls"),
    Requests("gw", "watch", 10, namespace="closed", labels=GRPC | {"grpc_response_status": "0"}),
    Requests("gw", "watch", 1, seconds=1800, namespace="closed", labels=GRPC | {"grpc_response_status": "14"}),
    Requests("gw", "watch", 1, namespace="closed", labels=GRPC | {"grpc_response_status": "13"}),
    Requests("gw", "report", 9, namespace="timeouts"),
    Requests("gw", "report", 1, seconds=75, namespace="timeouts", labels=TIMED_OUT),
    # How requests end.
    Requests("gw", "http", 88, namespace="left"),
    Requests("gw", "http", 5, namespace="left", labels=GAVE_UP),
    Requests("gw", "http", 4, namespace="left", labels={"response_code": "0", "response_flags": "DR"}),
    Requests("gw", "http", 3, namespace="left", labels={"response_code": "499"}),
    Requests("gw", "rpc", 90, namespace="left", labels=GRPC | {"grpc_response_status": "0"}),
    Requests("gw", "rpc", 10, namespace="left", labels=GRPC | {"grpc_response_status": "1"}),
    Requests("gw", "broken", 9, namespace="left"),
    Requests("gw", "broken", 1, namespace="left", labels={"response_code": "0", "response_flags": "UC"}),
]  # fmt: skip


class Recorded(Prometheus):
    """A Prometheus that has evaluated the recording rules: a recorded series is the value of its expression."""

    def ask(self, queries: Mapping[str, str], at: datetime, within: float) -> dict[str, QueryAnswer]:
        rules = recording_rules(KNOWN["istio-ambient"], SCRAPE_SECONDS, QueryOptions().window_seconds).rules
        for rule in reversed(rules):
            queries = {name: text.replace(rule.record, f"({rule.expr})") for name, text in queries.items()}
        return super().ask(queries, at, within)


@pytest.fixture(scope="module", params=["counters", "rules"])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MeshSnapshot:
    """Read the mesh of all cases."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    at = datetime.fromtimestamp(time.time() // 15 * 15, UTC)
    first = write_requests(CASES, folder / "text", at)
    client = Recorded if request.param == "rules" else Prometheus
    options = QueryOptions(within_seconds=60.0, recorded_from_calls=1 if request.param == "rules" else np.inf)
    with (
        prometheus_with_text(folder / "text", folder, first, Export()) as monitor,
        closing(PrometheusSource(client(Endpoint(monitor.url)), KNOWN["istio-ambient"], options)) as source,
    ):
        poll = source.poll(at)
    assert poll.snapshot is not None, poll.why
    assert poll.recorded == (request.param == "rules")
    assert not [role for role, answer in poll.answers.items() if answer.failed]
    return poll.snapshot


def calls_in(mesh: MeshSnapshot, namespace: str) -> dict[tuple[str, str], float]:
    """Return the requests of the calls to services of a namespace, 1/s."""
    ends = ((mesh.node_ids[a], mesh.node_ids[b]) for a, b in mesh.edge_index.T.tolist())
    rates = zip(ends, mesh.edge_features[:, 0].tolist(), strict=True)
    short = f"{namespace}/"
    return {(a.removeprefix(short), b.removeprefix(short)): rate for (a, b), rate in rates if b.startswith(short)}


def of_call(mesh: MeshSnapshot, source: str, destination: str, metric: str) -> float | None:
    ends = mesh.node_ids.index(source), mesh.node_ids.index(destination)
    row = mesh.edge_index.T.tolist().index(list(ends))
    column = EDGE_METRICS.index(metric)
    return float(mesh.edge_features[row, column]) if mesh.edge_observed[row, column] else None


def of_service(mesh: MeshSnapshot, service: str, metric: str) -> float | None:
    row, column = mesh.node_ids.index(service), NODE_METRICS.index(metric)
    return float(mesh.node_features[row, column]) if mesh.node_observed[row, column] else None


@pytest.mark.parametrize(
    ("namespace", "rate"),
    [
        ("thrice", 60.0),
        ("half-sidecars", 60.0),
        ("half-waypoint", 60.0),
        ("only-destination", 25.0),
        ("slow-network", 60.0),
        ("dying", 10.0),
    ],
)
def test_a_request_counts_once_however_many_proxies_report_it(mesh: MeshSnapshot, namespace: str, rate: float) -> None:
    assert calls_in(mesh, namespace) == {("gw", "cart"): pytest.approx(rate, rel=1e-3)}


def test_the_latency_of_a_call_is_what_its_caller_waits(mesh: MeshSnapshot) -> None:
    call = "slow-network/gw", "slow-network/cart"
    assert of_call(mesh, *call, "p50_latency") == pytest.approx(0.175, rel=0.01)  # the middle of 100 to 250 ms
    assert of_service(mesh, call[1], "p50_latency") == pytest.approx(0.0175, rel=0.01)


def test_failures_that_only_the_caller_sees_count(mesh: MeshSnapshot) -> None:
    assert of_call(mesh, "dying/gw", "dying/cart", "error_rate") == pytest.approx(0.2, rel=1e-3)
    assert of_service(mesh, "dying/cart", "error_rate") == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize(
    ("namespace", "calls"),
    [
        ("versions", {("gw", "web-svc"): 15, ("web-svc", "db-svc"): 15}),
        ("canary", {("gw", "web-svc"): 100, ("web-svc", "db"): 100}),
        ("own-name", {("gw", "shop"): 1, ("gw", "shop-admin"): 50, ("shop", "db"): 7}),
        ("busiest", {("gw", "users"): 30, ("gw", "admin"): 3, ("users", "api.example.com"): 4}),
        ("over", {("thrice/cart", "db-svc"): 6}),
    ],
)
def test_a_workload_has_the_name_of_its_service(
    mesh: MeshSnapshot, namespace: str, calls: dict[tuple[str, str], float]
) -> None:
    assert calls_in(mesh, namespace) == {ends: pytest.approx(rate, rel=1e-3) for ends, rate in calls.items()}


def test_calls_of_several_workloads_have_the_median_of_most_and_the_slowest_tail(mesh: MeshSnapshot) -> None:
    call = "canary/web-svc", "canary/db"
    assert of_call(mesh, *call, "p50_latency") == pytest.approx(0.0175, rel=0.01)
    assert of_call(mesh, *call, "p99_latency") == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize(
    ("service", "p99", "in_flight"),
    [
        ("websocket/chat", 0.025, UNKNOWN),
        ("only-streams/feed", UNKNOWN, UNKNOWN),
        ("long-polls/poll", 60.0, 220.0),
        ("closed/watch", 0.025, UNKNOWN),
        ("thrice/cart", 0.025, 1.2),
    ],
)
def test_requests_longer_than_the_window_say_nothing_about_now(
    mesh: MeshSnapshot, service: str, p99: float | None, in_flight: float | None
) -> None:
    callers = of_call(mesh, f"{service.split('/')[0]}/gw", service, "p99_latency")
    for latency in (of_service(mesh, service, "p99_latency"), callers):
        assert latency == (p99 if p99 is None else pytest.approx(p99, rel=0.02))
    in_use = of_service(mesh, service, "active_connections")
    assert in_use == (in_flight if in_flight is None else pytest.approx(in_flight, rel=1e-3))


@pytest.mark.parametrize(
    ("service", "errors"),
    [
        ("closed/watch", 1 / 12),  # INTERNAL of a short request; UNAVAILABLE ended a stream
        ("timeouts/report", 0.1),  # a client that waited longer than the window still got an error
        ("left/http", 0.0),
        ("left/rpc", 0.0),
        ("left/broken", 0.1),
    ],
)
def test_failures_are_those_of_the_service(mesh: MeshSnapshot, service: str, errors: float) -> None:
    assert of_service(mesh, service, "error_rate") == pytest.approx(errors, abs=1e-4)
    assert of_call(mesh, f"{service.split('/')[0]}/gw", service, "error_rate") == pytest.approx(errors, abs=1e-4)


def test_requests_on_which_callers_gave_up_are_a_signal(mesh: MeshSnapshot) -> None:
    found = {one.service: one.value for one in mesh.signals if one.kind is SignalKind.CANCELLED}
    assert found == {"left/http": pytest.approx(0.12, rel=1e-3), "left/rpc": pytest.approx(0.1, rel=1e-3)}
