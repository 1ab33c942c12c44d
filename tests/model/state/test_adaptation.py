"""Adapters: what they explain, what they learn from, and when they are replaced."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from weakref import ref

import numpy as np
import pytest

from model.features import NODE_CHANNELS, OWN_TIME, P50, P99, RATE
from model.snapshot import MeshSnapshot, PlannedChange
from model.state import adapter_fit
from model.state.adapter_fit import FEWEST, Candidate, adopt, fit, quiet_snapshots, remove_adapter, restore_former
from model.state.load_adapter import LATENCIES, Adapter, load_effect
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, at, snapshot, watch

STORE = SERVICES.index("shop/store")
INTO_STORE = [e for e, (_, to) in enumerate(CALLS) if to == STORE]
USUAL = float(NODE_CHANNELS[RATE].forward(np.array(NODE[RATE], np.float32)))


def adapter(*services: str, slope: float = 0.5, bend: float = 1.0) -> Adapter:
    """Return an adapter that covers half to twice the usual load."""
    load = np.tile(np.array([USUAL, USUAL + np.log(0.5), USUAL + np.log(2)], np.float32), (len(services), 1))
    curve = np.tile(np.array([slope, bend], np.float32), (len(services), len(LATENCIES), 1))
    return Adapter(services, load, curve, at(50), 60, 1.0, 0.8)


def day(
    count: int, *, elasticity: float = 1.5, seed: int = 0, level: Callable[[int], float] = lambda i: 1.0
) -> Iterator[MeshSnapshot]:
    """Return a day of changing load. The store's latency follows it, and is multiplied by ``level``."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        load = 1.5 ** np.sin(i / 8)
        nodes, edges = np.tile(NODE, (len(SERVICES), 1)), np.tile(EDGE, (len(CALLS), 1))
        nodes[:, RATE] *= load
        edges[:, RATE] *= load
        slower = level(i) * load**elasticity
        nodes[STORE, [P50, P99]] *= slower
        edges[INTO_STORE, P50 : P99 + 1] *= slower
        nodes *= np.exp(0.03 * rng.standard_normal(nodes.shape))
        edges *= np.exp(0.03 * rng.standard_normal(edges.shape))
        yield snapshot(i, nodes=nodes, edges=edges)


def known(snapshots: Iterator[MeshSnapshot]) -> MeshState:
    return watch(list(snapshots))[1]


def alerted(state: MeshState, *indices: int) -> MeshState:
    withheld = tuple((at(i).timestamp(), 9.0) for i in indices)
    return replace(state, memory=replace(state.memory, alerted_scores=withheld))


def test_a_curve_has_the_values_computed_by_hand() -> None:
    load = np.full(len(SERVICES), USUAL + np.log(1.5), np.float32)
    node, edge = load_effect(adapter("shop/store", "shop/gone"), SERVICES, np.array(CALLS).T, load)
    u = np.log(1.5)
    assert node[STORE, [P50, P99, OWN_TIME]] == pytest.approx(0.5 * u + u * u)
    assert edge[INTO_STORE][:, [P50, P99]] == pytest.approx(0.5 * u + u * u)
    assert not node[:STORE].any()
    assert np.count_nonzero(node) == 3
    assert np.count_nonzero(edge) == 2 * len(INTO_STORE)
    load[STORE] = USUAL + 9
    beyond, _ = load_effect(adapter("shop/store"), SERVICES, np.array(CALLS).T, load)
    assert beyond[STORE, P50] == pytest.approx(0.5 * np.log(2) + np.log(2) ** 2), (
        "the curve is flat outside the observed load"
    )
    load[STORE] = USUAL - u
    below, _ = load_effect(adapter("shop/store"), SERVICES, np.array(CALLS).T, load)
    assert below[STORE, P50] == pytest.approx(-0.5 * u), "the curve is bent only above the usual load"


def test_relabelling_services_relabels_the_adapter() -> None:
    load = np.float32(USUAL) + np.linspace(-0.3, 0.6, len(SERVICES), dtype=np.float32)
    calls, order = np.array(CALLS).T, np.array([3, 0, 4, 2, 1])
    row = np.argsort(order)
    some = adapter("shop/store", "shop/cart")
    node, edge = load_effect(some, SERVICES, calls, load)
    moved, calls_moved = load_effect(some, [SERVICES[i] for i in order], row[calls], load[order])
    np.testing.assert_array_equal(moved, node[order])
    np.testing.assert_array_equal(calls_moved, edge)


