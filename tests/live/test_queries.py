"""A real Prometheus understands every query that we send."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.kubernetes import ANNOTATIONS, AUTOSCALERS, CONTROLLERS
from serve_app.collect.prometheus.native import native
from serve_app.collect.prometheus.pods import POD_QUERIES, USAGE_QUERIES
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.signals import Queues, signal_queries
from serve_app.net.endpoint import Endpoint
from tests.live.monitor import Monitor
from tests.live.programs import needs

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus without data."""
    with (
        Monitor(tmp_path_factory.mktemp("empty")) as monitor,
        closing(Prometheus(Endpoint(monitor.url))) as client,
    ):
        yield client


def all_queries() -> Iterator[tuple[str, Query]]:
    for dialect in (*KNOWN.values(), *map(native, KNOWN.values())):
        for of, queries in (("services", dialect.services), ("calls", dialect.calls)):
            yield from ((f"{dialect.name} {of} {role}", query) for role, query in queries.items())
        if dialect.serves is not None:
            yield f"{dialect.name} serves", dialect.serves
        yield from ((f"{dialect.name} gap {gap.name}", Query(gap.promql, ())) for gap in dialect.gaps)
    yield from {**USAGE_QUERIES, **POD_QUERIES, **CONTROLLERS, **AUTOSCALERS, **ANNOTATIONS}.items()
    yield from signal_queries(Queues(promql="sum by (queue) (jobs_waiting)")).items()


@pytest.mark.parametrize("window", [60.0, 7.5])
def test_prometheus_accepts_the_query(prometheus: Prometheus, window: float) -> None:
    queries = {name: query.at(window) for name, query in all_queries()}
    answers = prometheus.ask(queries, datetime.now(UTC), within=20.0)
    assert {name: answer.detail for name, answer in answers.items() if answer.failed} == {}
    assert not any(len(answer.samples) for answer in answers.values())
