"""What stores say about their own answers, and what becomes of these answers."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from serve_app.collect.loop import CollectorState
from serve_app.collect.prometheus.client import QueryAnswer
from serve_app.collect.prometheus.detect import MeshSource, detect_dialect
from serve_app.collect.prometheus.replies import is_hint, missing_parts
from serve_app.deployments.http.routes.views import source_document
from serve_app.exporter import PrometheusInstruments
from serve_app.settings import CollectorSettings, MeshSettings
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.standin import Behaviour, Request

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAMPLES = [({"a": "b"}, "1")]

HINTS = [  # in the words of Prometheus 2.48 to 3, and of engines derived from it
    'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x" (1:6)',
    'PromQL info: metric might not be a counter, __type__ label is not set to "counter" or "histogram", got "": "x"',
    "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see https://x) (1:1)",
    "PromQL info: ignored histogram in sum aggregation (1:1)",
    "PromQL warning: quantile value should be between 0 and 1, got 2 (1:67)",
    'PromQL warning: bucket label "le" is missing or has a malformed value of "NaN" for metric name "partial_bucket"',
    "PromQL warning: vector contains a mix of classic and native histograms",
    "PromQL warning: no bucket label or malformed label value: x le",
    "3 more warning annotations omitted",
    "12 more info annotations omitted",
    "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: requests",
    "holt_winters is deprecated, use double_exponential_smoothing",
    "resolution larger than query range_range: 1m0s, resolutions: 5m0s, 1h0m0s",
]
MISSING = [
    "remote_read: remote server http://east:9090/api/v1/read returned HTTP status 502 Bad Gateway",
    "results truncated due to limit",
    "No StoreAPIs matched for this query",
    'receive series from Addr: 10.0.0.7:10901 LabelSets: {replica="0"}: rpc error: code = Unavailable desc = error',
    "failed to receive any data in 5s from Addr: store-1:10901: context canceled",
    "query result may contain partial data",
    "m3db exceeded query limit: results not exhaustive",
    "max_fetch_series_limit_applied",
    "cluster_b_fetch_data_error: store is down",
    "the deprecated store did not answer: partial response",
]


def query_once(behaviour: Behaviour, *harmless: str) -> QueryAnswer:
    with standin.start_client(behaviour, client={"harmless_warnings": harmless}) as prometheus:
        return prometheus.ask({"q": "up"}, AT, 5.0)["q"]


@pytest.mark.parametrize("warning", HINTS)
def test_a_hint_about_the_query_takes_nothing_away(warning: str) -> None:
    assert is_hint(warning)
    for where in ("warnings", "infos"):
        answer = query_once(standin.respond_with(SAMPLES, **{where: [warning]}))
        assert (answer.failed, len(answer.samples), answer.warnings) == ("", 1, (warning,))


@pytest.mark.parametrize("warning", MISSING)
def test_any_other_warning_makes_an_answer_incomplete(warning: str) -> None:
    answer = query_once(standin.respond_with(SAMPLES, warnings=[HINTS[0], warning]))
    assert (answer.failed, answer.detail, len(answer.samples)) == ("incomplete", warning, 0)
    assert answer.warnings == (HINTS[0], warning)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"isPartial": True}, "isPartial: true"),
        ({"isPartial": False}, ""),
        ({"isPartial": None, "warnings": None, "infos": None}, ""),
        ({"warnings": [None]}, ""),
        ({"infos": ["results are in another list"]}, ""),
    ],
)
def test_fields_of_other_stores(more: dict[str, object], detail: str) -> None:
    body = standin.vector(SAMPLES, **more)
    answer = query_once(lambda request: request.send(200, body))
    assert answer.failed == ("incomplete" if detail else "")
    assert answer.detail.startswith(detail)


def test_an_answer_with_the_status_of_a_part_is_incomplete() -> None:
    answer = query_once(lambda request: request.send(206, standin.vector(SAMPLES)))
    assert (answer.failed, len(answer.samples)) == ("incomplete", 0)


def test_warnings_that_the_settings_call_harmless_do_not_count() -> None:
    known = "store archive-0 is offline until spring"
    behaviour = standin.respond_with(SAMPLES, warnings=[known])
    assert query_once(behaviour, "archive-0").failed == ""
    assert query_once(behaviour, "archive-1").failed == "incomplete"
    assert missing_parts([known, "other"], is_partial=True, harmless=["archive-0", "isPartial"]) == ("other",)


def answers_of_a_mesh(warnings: list[str]) -> Behaviour:
    """Two services and a call of OpenTelemetry; the answers have these warnings, which may change."""
    labels = {"client": "web", "server": "cart"}

    def behave(request: Request) -> None:
        text = request.query["query"]
        is_rate = text.startswith("(sum by (") and "request_total" in text
        request.send(200, standin.vector([(labels, "5")] if is_rate else [], warnings=warnings))

    return behave


def test_an_incomplete_answer_is_replaced_by_the_last_values_and_then_unknown() -> None:
    warnings: list[str] = []
    lost = "store-2 did not answer"
    with standin.start_client(answers_of_a_mesh(warnings)) as prometheus:
        mesh = MeshSettings(prometheus="http://as-given", source="opentelemetry")
        source = MeshSource(mesh, CollectorSettings(), evaluator=prometheus)
        polls = []
        for i, said in enumerate(([], [lost], [lost], [lost], [lost], [])):
            warnings[:] = said
            polls.append(source.poll(AT + timedelta(seconds=15 * i)))
        warnings[:] = [lost]
        detected, answers = detect_dialect(prometheus, AT, 5.0)
    assert [poll.snapshot is not None for poll in polls] == [True, True, True, True, False, True]
    assert [max(poll.stale_seconds.values(), default=0.0) for poll in polls[:4]] == [0.0, 15.0, 30.0, 45.0]
    assert f"incomplete ({lost})" in polls[4].why
    assert polls[5].masked == ()
    assert detected is None, "a part of the mesh does not show what kind of mesh it is"
    assert {answer.failed for answer in answers.values()} == {"incomplete"}

    state = CollectorState("shop").update(polls[0])
    assert state.incomplete == source_document(state).incomplete == ""
    state = state.update(polls[1])
    assert state.incomplete == source_document(state).incomplete == lost
    assert CollectorState.unpack(state.pack()) == state
    text = PrometheusInstruments().text(collectors=[state]).decode()
    assert (
        f'tagae_collector_query_failures_total{{mesh="shop",why="incomplete"}} {state.failures["incomplete"]}' in text
    )
    assert replace(state.update(polls[5]), polls={}).incomplete == ""


def test_a_state_of_another_version_is_read() -> None:
    old = {key: value for key, value in json.loads(CollectorState("shop").pack()).items() if key != "incomplete"}
    assert CollectorState.unpack(json.dumps(old).encode()) == CollectorState("shop")