def test_deviations_explained_by_load_disappear_and_reasons_show_measured_values() -> None:
    state = known(day(88))  # at the lowest load
    low = list(day(89))[88]
    nodes = low.node_features.copy()
    nodes[:, RATE] *= 2
    nodes[STORE, [P50, P99]] *= 2**1.5
    peak = replace(low, node_features=nodes)
    candidate = fit(state)
    assert candidate is not None
    plain, adapted = watch([peak], state)[0].node, watch([peak], adopt(state, candidate))[0].node
    assert plain.now[STORE, P50] > 3 * abs(adapted.now[STORE, P50])
    assert adapted.value[STORE, P50] == pytest.approx(plain.value[STORE, P50], abs=1e-5)
    assert adapted.expected[STORE, P50] > plain.expected[STORE, P50], "a higher value is expected at this load"
    others = [i for i, name in enumerate(SERVICES) if candidate.adapter and name not in candidate.adapter.services]
    np.testing.assert_array_equal(adapted.now[others], plain.now[others])


def test_fitting_finds_the_curve_and_lowers_the_loss() -> None:
    candidate = fit(known(day(120)))
    assert candidate is not None
    assert candidate.adapter is not None
    assert candidate.adapter.services == ("shop/store",)
    up = candidate.adapter.load.copy()[:, 1]
    rise = candidate.adapter.rise(candidate.adapter.load[:, 2]) - candidate.adapter.rise(up)
    assert rise[0, :2] == pytest.approx(1.5 * 2 * np.log(1.5), abs=0.25)
    assert candidate.adapter.loss_after < 0.5 * candidate.adapter.loss_before
    assert candidate.compared_with is None
    assert candidate.adapter.snapshots == 120
    again = fit(known(day(120)))
    assert again is not None
    assert again.adapter is not None
    np.testing.assert_array_equal(again.adapter.curve, candidate.adapter.curve)


def test_services_fitted_in_blocks_have_the_same_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    state = known(day(120))
    at_once = fit(state)
    monkeypatch.setattr(adapter_fit, "BLOCK", 2)
    in_blocks = fit(state)
    assert at_once is not None
    assert in_blocks is not None
    assert at_once.adapter is not None
    assert in_blocks.adapter is not None
    for field in fields(Adapter):
        np.testing.assert_array_equal(getattr(in_blocks.adapter, field.name), getattr(at_once.adapter, field.name))


def test_a_fit_holds_one_snapshot_at_a_time_and_no_tables() -> None:
    state = known(day(120))
    given: list[ref[MeshSnapshot]] = []
    most = 0

    def read() -> Iterator[MeshSnapshot]:
        nonlocal most
        for one in state.window:
            copy = replace(one)
            given.append(ref(copy))
            yield copy
            del copy
            most = max(most, sum(one() is not None for one in given))

    candidate, expected = fit(unpack_state(pack_state(state), with_tables=False), read()), fit(state)
    assert candidate is not None
    assert expected is not None
    assert candidate.adapter is not None
    assert expected.adapter is not None
    np.testing.assert_array_equal(candidate.adapter.curve, expected.adapter.curve)
    assert 1 <= most <= 2


def test_a_second_candidate_must_beat_the_first() -> None:
    state = known(day(120))
    first = fit(state)
    assert first is not None
    state = adopt(state, first)
    second = fit(state)
    assert second is not None
    assert second.adapter is None, "the same snapshots give no new adapter"
    assert adopt(state, second) is state
    assert adopt(state, first) is state, "the adapter was compared with another one"


def test_constant_load_leaves_the_curve_unchanged() -> None:
    state = known(day(120))
    first = fit(state)
    assert first is not None
    state = adopt(state, first)
    rng = np.random.default_rng(1)
    still = [replace(s, observed_at=at(120 + i)) for i, s in enumerate(noisy_days(rng))]
    _, state = watch(still, state)
    later = fit(state)
    assert later is not None
    assert later.adapter is None or "shop/store" in later.adapter.services


