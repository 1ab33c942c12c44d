"""Every query that we send is one that a real Prometheus understands."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from serve_app.endpoint import Endpoint
from serve_app.sources.prometheus.client import Prometheus
from serve_app.sources.prometheus.dialects import KNOWN, Query
from serve_app.sources.prometheus.kubernetes import ANNOTATIONS, CONTROLLERS, MORE, RESOURCES
from tests.live.monitor import Monitor
from tests.live.programs import missing

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(bool(missing("prometheus")), reason="; ".join(missing("prometheus"))),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has scraped nothing."""
    monitor = Monitor(tmp_path_factory.mktemp("empty"))
    try:
        monitor.wait()
        with closing(Prometheus(Endpoint(monitor.url))) as client:
            yield client
    finally:
        monitor.program.end()


def everything() -> Iterator[tuple[str, Query]]:
    for dialect in KNOWN.values():
        for of, queries in (("services", dialect.services), ("calls", dialect.calls)):
            yield from ((f"{dialect.name} {of} {role}", query) for role, query in queries.items())
        if dialect.serves is not None:
            yield f"{dialect.name} serves", dialect.serves
    yield from {**RESOURCES, **CONTROLLERS, **MORE, **ANNOTATIONS}.items()


@pytest.mark.parametrize("window", [60.0, 7.5])
def test_it_is_understood(prometheus: Prometheus, window: float) -> None:
    queries = {name: query.at(window) for name, query in everything()}
    answers = prometheus.ask(queries, datetime.now(UTC), within=20.0)
    assert {name: answer.detail for name, answer in answers.items() if answer.failed} == {}
    assert not any(len(answer.samples) for answer in answers.values())
