"""What a poll reads of a real Prometheus with Istio's metrics of meshes that are not simple.

Each case has a namespace of its own, so all of them are one mesh, read once from counters and once from the recording
rules.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from model.snapshot import MeshSnapshot, SignalKind
from tests.live.counters import Counter, poll_counters
from tests.live.polls import rates_of_calls, value_of, value_of_call
from tests.live.programs import needs

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]

BOUNDS_MS = (5, 10, 25, 50, 100, 250, 1000, 10_000, 30_000, 60_000, 300_000, 3_600_000)
REQUESTS, BUCKET, SUM = (
    "istio_requests_total", "istio_request_duration_milliseconds_bucket", "istio_request_duration_milliseconds_sum",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one call that end alike.

    Attributes:
        source, destination: canonical service and Service.
        rate: 1/s.
        reporters: the proxies that report them.
        seconds: how long each lasts.
        source_workload, destination_workload: by default as the source and the destination.
        namespace: of both.
        source_namespace: another one.
        labels: ``response_code`` and the like.
    """

    source: str
    destination: str
    rate: float
    reporters: Sequence[str] = ("source", "destination")
    seconds: float = 0.02
    source_workload: str = ""
    destination_workload: str = ""
    namespace: str = "shop"
    source_namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def series(self) -> Iterator[Counter]:
        for reporter in self.reporters:
            labels = {
                "reporter": reporter,
                "source_workload_namespace": self.source_namespace or self.namespace,
                "source_workload": self.source_workload or self.source,
                "source_canonical_service": self.source,
                "destination_workload_namespace": self.namespace,
                "destination_workload": self.destination_workload or self.destination,
                "destination_service_namespace": self.namespace,
                "destination_service_name": self.destination,
                "response_code": "200",
                "response_flags": "-",
                **self.labels,
            }
            yield Counter(REQUESTS, labels, self.rate)
            for bound in BOUNDS_MS:
                yield Counter(BUCKET, {**labels, "le": f"{bound:g}"}, self.rate * (bound >= self.seconds * 1000))
            yield Counter(BUCKET, {**labels, "le": "+Inf"}, self.rate)
            yield Counter(SUM, labels, self.rate * self.seconds * 1000)


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


@pytest.fixture(scope="module", params=[False, True], ids=["counters", "rules"])
def mesh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MeshSnapshot:
    series = (counter for case in CASES for counter in case.series())
    poll = poll_counters(series, tmp_path_factory.mktemp("istio"), "istio-ambient", recorded=request.param)
    assert poll.snapshot is not None
    return poll.snapshot


def calls_in(mesh: MeshSnapshot, namespace: str) -> dict[tuple[str, str], float]:
    """Return the requests of the calls to services of a namespace, 1/s."""
    short = f"{namespace}/"
    return {
        (a.removeprefix(short), b.removeprefix(short)): rate
        for (a, b), rate in rates_of_calls(mesh).items()
        if b.startswith(short)
    }


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
    assert value_of_call(mesh, *call, "p50_latency") == pytest.approx(0.175, rel=0.01)  # the middle of 100 to 250 ms
    assert value_of(mesh, call[1], "p50_latency") == pytest.approx(0.0175, rel=0.01)


def test_failures_that_only_the_caller_sees_count(mesh: MeshSnapshot) -> None:
    assert value_of_call(mesh, "dying/gw", "dying/cart", "error_rate") == pytest.approx(0.2, rel=1e-3)
    assert value_of(mesh, "dying/cart", "error_rate") == pytest.approx(0.2, rel=1e-3)


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
    assert value_of_call(mesh, *call, "p50_latency") == pytest.approx(0.0175, rel=0.01)
    assert value_of_call(mesh, *call, "p99_latency") == pytest.approx(0.25, rel=0.01)


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
    callers = value_of_call(mesh, f"{service.split('/')[0]}/gw", service, "p99_latency")
    for latency in (value_of(mesh, service, "p99_latency"), callers):
        assert latency == (p99 if p99 is None else pytest.approx(p99, rel=0.02))
    in_use = value_of(mesh, service, "active_connections")
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
    assert value_of(mesh, service, "error_rate") == pytest.approx(errors, abs=1e-4)
    assert value_of_call(mesh, f"{service.split('/')[0]}/gw", service, "error_rate") == pytest.approx(errors, abs=1e-4)


def test_requests_on_which_callers_gave_up_are_a_signal(mesh: MeshSnapshot) -> None:
    found = {one.service: one.value for one in mesh.signals if one.kind is SignalKind.CANCELLED}
    assert found == {"left/http": pytest.approx(0.12, rel=1e-3), "left/rpc": pytest.approx(0.1, rel=1e-3)}
