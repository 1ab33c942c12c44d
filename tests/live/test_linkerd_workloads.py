"""What a poll reads of a real Prometheus with Linkerd's metrics of all kinds of workloads."""

from collections.abc import Iterator

import pytest

from serve_app.collect.base import Poll
from serve_app.collect.prometheus.combine import CALLS, SERVICES
from tests.live.counters import Counter, histogram, poll_counters
from tests.live.polls import rates_of_calls, value_of
from tests.live.programs import needs

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]


def proxy(direction: str, rate: float, namespace: str = "shop", **labels: str) -> Iterator[Counter]:
    """Yield the series of a proxy's requests, of which a tenth fail."""
    labels = {"direction": direction, "namespace": namespace, **labels}
    yield Counter("request_total", labels, rate)
    yield Counter("response_total", {**labels, "classification": "success"}, rate * 0.9)
    yield Counter("response_total", {**labels, "classification": "failure"}, rate * 0.1)
    yield from histogram("response_latency_ms_bucket", labels, rate, 8.0)


def call(
    rate: float, callee: str, workload: tuple[str, str] = ("deployment", "db"), **source: str
) -> Iterator[Counter]:
    """Yield the series of calls to a Service that this workload serves; without a Service, to its pods."""
    service = {"dst_service": callee} if callee else {}
    return proxy("outbound", rate, dst_namespace="shop", **service, **{f"dst_{workload[0]}": workload[1]}, **source)


SERIES = [
    # Each kind of workload calls the same database, whose Service has another name.
    *call(1, "db-svc", deployment="api"),
    *call(2, "db-svc", statefulset="orders"),
    *call(3, "db-svc", daemonset="agent"),
    *call(4, "db-svc", rollout="cart"),
    *call(5, "db-svc", root_parent="search", replicaset="search-7d4b9c6f5d"),
    *call(6, "db-svc", replicaset="bare"),
    *call(7, "db-svc", replicaset="ship-7d4b9c6f5d", pod="ship-7d4b9c6f5d-x8k2p"),
    *call(8, "db-svc", cronjob="report"),
    *call(9, "db-svc", k8s_job="backup-28391040"),
    *call(9, "db-svc", k8s_job="backup-28391100"),
    *call(10, "db-svc", replicationcontroller="legacy"),
    *call(11, "db-svc", deploymentconfig="openshift"),
    *call(12, "db-svc", pod="pay-7d4b9c6f5d-x8k2p"),
    *call(13, "db-svc", pod="pay-7d4b9c6f5d-zz2vb"),
    *call(14, "db-svc", pod="zoo-0"),
    *call(15, "db-svc", pod="plain"),
    # Two labels: a pod counts once.
    *call(16, "db-svc", deployment="both", replicaset="both-7d4b9c6f5d", root_parent="operator"),
    *proxy("inbound", 145, deployment="db"),
    # A Service in front of a stateful set; calls to the addresses of its pods; its own calls.
    *call(20, "mq-svc", ("statefulset", "mq"), deployment="api"),
    *call(5, "", ("statefulset", "mq"), deployment="worker"),
    *proxy("inbound", 25, statefulset="mq"),
    *call(2, "db-svc", statefulset="mq"),
    # A Service that has the name of another one's workload.
    *call(30, "web", ("deployment", "web-v2"), deployment="gw"),
    *call(3, "web-old", ("deployment", "web"), deployment="gw"),
    *proxy("inbound", 30, deployment="web-v2"),
    *proxy("inbound", 3, deployment="web"),
    # Calls that were not resolved: only the host that was called is known.
    *proxy("outbound", 4, deployment="gw", authority="web.shop.svc.cluster.local:8080"),
    *proxy("outbound", 6, deployment="gw", authority="ledger.bank.svc.cluster.local"),
    # Neither a workload nor a pod; and a callee that is not in the mesh.
    *proxy("inbound", 1),
    *proxy("outbound", 1, deployment="api", authority="example.com"),
]
CALLERS = {
    "api": 1, "orders": 2, "agent": 3, "cart": 4, "search": 5, "bare": 6, "ship": 7, "report": 8, "backup": 18,
    "legacy": 10, "openshift": 11, "pay": 25, "zoo": 14, "plain": 15, "both": 16, "mq-svc": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["counters", "rules"])
def poll(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Poll:
    return poll_counters(SERIES, tmp_path_factory.mktemp("linkerd"), "linkerd", recorded=request.param)


def test_workloads_of_every_kind_are_callers(poll: Poll) -> None:
    assert poll.snapshot is not None
    rates = rates_of_calls(poll.snapshot)
    found = {a.removeprefix("shop/"): rate for (a, b), rate in rates.items() if b == "shop/db-svc"}
    assert found == CALLERS


def test_a_service_and_its_workload_are_one(poll: Poll) -> None:
    assert poll.snapshot is not None
    others = {ends: rate for ends, rate in rates_of_calls(poll.snapshot).items() if ends[1] != "shop/db-svc"}
    assert others == {
        ("shop/api", "shop/mq-svc"): 20,
        ("shop/worker", "shop/mq-svc"): 5,
        ("shop/gw", "shop/web"): 34,
        ("shop/gw", "shop/web-old"): 3,
        ("shop/gw", "bank/ledger"): 6,
    }
    assert not {"shop/db", "shop/mq", "shop/web-v2"} & set(poll.snapshot.node_ids)


@pytest.mark.parametrize(("service", "rate"), [("db-svc", 145), ("mq-svc", 25), ("web", 30), ("web-old", 3)])
def test_a_service_has_the_values_that_its_workload_measures(poll: Poll, service: str, rate: float) -> None:
    assert poll.snapshot is not None
    assert value_of(poll.snapshot, f"shop/{service}", "request_rate") == pytest.approx(rate)
    assert value_of(poll.snapshot, f"shop/{service}", "error_rate") == pytest.approx(0.1)
    latency = value_of(poll.snapshot, f"shop/{service}", "p50_latency")
    assert latency is not None
    assert 0.005 <= latency <= 0.01


def test_series_that_name_no_service_are_counted(poll: Poll) -> None:
    dropped = poll.dropped[SERVICES, "requests"]
    assert dropped.count == 1
    assert dropped.of > 1
    assert dropped.labels["namespace"] == "shop"
    (missing,) = dropped.missing
    assert "statefulset" in missing.split("|")
    assert (CALLS, "requests") not in poll.dropped
