"""A real Prometheus understands every query that we send."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.dialects.known import KNOWN
from serve_app.collect.prometheus.kubernetes import ANNOTATIONS, CONTROLLERS, OPTIONAL, RESOURCES
from serve_app.collect.prometheus.native import native
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.signals import BROKERS, SOURCES, Queues, search_query, signal_queries
from serve_app.net.endpoint import Endpoint
from tests.live.monitor import Monitor
from tests.live.programs import find_program, missing_programs

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        bool(missing_programs("prometheus", "promtool")), reason="; ".join(missing_programs("prometheus", "promtool"))
    ),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus without data."""
    monitor = Monitor(tmp_path_factory.mktemp("empty"))
    try:
        monitor.wait()
        with closing(Prometheus(Endpoint(monitor.url))) as client:
            yield client
    finally:
        monitor.program.end()


def all_queries() -> Iterator[tuple[str, Query]]:
    for dialect in (*KNOWN.values(), *map(native, KNOWN.values())):
        for of, queries in (("services", dialect.services), ("calls", dialect.calls)):
            yield from ((f"{dialect.name} {of} {role}", query) for role, query in queries.items())
        if dialect.serves is not None:
            yield f"{dialect.name} serves", dialect.serves
        yield from ((f"{dialect.name} gap {gap.name}", Query(gap.promql, ())) for gap in dialect.gaps)
    yield from {**RESOURCES, **CONTROLLERS, **OPTIONAL, **ANNOTATIONS}.items()
    yield "search", search_query()
    yield from signal_queries({*SOURCES, *BROKERS}, Queues(promql="sum by (queue) (jobs_waiting)")).items()


@pytest.mark.parametrize("window", [60.0, 7.5])
def test_prometheus_accepts_the_query(prometheus: Prometheus, window: float) -> None:
    queries = {name: query.at(window) for name, query in all_queries()}
    answers = prometheus.ask(queries, datetime.now(UTC), within=20.0)
    assert {name: answer.detail for name, answer in answers.items() if answer.failed} == {}
    assert not any(len(answer.samples) for answer in answers.values())


def test_capacity_is_the_limit_else_the_request_else_the_node(tmp_path: Path) -> None:
    """One workload is being rolled out, and its new pod has a limit. Another has neither limits nor requests."""
    cores = {
        'kube_pod_container_resource_limits{namespace="shop",pod="cart-new",container="app",resource="cpu"}': 2,
        'kube_pod_container_resource_requests{namespace="shop",pod="cart-new",container="app",resource="cpu"}': 1,
        'kube_pod_container_resource_requests{namespace="shop",pod="cart-old",container="app",resource="cpu"}': 0.5,
        'kube_pod_container_resource_requests{namespace="shop",pod="cart-old",container="log",resource="cpu"}': 0.25,
        'kube_node_status_allocatable{node="a",resource="cpu"}': 64,
    }
    there = [
        *(f'kube_pod_info{{namespace="shop",pod="{pod}",node="a"}}' for pod in ("cart-new", "cart-old", "store-0")),
        *(
            f'kube_pod_owner{{namespace="shop",pod="cart-{pod}",owner_kind="ReplicaSet",owner_name="cart-{pod}"}}'
            for pod in ("new", "old")
        ),
        *(
            f'kube_replicaset_owner{{namespace="shop",replicaset="cart-{pod}",owner_kind="Deployment",owner_name="cart"}}'
            for pod in ("new", "old")
        ),
        'kube_pod_owner{namespace="shop",pod="store-0",owner_kind="StatefulSet",owner_name="store"}',
    ]
    constants = {**cores, **dict.fromkeys(there, 1)}
    wanted = {"cart": 2.75, "store": 64}
    asked = {
        "expr": RESOURCES["cpu_capacity"].at(60.0),
        "eval_time": "1m",
        "exp_samples": [
            {"labels": f'{{namespace="shop",workload="{workload}"}}', "value": value}
            for workload, value in wanted.items()
        ],
    }
    series = [{"series": name, "values": f"{value}x9"} for name, value in constants.items()]
    file = tmp_path / "capacity.test.yaml"
    file.write_bytes(msgspec.json.encode({"tests": [{"input_series": series, "promql_expr_test": [asked]}]}))
    command = [find_program("promtool") or "promtool", "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
