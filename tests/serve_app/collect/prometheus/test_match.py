"""Matchers in queries, and the selectors of queries."""

import pytest

from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.query import EVERYTHING, Match, matched_metrics, range_selectors

PROD = Match({"cluster": ("prod",)})


@pytest.mark.parametrize(
    ("promql", "expected"),
    [
        ("up{$match}", 'up{cluster="prod",}'),
        ('up{$match job="a"}', 'up{cluster="prod",job="a"}'),
        ('up{job="a",$match}', 'up{job="a",cluster="prod",}'),
        ('{$match __name__="up"}', '{cluster="prod",__name__="up"}'),
        ("up", "up"),
    ],
)
def test_each_selector_gets_the_matchers(promql: str, expected: str) -> None:
    assert PROD.apply(promql) == expected


def test_without_a_restriction_nothing_is_left() -> None:
    assert EVERYTHING.apply('up{$match} or down{$match job="a"}') == 'up or down{job="a"}'


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("a",), 'x="a",'),
        (("",), 'x="",'),
        (('a"b\\c\nd',), 'x="a\\"b\\\\c\\nd",'),
        (("a.b", "c|d"), 'x=~"a\\\\.b|c\\\\|d",'),
        (("a", ""), 'x=~"a|",'),
    ],
)
def test_values_are_literal(values: tuple[str, ...], expected: str) -> None:
    assert Match({"x": values}).matchers() == expected


def test_series_beside_a_mesh_may_lack_the_labels() -> None:
    match = Match({"cluster": ("a.b",), "env": ("",)}, allows_none=True)
    assert match.apply("kube_pod_owner{$match}") == 'kube_pod_owner{cluster=~"a\\\\.b|",env="",}'


@pytest.mark.parametrize(
    ("promql", "expected"),
    [
        ("sum(rate(a[$window]))", ("a",)),
        ('rate(a{x="}"}[$window]) / rate(b{y=~"c{2}",z=\'"\'}[$window])', ('a{x="}"}', 'b{y=~"c{2}",z=\'"\'}')),
        ('rate({__name__="a"}[$window]) + rate({__name__="a"}[$window])', ('{__name__="a"}',)),
        ("a - a offset $since", ()),
        ("rate(a[5m])", ()),
    ],
)
def test_selectors_of_rates_are_found(promql: str, expected: tuple[str, ...]) -> None:
    assert range_selectors(promql) == expected


@pytest.mark.parametrize("name", KNOWN)
def test_the_requests_of_each_dialect_have_selectors(name: str) -> None:
    for queries in (KNOWN[name].services, KNOWN[name].calls):
        assert range_selectors(queries["requests"].promql)
        assert list(matched_metrics(queries["requests"].promql))


def test_rates_include_the_series_whose_labels_were_not_filled() -> None:
    match = Match({"destination_cluster": ("east",)})
    rate = 'sum by (a) (rate(m{$match reporter="source"}[$window]))'
    filled, unfilled = (
        f'rate(m{{{labels}reporter="source"}}[$window])'
        for labels in ('destination_cluster="east",', 'source_cluster="east",destination_cluster="unknown",')
    )
    assert match.apply(rate) == f"sum by (a) (({filled} or {unfilled}))"
    assert match.apply("count(m{$match})") == 'count(m{destination_cluster="east",})'
    assert (
        Match({"cluster": ("east",)}).apply(rate) == 'sum by (a) (rate(m{cluster="east",reporter="source"}[$window]))'
    )
    both = Match({"destination_cluster": ("east",), "destination_service_namespace": ("shop",)}).apply(rate)
    assert both.count("rate(") == 4
