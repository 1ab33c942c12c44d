"""Native histograms: the text of the queries, and when they are used."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.native import native
from serve_app.collect.prometheus.query import Dialect, Query
from serve_app.collect.prometheus.rules import recording_rules
from tests.serve_app.collect.prometheus import standin

AT = datetime(2026, 3, 1, tzinfo=UTC)
LABELS = ("namespace", "name")


def converted(promql: str, role: str = "buckets", unit: float = 1.0, **more: object) -> dict[str, Query]:
    bucket = Query("sum by (namespace, name, le) (rate(x_bucket{$match}[$window]))", LABELS)
    services = {"buckets": bucket, role: Query(promql, LABELS, unit, **more)}  # type: ignore[arg-type]
    return dict(native(Dialect("d", services, {}, ("x_count{$match}",))).services)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("buckets", "quantile"),
    [
        (
            'sum by (namespace, name, le) (rate(x_bucket{$match a=~"{1,2}"}[$window]))',
            'histogram_quantile(0.99, sum by (namespace, name) (rate(x{$match a=~"{1,2}"}[$window])))',
        ),
        (
            'sum by (le, name) (rate(x_bucket{$match}[$window]) unless on (job) y_bucket{a="\\"}"})',
            'histogram_quantile(0.99, sum by (name) (rate(x{$match}[$window]) unless on (job) y{a="\\"}"}))',
        ),
        (
            "sum by (le) (rate(x_bucket{$match}[$window])) or sum by (le) (rate(z_bucket{$match}[$window]))",
            "histogram_quantile(0.99, sum by () (rate(x{$match}[$window])) or sum by () (rate(z{$match}[$window])))",
        ),
    ],
)
def test_buckets_become_quantiles(buckets: str, quantile: str) -> None:
    found = converted(buckets, unit=0.001)
    assert found.keys() == {"p50", "p99"}
    assert found["p99"].promql == quantile
    assert (found["p99"].unit, found["p99"].joined_by) == (0.001, "max")


@pytest.mark.parametrize(
    ("promql", "expected"),
    [
        ("sum(rate(x_count{$match}[$window]))", "sum(histogram_count(rate(x{$match}[$window])))"),
        ('rate(x_sum{a="b"}[$since])', 'histogram_sum(rate(x{a="b"}[$since]))'),
        ("rate(y_count{$match}[$window])", "rate(y_count{$match}[$window])"),  # no histogram of this mesh
        ("sum(x_total{$match})", "sum(x_total{$match})"),
        # A single bucket is no part of the histogram.
        ('rate(x_bucket{$match le="0.1"}[$window])', 'rate(x_bucket{$match le="0.1"}[$window])'),
        ('rate(x_bucket{$match a="b",le=~"9"}[$window])', 'rate(x_bucket{$match a="b",le=~"9"}[$window])'),
        ('rate(x_count{$match role="a"}[$window])', 'histogram_count(rate(x{$match role="a"}[$window]))'),
        ('x_count{le!="1"} or x_count{a="le=1"}', 'x_count{le!="1"} or x{a="le=1"}'),
    ],
)
@pytest.mark.parametrize("role", ["requests", "failures"])
def test_counts_and_sums_are_parts_of_the_histogram(promql: str, expected: str, role: str) -> None:
    assert converted(promql, role)[role].promql == expected


def test_metrics_of_both_units_become_quantiles_in_seconds() -> None:
    views = (("sum by (le) (rate(x_bucket{}[$window]))", 1.0), ("sum by (le) (rate(y_ms_bucket{}[$window]))", 0.001))
    assert converted(" or ".join(text for text, _ in views), views=views)["p50"].promql.endswith(
        "or histogram_quantile(0.5, sum by () (rate(y_ms{}[$window]))) * 0.001"
    )
    for query in KNOWN["span-metrics"].services.values():
        assert query.unit == 1


@pytest.mark.parametrize("name", KNOWN)
def test_no_query_reads_buckets(name: str) -> None:
    dialect = native(KNOWN[name])
    texts = [query.promql for queries in (dialect.services, dialect.calls) for query in queries.values()]
    assert not any(re.search(r"_bucket\{(?![^}]*\ble=)", text) for text in texts)
    latencies = {"p50", "p99"} if "buckets" in KNOWN[name].services else set()
    assert {"requests", *latencies} <= dialect.services.keys() & dialect.calls.keys()
    rules = recording_rules(dialect, 15, 60)
    assert all("native" in rule.record for rule in rules.rules)


class Histograms:
    """A mesh of Linkerd, whose histograms are of one form or the other."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.asked: list[str] = []

    def __call__(self, request: standin.Request) -> None:
        text = request.query["query"]
        self.asked.append(text)
        labels = {"namespace": "shop", "deployment": "web"}
        if text.startswith("count(histogram_count("):
            if self.form == "unknown":
                request.send(400, b'{"status":"error","error":"unknown function"}')
                return
            request.send(200, standin.vector([({}, "3")] if self.form == "native" else []))
        elif text.startswith("count(response_latency_ms_bucket"):
            request.send(200, standin.vector([({}, "3")] if self.form == "classic" else []))
        elif "histogram_quantile" in text:
            request.send(200, standin.vector([(labels, "250")]))
        elif "_bucket" in text:
            pairs = [({**labels, "le": bound}, "5") for bound in ("250", "+Inf")]
            request.send(200, standin.vector(pairs if self.form == "classic" else []))
        elif "inbound" in text and "request_total" in text:
            request.send(200, standin.vector([(labels, "5")]))
        else:
            request.send(200, standin.vector([]))


def polls(mesh: Histograms, *forms: str, apart: float = 15.0) -> list[bool]:
    """Return whether the quantiles of a native histogram were read, for polls of a mesh with these forms."""
    read = []
    with standin.start_source(mesh, source="linkerd") as source:
        for number, form in enumerate(forms):
            mesh.form = form
            poll = source.poll(AT + timedelta(seconds=number * apart))
            assert poll.snapshot is not None, poll.why
            read.append(("services", "p50") in poll.answers)
    return read


def test_nothing_is_asked_while_there_are_buckets() -> None:
    mesh = Histograms("classic")
    assert polls(mesh, "classic", "classic", "classic") == [False, False, False]
    assert not any("histogram_count" in text for text in mesh.asked)


def test_native_histograms_are_read_where_there_are_no_buckets() -> None:
    mesh = Histograms("native")
    assert polls(mesh, "native", "native") == [True, True]
    assert sum("count(histogram_count" in text for text in mesh.asked) == 2, "with the survey, and once it is known"


@pytest.mark.parametrize("form", ["none", "unknown"])
def test_a_mesh_without_histograms_is_asked_rarely(form: str) -> None:
    mesh = Histograms(form)
    assert polls(mesh, *[form] * 4) == [False] * 4
    assert sum("histogram_count" in text for text in mesh.asked) == 1


def test_a_change_of_form_is_noticed() -> None:
    forms = ["classic", "native", "native", "classic", "classic"]
    assert polls(Histograms("classic"), *forms, apart=601) == [False, True, True, False, False]
