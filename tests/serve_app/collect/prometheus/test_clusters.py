"""Clusters and pairs of servers in one store."""

import re

import pytest

from serve_app.collect.prometheus.clusters import (
    Split,
    agree,
    are_connected,
    find_clusters,
    find_replicas,
    fits,
    jobs_with_same_rates,
    name_clusters,
    name_clusters_of,
    restrict,
)
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.groups import CLUSTER_LABELS, LONG, NEWEST, SeriesGroup, group_query
from serve_app.collect.prometheus.query import EVERYTHING, Query

AT = 1_700_000_000.0


def group(service: str, requests: float, newest: float = AT, **origin: str) -> SeriesGroup:
    return SeriesGroup(("shop", service), "", origin, {LONG: 32.49}, newest, requests)


def find(*groups: SeriesGroup, connected: bool = False, before: object = None):  # type: ignore[no-untyped-def]
    return find_clusters(groups, CLUSTER_LABELS, has_calls_between=connected, before=before)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "origins", [({}, {}), ({"cluster": "a"}, {"cluster": "a"}), ({"region": "x"}, {"region": "y"})]
)
def test_one_cluster_is_none(origins: tuple[dict[str, str], dict[str, str]]) -> None:
    assert find(*(group(name, 1, AT, **origin) for name, origin in zip(("web", "cart"), origins, strict=True))) is None


def test_the_busiest_cluster_is_read_and_stays_when_another_one_gets_busier() -> None:
    first = find(group("web", 9, cluster="a"), group("web", 1, cluster="b"))
    later = find(group("web", 0, cluster="a"), group("web", 1, cluster="b"), before=first)
    gone = find(group("web", 1, cluster="b"), group("web", 2, cluster="c"), before=later)
    assert [one.read for one in (first, later, gone)] == [("a",), ("a",), ("c",)]
    assert first.share == 0.9


def test_series_without_the_label_are_a_cluster_too() -> None:
    found = find(group("web", 9), group("web", 1, cluster="remote"))
    assert found.read == ("",)
    match = restrict(EVERYTHING, found)
    assert match.matchers() == 'cluster="",'
    assert [fits(one, match) for one in (group("web", 1), group("web", 1, cluster="remote"))] == [True, False]


def test_a_label_with_other_services_for_each_value_separates_nothing() -> None:
    """Such as the name of the Kafka cluster, or of the service itself."""
    found = find(group("web", 9, cluster="web"), group("cart", 1, cluster="cart"))
    assert (found.choice, set(found.read)) == ("apart", {"web", "cart"})
    assert restrict(EVERYTHING, found) == EVERYTHING


def test_the_label_that_has_common_services_counts() -> None:
    found = find(
        group("web", 9, cluster="x", k8s_cluster_name="a"),
        group("cart", 9, cluster="y", k8s_cluster_name="a"),
        group("web", 1, cluster="x", k8s_cluster_name="b"),
    )
    assert (found.label, found.read) == ("k8s_cluster_name", ("a",))


@pytest.mark.parametrize(
    ("ends", "connected"),
    [
        ([{"source_cluster": "a", "destination_cluster": "b"}], True),
        ([{"source_cluster": "a", "destination_cluster": "a"}], False),
        ([{"source_cluster": "unknown", "destination_cluster": "a"}, {"destination_cluster": "b"}], False),
    ],
)
def test_calls_between_clusters_make_them_one_mesh(ends: list[dict[str, str]], *, connected: bool) -> None:
    assert are_connected(ends) is connected
    found = find(group("web", 9, cluster="a"), group("web", 1, cluster="b"), connected=connected)
    assert found.choice == ("connected" if connected else "busiest")


def pair(stopped: float = 0.0, **more: str) -> list[SeriesGroup]:
    return [
        group(service, 5, AT - 3 - (stopped if server == "a" else 0), replica=server, **more)
        for server in "ab"
        for service in ("web", "cart")
    ]


def test_the_same_server_is_read_until_its_data_stop() -> None:
    first = find_replicas(pair(), "replica", None)
    stopped = find_replicas(pair(40.0), "replica", first)
    back = find_replicas(pair(), "replica", stopped)
    assert [one.read for one in (first, stopped, back)] == [("a",), ("b",), ("b",)]


def test_a_server_that_has_just_started_is_not_read() -> None:
    groups = [group(name, 5, replica="a") for name in ("web", "cart", "db", "pay")]
    groups += [group("web", 5, replica="0-new")]
    before = Split("replica", (), ("0-new",), "pair", 16.5)
    assert find_replicas(groups, "replica", before).read == ("a",)


