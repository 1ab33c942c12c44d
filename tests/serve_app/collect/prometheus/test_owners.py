"""Owners of services from the labels and annotations that kube-state-metrics exports."""

from dataclasses import replace

import pytest

from model.snapshot import Owner, ServicePolicy
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.kubernetes import OwnerLabels, read_owners, with_owners
from serve_app.collect.prometheus.workloads import read_serving
from serve_app.settings import MeshSettings

LABELS = OwnerLabels(("tagae.io/team", "team", "ownerName"), ("a8r.io/chat",))


def key(namespace: str, workload: str, **values: str) -> tuple[str, ...]:
    assert values.keys() <= set(LABELS.exported_labels())
    return (namespace, workload, *(values.get(label, "") for label in LABELS.exported_labels()))


def column(*keys: tuple[str, ...]) -> dict[Key, float]:
    return dict.fromkeys(keys, 1.0)


def test_the_names_are_those_of_kube_state_metrics() -> None:
    assert LABELS.exported_labels() == (
        "label_tagae_io_team",
        "annotation_tagae_io_team",
        "label_team",
        "annotation_team",
        "label_owner_name",
        "annotation_owner_name",
        "label_a8r_io_chat",
        "annotation_a8r_io_chat",
    )


def test_the_query_reads_workloads_and_namespaces() -> None:
    query = LABELS.query()
    for series in ("kube_deployment_labels{", "kube_statefulset_annotations{", "kube_namespace_labels{", "kube_job_"):
        assert series in query.promql
    assert query.labels[:2] == ("namespace", "?workload")
    assert len(query.labels) == 2 + len(LABELS.exported_labels())


def test_the_first_label_of_the_settings_counts_wherever_it_is() -> None:
    """Labels and annotations of a workload are two series."""
    found = read_owners(
        column(
            key("shop", "cart", label_team="base", annotation_a8r_io_chat="#cart"),
            key("shop", "cart", annotation_tagae_io_team="checkout"),
            key("shop", "web", label_owner_name=" front\tend "),
            key("shop", "mail", annotation_a8r_io_chat="#mail"),
            key("shop", "bare"),
            key("pay", "", label_team="money"),
        ),
        LABELS,
        {},
    )
    assert found == {
        "shop/cart": Owner("checkout", "#cart"),
        "shop/web": Owner("front end"),
        "shop/mail": Owner("", "#mail"),
        "pay/*": Owner("money"),
    }


def test_the_first_workload_of_a_service_counts() -> None:
    pairs: dict[Key, float] = {("shop", workload, "shop", "cart"): 1.0 for workload in ("cart-v1", "cart-v2")}
    found = read_owners(
        column(key("shop", "cart-v2", label_team="new"), key("shop", "cart-v1", label_team="old")),
        LABELS,
        read_serving(pairs),
    )
    assert found == {"shop/cart": Owner("old")}


def test_owners_are_added_to_policies() -> None:
    muted, owner = ServicePolicy("shop/cart", mute="moved"), Owner("checkout")
    assert with_owners([muted], {"shop/cart": owner, "pay/*": owner}) == [
        replace(muted, owner=owner),
        ServicePolicy("pay/*", owner=owner),
    ]


@pytest.mark.parametrize("label", ["team name", "/team", "UPPER.io/team", ""])
def test_settings_refuse_what_is_no_label(label: str) -> None:
    with pytest.raises(ValueError, match="team_labels"):
        MeshSettings.model_validate({"prometheus": "http://127.0.0.1:9090", "team_labels": [label]})
