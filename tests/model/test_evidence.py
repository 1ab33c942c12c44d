"""What speaks for a page, shown by small meshes at ease but for one thing."""

from dataclasses import replace

import numpy as np
import pytest
from model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.incidents.tracking import AlertPolicy
from model.scoring.calibration import Tail
from model.scoring.evidence import KINDS, UNHEARD_OF, Decoded, Evidence, gather, page_score, surprises
from model.snapshot import MeshSnapshot, PlannedChange
from model.state.change_impact import EXPOSURES
from model.state.filters import SCALES
from model.state.mesh_state import MeshState

CART, SEARCH, STORE, IDLE = 1, 2, 3, 4


def tail(channels: int) -> Tail:
    return Tail(*(np.full((EXPOSURES, SCALES, channels), x, np.float32) for x in (0.001, 0.8, 0.15)))


def evidence_of(*snapshots: MeshSnapshot, state: MeshState | None = None) -> Evidence:
    """Of the last of them, the network expecting nothing."""
    observation, state = watch(snapshots, state or settled_state())
    nodes, edges = len(state.node_ids), state.edge_index.shape[1]
    decoded = Decoded(
        np.zeros((nodes, len(NODE_CHANNELS)), np.float32),
        np.zeros((edges, len(EDGE_CHANNELS)), np.float32),
        np.full(edges, 5, np.float32),
        np.zeros(nodes, np.float32),
        np.ones(nodes, bool),
    )
    surprise = surprises(observation, decoded, tail(len(NODE_CHANNELS)), tail(len(EDGE_CHANNELS)))
    return gather(state, observation, decoded, surprise, AlertPolicy())


def said(evidence: Evidence, service: int, kind: str) -> float:
    return float(evidence.kinds[evidence.names.index(SERVICES[service]), KINDS.index(kind)])


def with_nodes(index: float, service: int, **metrics: float) -> MeshSnapshot:
    nodes = np.tile(NODE, (len(SERVICES), 1))
    for column, value in metrics.items():
        nodes[service, int(column[1:])] = value
    return snapshot(index, nodes=nodes)


def rerouted(share: float, *, change: bool = False) -> MeshSnapshot:
    """The cart sends this share of its calls to the idle service instead of to the store."""
    edges = np.array([*[EDGE] * len(CALLS), EDGE])
    edges[2, 0] *= 1 - share
    edges[4, 0] *= share
    changes = [PlannedChange("deploy", SERVICES[CART], "v2")] if change else []
    return snapshot(30, calls=(*CALLS, (CART, IDLE)), edges=edges, changes=changes)


def test_calls_that_take_another_way_speak_against_the_caller_and_both_destinations() -> None:
    evidence = evidence_of(rerouted(0.7))
    for service in (CART, STORE, IDLE):
        assert said(evidence, service, "vanished") == pytest.approx(UNHEARD_OF)
    assert said(evidence, SEARCH, "vanished") == 0
    assert evidence.page[evidence.names.index(SERVICES[CART])] >= UNHEARD_OF


def test_a_new_call_beside_the_old_ones_is_no_rerouting() -> None:
    more = snapshot(30, calls=(*CALLS, (CART, IDLE)))
    assert evidence_of(more).kinds[:, KINDS.index("vanished")].max() == 0


def test_few_calls_or_a_small_share_count_for_less() -> None:
    assert said(evidence_of(rerouted(0.03)), CART, "vanished") < 0.2 * UNHEARD_OF


def test_a_service_that_was_just_changed_may_call_whom_it_likes() -> None:
    state = settled_state()
    announced = rerouted(0.7, change=True)
    memory = state.memory.aged(announced.changes, AlertPolicy().remembered)
    assert evidence_of(announced, state=replace(state, memory=memory)).kinds[:, KINDS.index("vanished")].max() == 0


def test_errors_matter_beside_the_usual() -> None:
    """From 1% to 5% is much; from 80% to 88% is what a service that fails most of the time does now and then."""
    healthy = evidence_of(with_nodes(30, STORE, _1=0.05))
    nodes = np.tile(NODE, (len(SERVICES), 1))
    nodes[STORE, 1] = 0.8
    broken = watch((snapshot(i, nodes=nodes) for i in range(30, 150)), settled_state())[1]
    worse = evidence_of(with_nodes(150, STORE, _1=0.88), state=broken)
    assert said(healthy, STORE, "error") > 2
    assert said(worse, STORE, "error") < 0.1


def test_resources_page_at_a_discount_and_load_pages_nobody() -> None:
    kinds = np.zeros((3, len(KINDS)), np.float32)
    for row, kind in enumerate(("resources", "latency", "rise")):
        kinds[row, KINDS.index(kind)] = 6.0
    np.testing.assert_allclose(page_score(kinds), [3.6, 6.0, 0.0], rtol=1e-6)
