"""Raw Envoy: the services that cluster names mean."""

import pytest

from serve_app.collect.prometheus.dialects.envoy import envoy
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.frames import LabelReader


def test_a_call_has_four_labels_for_its_ends_besides_the_cluster() -> None:
    query = envoy().calls["requests"]
    sample = (
        b'{"namespace":"shop","service":"web","envoy_cluster_name":"outbound_shop_cart",'
        b'"destination_namespace":"shop","destination_service":"cart"}'
    )
    found = LabelReader(query.labels).read([sample])
    assert found.keys.name(found.owners) == [("shop", "web", "shop", "cart")]


def test_completed_requests_are_counted_because_a_dead_service_never_connects() -> None:
    dialect = envoy()
    for queries in (dialect.services, dialect.calls):
        assert "envoy_cluster_upstream_rq_completed" in queries["requests"].promql
        assert "rq_total" not in queries["requests"].promql


@pytest.mark.parametrize("name", KNOWN)
def test_a_window_has_no_point(name: str) -> None:
    query = KNOWN[name].services["requests"]
    assert "[7500ms]" in query.at(7.5)
    assert "$window" not in query.at(7.5)
