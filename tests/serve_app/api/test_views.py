"""Views of a mesh: deviations in the order of the snapshot, packed to a byte each."""

from dataclasses import replace

import msgspec
import numpy as np

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.scoring.score import score
from model.snapshot import MeshSnapshot
from model.verdict import Suspect
from serve_app.api.codec import encode_verdict
from serve_app.api.schemas.views import GraphDocument
from serve_app.api.views import UNKNOWN, Deviations, graph_document
from serve_app.pipeline import Mesh, Options, PreparedSnapshot, advance, calibrate, cut_tasks, deviations_of, prepare

OPTIONS = Options(max_services=20)


def _reorder(snapshot: MeshSnapshot, drop: int) -> MeshSnapshot:
    """Remove one service and its calls, and change the order of the rest."""
    order = np.random.default_rng(0).permutation([i for i in range(snapshot.num_nodes) if i != drop])
    calls = np.random.default_rng(1).permutation(np.flatnonzero((snapshot.edge_index != drop).all(axis=0)))
    return snapshot.take(order, calls)


def test_each_service_and_call_keeps_its_score_in_any_order() -> None:
    checkpoint = load()
    *past, newest = Simulator(MeshSpec(services=60, seed=2), snapshots=12).snapshots()
    mesh = Mesh()
    for snapshot in past:
        _, mesh = advance(checkpoint, mesh, snapshot, OPTIONS)

    def find_deviations(laid: PreparedSnapshot, snapshot: MeshSnapshot, lost: int | None = None) -> Deviations:
        scores = [s for s in score(checkpoint.network, cut_tasks(laid)) if s.part != lost]
        return deviations_of(laid, calibrate(checkpoint, laid, scores), snapshot)

    shuffled = _reorder(newest, drop=7)
    laid = prepare(checkpoint, mesh, shuffled, OPTIONS)
    table = {name: i for i, name in enumerate(laid.mesh.state.node_ids)}
    whole = calibrate(checkpoint, laid, score(checkpoint.network, cut_tasks(laid)))
    deviations = find_deviations(laid, shuffled)
    rows = [table[name] for name in shuffled.node_ids]
    np.testing.assert_array_equal(deviations.services, whole.surprise.node.max(axis=1)[rows])
    known = {tuple(ends): i for i, ends in enumerate(laid.mesh.state.edge_index.T.tolist())}
    calls = [known[rows[a], rows[b]] for a, b in shuffled.edge_index.T.tolist()]
    np.testing.assert_array_equal(deviations.calls, whole.surprise.edge.max(axis=1)[calls])
    assert deviations.calls.std() > 0.1, "equal values would prove nothing"

    partial = find_deviations(laid, shuffled, lost=1)
    assert laid.mesh.plan is not None
    missing = {laid.mesh.state.node_ids[i] for i in laid.mesh.plan.parts[1].core}
    unknown = {name for name, value in zip(shuffled.node_ids, partial.services, strict=True) if np.isnan(value)}
    assert unknown == missing & set(shuffled.node_ids)
    owned = [shuffled.node_ids[source] in missing for source in shuffled.edge_index[0]]
    np.testing.assert_array_equal(np.isnan(partial.calls), owned)


def test_packing_keeps_sixteenths_of_a_decade_and_unknown_values() -> None:
    snapshot = next(iter(Simulator(MeshSpec(services=30, seed=2), snapshots=1).snapshots()))
    values = np.linspace(0, 15, snapshot.num_nodes + snapshot.num_edges, dtype=np.float32)
    values[3] = np.nan
    kept = Deviations(values[: snapshot.num_nodes], values[snapshot.num_nodes :])
    back = Deviations.unpack(kept.pack(), snapshot)
    np.testing.assert_allclose(np.concatenate([back.services, back.calls]), values, atol=1 / 32)
    assert len(kept.pack()) == len(values)
    services, calls = np.array([4, 9]), np.array([0, 7])
    taken = Deviations(kept.services[services], kept.calls[calls])
    assert Deviations.take_packed(kept.pack(), snapshot, services, calls) == taken.pack()
    assert Deviations.take_packed(b"", snapshot, services, calls) == bytes([UNKNOWN] * 4)
    for other in (b"", kept.pack()[1:]):  # from an older store, or of another snapshot
        assert np.isnan(Deviations.unpack(other, snapshot).services).all()


def test_a_suspect_that_disappeared_is_named() -> None:
    checkpoint = load()
    snapshots = list(Simulator(MeshSpec(services=30, seed=2), snapshots=2).snapshots())
    verdict, mesh = advance(checkpoint, Mesh(), snapshots[0], OPTIONS)
    gone, known = Suspect("old/one", 0.5), Suspect(snapshots[1].node_ids[4], 0.25)
    document = encode_verdict(replace(verdict, suspects=(gone, known)))
    laid = prepare(checkpoint, mesh, snapshots[1], OPTIONS)
    deviations = deviations_of(laid, calibrate(checkpoint, laid, []), snapshots[1])
    whole = msgspec.json.encode(graph_document(snapshots[1], deviations, document))
    graph = GraphDocument.model_validate_json(whole)
    assert graph.model_dump_json().encode() == whole
    assert graph.vanished == ["old/one"]
    assert {s["deviation"] for s in graph.services} == {None}, "no part scored them"
    assert [i for i, s in enumerate(graph.services) if s["suspicion"] == 0.25] == [4]