def test_one_server_is_read_in_each_cluster() -> None:
    groups = [*pair(cluster="prod"), *(group("web", 1, replica=server, cluster="dev") for server in ("c", "d"))]
    assert find_replicas(groups, "replica", None).read == ("a", "c")


def test_servers_stop_apart_from_each_other_only() -> None:
    found = find_replicas(pair(), "replica", None)
    assert not found.have_stopped({"a": AT - 14, "b": AT})
    assert found.have_stopped({"a": AT - 20, "b": AT})
    assert found.have_stopped({"b": AT})
    assert not found.have_stopped({"a": AT - 900, "b": AT - 900})
    assert not found.have_stopped({"a": AT, "b": AT - 900})


@pytest.mark.parametrize(("rates", "expected"), [((5, 5), True), ((5, 4.4), True), ((60, 3), False), ((5, 0), True)])
def test_two_servers_see_the_same_traffic(rates: tuple[float, float], *, expected: bool) -> None:
    groups = [group("web", rate, prometheus=str(i)) for i, rate in enumerate(rates)]
    assert agree(groups, "prometheus") is expected


@pytest.mark.parametrize(
    ("promql", "labels", "clusters", "expected"),
    [
        (
            "sum by (namespace, service) (rate(a[1m]))",
            ("namespace", "service"),
            {0: "c"},
            'label_join(sum by (c, namespace, service) (rate(a[1m])), "namespace", ".", "c", "namespace")',
        ),
        ("sum by (server) (a)", ("=default", "server"), {0: "c"}, "sum by (c, server) (a)"),
        (
            "a * on (node) group_left () b unless on () c",
            ("node", "x"),
            {0: "c"},
            'label_join(a * on (c, node) group_left () b unless on () c, "node", ".", "c", "node")',
        ),
    ],
)
def test_clusters_are_in_each_grouping_and_join(
    promql: str, labels: tuple[str, ...], clusters: dict[int, str], expected: str
) -> None:
    named = name_clusters(Query(promql, labels), clusters)
    assert named.promql == expected
    assert named.labels == (("c", labels[1]) if labels[0].startswith("=") else labels)


@pytest.mark.parametrize("name", KNOWN)
def test_each_dialect_names_clusters_at_both_ends(name: str) -> None:
    named = name_clusters_of(KNOWN[name], "destination_cluster")
    assert "source_cluster" in named.calls["requests"].promql
    assert "destination_cluster" in named.services["requests"].promql
    assert "source_cluster" not in named.services["requests"].promql


def test_series_of_each_kind_of_mesh_are_grouped_by_labels_that_they_have() -> None:
    """Names that a query makes from other labels are none of the series'."""
    for dialect in KNOWN.values():
        for query in (dialect.services["requests"], dialect.calls["requests"]):
            groupings = re.findall(r"\bby \(([^()]*)\)", group_query(query, EVERYTHING, NEWEST))
            assert groupings, dialect.name
            for labels in groupings:
                assert not {"callee", "caller", "callee_namespace"} & set(labels.split(", ")), dialect.name
                assert "|" not in labels, dialect.name


@pytest.mark.parametrize(
    ("rates", "same"),
    [
        ({"web": {"a": 40.0, "b": 40.5}, "cart": {"a": 10.0, "b": 10.1}, "db": {"a": 1.0}}, ("a", "b")),
        ({"web": {"": 40.0, "b": 40.0}}, ("", "b")),
        ({"web": {"a": 40.0, "b": 20.0}, "cart": {"a": 10.0, "b": 10.1}}, ()),  # each scrapes some of the pods
        ({"web": {"a": 40.0, "b": 40.0}, "cart": {"a": 10.0}, "db": {"c": 1.0}}, ()),  # one service is no pattern
        ({"web": {"a": 40.0}, "cart": {"b": 40.0}}, ()),
        ({"web": {"a": 0.0, "b": 0.0}}, ()),
        ({}, ()),
    ],
)
def test_jobs_that_see_the_same_traffic_of_most_services_may_scrape_the_same_targets(
    rates: dict[str, dict[str, float]], same: tuple[str, ...]
) -> None:
    groups = [
        SeriesGroup(("shop", name), job, {}, {LONG: 32.49}, AT, rate)
        for name, by_job in rates.items()
        for job, rate in by_job.items()
    ]
    assert jobs_with_same_rates(groups) == same
