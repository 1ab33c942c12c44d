"""Range queries: their answers at each instant, their limits, and their errors."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import numpy as np
import pytest

from serve_app.collect.prometheus.client import Instants, Prometheus
from serve_app.collect.prometheus.past import PastReader, RangeEvaluator
from serve_app.errors import NoTelemetry
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings, MeshSettings
from tests.serve_app.collect.prometheus.standin import Request, fails, start_server, url_of

BEGIN, STEP, COUNT = 1_700_000_000, 60, 4


def matrix(request: Request) -> None:
    """Answer a range query with two series, one of which has a gap; and an instant query with one sample."""
    if "start" not in request.query:
        result: object = [{"metric": {"service": "now"}, "value": [float(request.query["time"]), "9"]}]
        data = {"resultType": "vector", "result": result}
    else:
        begin, end, step = (float(request.query[name]) for name in ("start", "end", "step"))
        times = np.arange(begin, end + 1, step).tolist()
        series = [("cart", times), ("web", [times[0], times[2]])]
        result = [
            {"metric": {"service": name}, "values": [[at, str(i + 1)] for i, at in enumerate(known)]}
            for name, known in series
        ]
        data = {"resultType": "matrix", "result": result}
    request.send(200, json.dumps({"status": "success", "data": data}).encode())


@contextmanager
def start_range(url: str) -> Iterator[RangeEvaluator]:
    with closing(Prometheus(Endpoint(url))) as client:
        evaluator = RangeEvaluator(client)
        evaluator.begin(Instants(BEGIN, STEP, COUNT))
        yield evaluator


def at(number: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + number * STEP, UTC)


def test_each_query_is_sent_once_and_answers_every_instant() -> None:
    with start_server(matrix) as server, start_range(url_of(server)) as evaluator:
        answers = [evaluator.ask({"a": "up", "b": "down"}, at(number), 5)["a"] for number in range(COUNT)]
        asked = server.asked  # type: ignore[attr-defined]
    assert sorted(one["query"] for one in asked) == ["down", "up"]
    assert {(one["start"], one["end"], one["step"]) for one in asked} == {(f"{BEGIN}", f"{BEGIN + 180}", "60.000")}
    found = [
        dict(zip([json.loads(labels)["service"] for labels in one.samples.label_sets], one.samples.values, strict=True))
        for one in answers
    ]
    assert found == [{"cart": 1, "web": 1}, {"cart": 2}, {"cart": 3, "web": 2}, {"cart": 4}]


def test_other_instants_are_queried_alone() -> None:
    with start_server(matrix) as server, start_range(url_of(server)) as evaluator:
        (value,) = evaluator.ask({"a": "up"}, at(-1), 5)["a"].samples.values
    assert value == 9


def test_a_failed_range_query_fails_at_every_instant() -> None:
    with start_server(fails(422, "query processing would load too many samples")) as server:
        with start_range(url_of(server)) as evaluator:
            answers = [evaluator.ask({"a": "up"}, at(number), 5)["a"] for number in range(COUNT)]
        assert len(server.asked) <= 2  # type: ignore[attr-defined]
    assert all(one.failed for one in answers)
    assert all("too many samples" in one.detail for one in answers)


def test_a_request_whose_time_passed_in_the_queue_asks_nothing() -> None:
    with start_server(matrix) as server:
        mesh = MeshSettings.model_validate({"prometheus": url_of(server), "source": "istio"})
        reader = PastReader({"shop": mesh}, CollectorSettings())
        with pytest.raises(NoTelemetry, match="busy with earlier requests; try again"):
            reader.read("shop", at(0), at(2), 3, time.monotonic())
        with pytest.raises(NoTelemetry, match="busy with earlier requests; try again"):
            reader.read_instant("shop", at(0), time.monotonic())
        assert server.asked == []  # type: ignore[attr-defined]