def noisy_days(rng: np.random.Generator) -> list[MeshSnapshot]:
    nodes, edges = np.exp(0.03 * rng.standard_normal((120, 5, 7))), np.exp(0.03 * rng.standard_normal((120, 4, 4)))
    return [snapshot(0, nodes=NODE * n, edges=EDGE * e) for n, e in zip(nodes, edges, strict=True)]


def test_a_leak_is_not_learned_as_an_effect_of_load() -> None:
    candidate = fit(known(day(120, elasticity=0.0, level=lambda i: 1.02**i)))
    assert candidate is not None
    assert candidate.adapter is None


def test_snapshots_with_alerts_are_not_learned_from() -> None:
    state = alerted(known(day(120)), 40, 41, 42)
    assert set(range(120)) - set(quiet_snapshots(state, [s.observed_at for s in state.window])) == set(range(40, 51)), (
        "snapshots just after an alert are not learned from either"
    )
    wild = list(day(120))
    for i in range(40, 51):
        wild[i] = replace(wild[i], node_features=wild[i].node_features * np.float32(5.0))
    ours, theirs = fit(state), fit(replace(state, window=tuple(wild)))
    assert ours is not None
    assert theirs is not None
    assert ours.adapter is not None
    assert theirs.adapter is not None
    np.testing.assert_array_equal(ours.adapter.curve, theirs.adapter.curve)
    assert fit(alerted(state, *range(0, 120, 8))) is None


def test_a_service_that_is_being_changed_is_not_learned_from() -> None:
    changing = [
        replace(s, changes=(PlannedChange("deploy", "shop/store", ""),) if i % 10 == 0 else ())
        for i, s in enumerate(day(120))
    ]
    candidate = fit(known(iter(changing)))
    assert candidate is not None
    assert candidate.adapter is None


def test_too_few_snapshots_give_no_adapter() -> None:
    assert fit(MeshState()) is None
    assert fit(known(day(FEWEST - 1))) is None


def test_a_rollback_restores_the_previous_adapter_and_skips_its_snapshots() -> None:
    state = known(day(120))
    candidate = fit(state)
    assert candidate is not None
    first = adopt(state, candidate)
    second = adopt(first, Candidate(adapter("shop/cart"), at(119)))
    assert second.adaptation.former == first.adaptation.adapter
    back = restore_former(second)
    assert back.adaptation.adapter == first.adaptation.adapter
    np.testing.assert_allclose(back.node_filters, first.node_filters, atol=1e-5)
    np.testing.assert_allclose(back.edge_filters, first.edge_filters, atol=1e-5)
    none = restore_former(back)
    assert none.adaptation.adapter is None
    np.testing.assert_allclose(none.node_filters, state.node_filters, atol=1e-5)
    assert fit(none) is None, "the same candidate is not fitted again"
    more = [replace(s, observed_at=at(120 + i)) for i, s in enumerate(day(FEWEST))]
    assert fit(watch(more[:-1], none)[1]) is None
    assert fit(watch(more, none)[1]) is not None
    off = remove_adapter(second)
    assert off.adaptation.adapter is None
    np.testing.assert_allclose(off.node_filters, state.node_filters, atol=1e-5)


def test_every_service_whose_latency_rises_has_a_curve() -> None:
    copies = 80
    services = [f"{name}-{i}" for i in range(copies) for name in SERVICES]
    calls = [(a + i * len(SERVICES), b + i * len(SERVICES)) for i in range(copies) for a, b in CALLS]
    many = (
        replace(
            snapshot(0, services, calls),
            node_features=np.tile(one.node_features, (copies, 1)),
            edge_features=np.tile(one.edge_features, (copies, 1)),
            observed_at=one.observed_at,
        )
        for one in day(120)
    )
    candidate = fit(watch(list(many))[1])
    assert candidate is not None
    assert candidate.adapter is not None
    assert candidate.adapter.services == tuple(f"shop/store-{i}" for i in range(copies))
    assert np.ptp(candidate.adapter.curve, axis=0).max() == 0, "equal services have equal curves"


def test_an_adapter_takes_a_hundred_bytes_for_each_service() -> None:
    names = [f"namespace-{i % 7}/service-{i}" for i in range(2000)]
    state = MeshState()
    size = len(pack_state(adopt(state, Candidate(adapter(*names), None)))) - len(pack_state(state))
    assert size < 100 * len(names)
