"""Columns from vectors, and quantiles from buckets."""

import json
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.collect.prometheus.client import Samples
from serve_app.collect.prometheus.detect import generic_dialect
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.frames import BUCKET, LabelReader, read_column, read_quantiles
from serve_app.collect.prometheus.keys import Column
from serve_app.collect.prometheus.kubernetes import CONTROLLERS
from serve_app.collect.prometheus.query import Join
from serve_app.collect.prometheus.rules import recording_rules
from serve_app.collect.prometheus.signals import (
    DISK,
    PODS,
    QUEUES,
    Queues,
    signal_queries,
)
from serve_app.settings import GenericSettings
from serve_app.settings.roles import SHARES

Sample = tuple[bytes, float]

BOUNDS = (0.005, 0.01, 0.1, 1.0, math.inf)


def sample(value: float | str, **labels: str) -> Sample:
    return json.dumps(labels).encode(), float(value)


def vector(samples: list[Sample]) -> Samples:
    return Samples([labels for labels, _ in samples], np.array([value for _, value in samples], np.float64))


def column_of(samples: list[Sample], labels: tuple[str, ...] = ("app",), joined_by: Join = "sum") -> Column:
    sent = vector(samples)
    return read_column(sent.values, LabelReader(labels).read(sent.label_sets), joined_by)


def quantiles_of(samples: list[Sample], *shares: float) -> list[Column]:
    sent = vector(samples)
    return read_quantiles(sent.values, LabelReader(("app", BUCKET)).read(sent.label_sets), shares)


def bucketed(counts: list[float], bounds: tuple[float, ...] = BOUNDS, **labels: str) -> list[Sample]:
    """Return cumulative counts at each bound."""
    bounds_as_text = [str(bound).replace("inf", "+Inf") for bound in bounds]
    return [sample(count, **labels, le=bound) for count, bound in zip(counts, bounds_as_text, strict=True)]


