from dataclasses import replace

import numpy as np

from model.drift.quality import CONSTANT_SNAPSHOTS, data_quality
from model.snapshot import MeshSnapshot, NodeMetric
from tests.model.model_cases import SERVICES, noisy

LENGTH = 120  # half an hour


def window(hold: dict[int, list[int]], length: int = LENGTH) -> list[MeshSnapshot]:
    """Noisy snapshots in which some services hold some metrics."""
    rng, kept = np.random.default_rng(0), []
    for i in range(length):
        one = noisy(i, rng)
        features = one.node_features.copy()
        for service, metrics in hold.items():
            features[service, metrics] = np.float32(0.25)
        kept.append(replace(one, node_features=features))
    return kept


def test_a_live_mesh_has_no_stale_and_no_constant_series() -> None:
    found = data_quality(window({}))
    assert (found.stale, found.constant) == ((), ())
    assert not any(found.missing.values())


def test_a_service_of_which_nothing_changes_is_stale() -> None:
    found = data_quality(window({1: list(range(7))}))
    assert found.stale == (SERVICES[1],)
    assert found.constant == ()


def test_a_metric_that_alone_does_not_change_is_constant() -> None:
    found = data_quality(window({2: [NodeMetric.CPU_UTILIZATION]}))
    assert found.stale == ()
    assert found.constant == ((SERVICES[2], "cpu_utilization"),)


def test_a_short_window_says_nothing() -> None:
    held = window({1: list(range(7)), 2: [NodeMetric.CPU_UTILIZATION]}, CONSTANT_SNAPSHOTS // 4)
    found = data_quality(held)
    assert (found.stale, found.constant) == ((), ())


def test_zeros_are_right() -> None:
    kept = [replace(one, node_features=one.node_features * 0) for one in window({})]
    assert data_quality(kept).constant == ()


def test_missing_values_are_shares_of_the_newest_snapshot() -> None:
    kept = window({})
    observed = kept[-1].node_observed.copy()
    observed[:2, NodeMetric.P99_LATENCY] = False
    found = data_quality([*kept[:-1], replace(kept[-1], node_observed=observed)])
    assert found.missing["service.p99_latency"] == 2 / len(SERVICES)


def test_services_that_come_are_compared_by_name() -> None:
    kept = window({1: list(range(7))})
    fewer = [
        replace(
            one,
            node_ids=one.node_ids[1:],
            node_features=one.node_features[1:],
            node_observed=one.node_observed[1:],
            edge_index=np.zeros((2, 0), np.int64),
            edge_features=one.edge_features[:0],
            edge_observed=one.edge_observed[:0],
        )
        for one in kept[:-1]
    ]
    assert data_quality([*fewer, kept[-1]]).stale == (SERVICES[1],)