def histogram_quantile(share: float, counts: list[float], bounds: tuple[float, ...]) -> float:
    """Compute one row as Prometheus does (promql/quantile.go, bucketQuantile), step by step."""
    total = counts[-1]
    if not total > 0:
        return math.nan
    rank = share * total
    place = next((i for i, count in enumerate(counts) if count >= rank), len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    start, low = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - low
    return start + (bounds[place] - start) * ((rank - low) / inside if inside > 0 else 1.0)


@given(st.lists(st.lists(st.floats(0, 100), min_size=5, max_size=5), min_size=1, max_size=6), st.floats(0.01, 0.99))
def test_quantiles_are_equal_to_those_in_prometheus(counted: list[list[float]], share: float) -> None:
    rows = [np.cumsum(counts).tolist() for counts in counted]
    samples = [one for i, row in enumerate(rows) for one in bucketed(row, app=f"a{i}")]
    (found,) = quantiles_of(samples, share)
    assert list(found) == [(f"a{i}",) for i in range(len(rows))]
    wanted = [histogram_quantile(share, row, BOUNDS) for row in rows]
    np.testing.assert_allclose([*found.values()], wanted, rtol=1e-9, equal_nan=True)


def test_rows_may_have_bounds_of_their_own_and_come_in_any_order() -> None:
    fine = bucketed([5, 10, 10], (0.2, 0.4, math.inf), app="fine")
    coarse = bucketed([10, 10], (1.0, math.inf), app="coarse")
    samples = [one for pair in zip(reversed(fine), [*coarse, coarse[0]], strict=True) for one in pair][:-1]
    (found,) = quantiles_of(samples, 0.5)
    assert found == pytest.approx({("fine",): 0.2, ("coarse",): 0.5})


@pytest.mark.parametrize(
    "samples",
    [
        bucketed([0, 0, 0, 0, 0], app="a"),  # no traffic
        bucketed([1, 2], (0.1, 1.0), app="a"),  # no +Inf: the number of requests is unknown
        bucketed([math.nan] * 5, app="a"),
        [sample(1, app="a", le="often")],
    ],
)
def test_without_counts_there_is_no_quantile(samples: list[Sample]) -> None:
    (found,) = quantiles_of(samples, 0.5)
    assert all(map(math.isnan, found.values()))


def test_no_samples_are_no_rows() -> None:
    assert quantiles_of([], 0.5, 0.99) == [{}, {}]
    assert column_of([]) == {}


def test_buckets_that_fall_by_a_rounding_error_are_made_cumulative() -> None:
    (found,) = quantiles_of(bucketed([5.0, 4.999999, 5.0, 5.0, 5.0], app="a"), 0.99)
    assert found["a",] <= 0.005


def test_samples_that_lack_a_label_are_left_out() -> None:
    samples = [sample(1, app="a"), sample(2, app=""), sample(3), sample("NaN", app="b")]
    found = column_of(samples)
    assert list(found) == [("a",), ("b",)]
    np.testing.assert_array_equal([*found.values()], [1, math.nan])


def test_names_are_read_once_and_a_constant_is_no_label() -> None:
    names = LabelReader(("=default", "app"))
    sent = [sample(1, app=f"a{i % 3}", pod=str(i)) for i in range(6)]
    for _ in range(2):
        found = names.read([labels for labels, _ in sent])
        assert found.keys.name(found.owners) == [("default", f"a{i % 3}") for i in range(6)]
    assert len(names) == 6


# Several series with one key differ in the spelling of a label's value.

SPELLINGS = {
    0.1: ("0.1", "0.10", "1e-1", "1E-01", ".1", "0.10000000000000001"),
    1.0: ("1", "1.0", "1.00", "1e0", "01"),
    100.0: ("100", "1E2", "1e+02", "100.0"),
    0.3: ("0.3", "0.30000000000000004", "3e-1"),
    math.inf: ("+Inf", "inf", "Inf", "+inf", "Infinity", "+INF"),
}


@given(
    st.lists(st.lists(st.floats(0, 100), min_size=5, max_size=5), min_size=1, max_size=5),
    st.floats(0.01, 0.99),
    st.randoms(use_true_random=False),
)
def test_spellings_of_a_bound_are_one_bucket(counted: list[list[float]], share: float, random: Random) -> None:
    """Each instance of a service has a spelling of its own for each bound; the order of samples does not matter."""
    bounds = sorted(SPELLINGS)
    rows = [np.cumsum(counts).tolist() for counts in counted]
    samples = [
        sample(count, app="a", le=random.choice(SPELLINGS[bound]))
        for row in rows
        for count, bound in zip(row, bounds, strict=True)
    ]
    merged: dict[bytes, float] = {}
    for labels, count in samples:  # as `sum by (le)` does, which knows texts only
        merged[labels] = merged.get(labels, 0.0) + count
    sent = list(merged.items())
    random.shuffle(sent)
    (found,) = quantiles_of(sent, share)
    total = np.sum(rows, axis=0).tolist()
    np.testing.assert_allclose([*found.values()], [histogram_quantile(share, total, tuple(bounds))], rtol=1e-9)


def test_a_bound_that_is_no_number_takes_nothing_from_the_others() -> None:
    good = bucketed([5, 10, 10], (0.1, 0.2, math.inf), app="a")
    bad = [sample(7, app="a", le=text) for text in ("", "often", "NaN", "0,1")]
    (found,) = quantiles_of([*bad, *good], 0.5)
    np.testing.assert_allclose([*found.values()], [0.1])


def test_bounds_that_differ_stay_apart() -> None:
    samples = [sample(4, app="a", le="0.1"), sample(8, app="a", le="0.100001"), sample(8, app="a", le="+Inf")]
    (found,) = quantiles_of(samples, 0.5)
    np.testing.assert_allclose([*found.values()], [0.1])


@pytest.mark.parametrize(
    ("values", "added", "largest"),
    [
        ([1.0, 2.0, 4.0], 7.0, 4.0),
        ([0.25, math.nan], math.nan, 0.25),
        ([3.0, math.inf], math.nan, 3.0),
        ([-2.0, -1.0], -3.0, -1.0),
        ([math.nan, math.nan], math.nan, math.nan),
    ],
)
def test_values_of_one_key_are_joined_as_the_query_says(values: list[float], added: float, largest: float) -> None:
    samples = [sample(value, app="a", spelling=str(i)) for i, value in enumerate(values)]
    samples.insert(1, sample(9, app="b"))
    joins: list[tuple[Join, float]] = [("sum", added), ("max", largest)]
    for joined_by, wanted in joins:
        found = column_of(samples, joined_by=joined_by)
        assert list(found) == [("a",), ("b",)]
        np.testing.assert_array_equal([*found.values()], [wanted, 9])


def test_null_labels_are_absent() -> None:
    sent = [(b"null", 1.0), (b'{"app":null}', 2.0), (b'{"app":"a","zone":null}', 4.0)]
    found = column_of(sent)
    assert found == {("a",): 4.0}


def test_rates_are_added_and_states_and_quantiles_are_not() -> None:
    """By role, in the queries of all meshes, of recorded rules, of the settings and of the cluster."""
    rates = {"requests", "failures", "buckets", "connections", "in_flight"}
    by_role = dict.fromkeys(("requests", "failures", "buckets", "p50", "p99"), "x")
    generic = generic_dialect(GenericSettings.model_validate({"services": by_role, "calls": by_role}))
    for dialect in (*KNOWN.values(), generic):
        for role, query in (*dialect.services.items(), *dialect.calls.items()):
            if role in rates or role in SHARES:
                assert query.joined_by == ("sum" if role in rates else "max"), (dialect.name, role)
        if dialect is not generic:
            read = recording_rules(dialect, 15.0, 60.0).dialect
            for role, query in (*read.services.items(), *read.calls.items()):
                assert query.joined_by == ("max" if role in SHARES else "sum"), (dialect.name, role)
    signals = signal_queries(Queues())
    assert [signals[role].joined_by for role in (PODS, DISK, QUEUES)] == ["sum", "max", "sum"]
    assert {query.joined_by for query in CONTROLLERS.values()} == {"max"}


def test_names_that_differ_in_one_character_are_different_services() -> None:
    names = ["bank gateway", "bank/gateway", "bank_gateway", "bank@gateway", "订单", "支付", "a" * 300, "a" * 301]
    column = column_of([sample(1, namespace="shop", name=name) for name in names], ("namespace", "name"))
    assert len(column) == len(names)
    assert [*column][:3] == [("shop", "bank~20~gateway"), ("shop", "bank/gateway"), ("shop", "bank_gateway")]
    assert ("shop", "订单") in column


def test_a_namespace_ends_at_the_first_slash_of_an_id() -> None:
    samples = [sample(1, a="x/y", b="z", c="p/q", d="r/s"), sample(1, a="x", b="y/z", c="p", d="q/r/s")]
    ids = ["/".join(key) for key in column_of(samples, ("a", "b", "c", "d"))]
    assert ids == ["x~2F~y/z/p~2F~q/r/s", "x/y/z/p/q/r/s"]


def test_the_first_label_that_is_not_empty_names_the_service() -> None:
    rows = [
        sample(1, namespace="shop", deployment="a", statefulset="b"),
        sample(2, namespace="shop", statefulset="b", deployment=""),
        sample(4, namespace="shop", workload="c"),
    ]
    column = column_of(rows, ("namespace", "deployment|statefulset|workload"))
    assert column == {
        ("shop", "a"): 1, ("shop", "b"): 2, ("shop", "c"): 4,
    }  # fmt: skip


def test_series_without_a_name_are_counted_with_an_example() -> None:
    reader = LabelReader(("namespace", "deployment|statefulset", "?reporter"))
    rows = [sample(1, namespace="shop", deployment="a")] + [sample(1, namespace="shop", pod=f"p{i}") for i in range(3)]
    dropped = reader.read(vector(rows).label_sets).dropped_series
    assert dropped is not None
    assert (dropped.count, dropped.of) == (3, 4)
    assert dropped.labels == {"namespace": "shop", "pod": "p0"}
    assert dropped.missing == ("deployment|statefulset",)
    assert reader.read(vector(rows[:1]).label_sets).dropped_series is None, "of the last reading only"
