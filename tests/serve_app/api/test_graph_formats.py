"""The graph of a mesh for other programs has what the JSON form has."""

import json
from dataclasses import replace
from io import BytesIO

import msgspec
import networkx as nx
import numpy as np
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot, Signal, SignalKind
from model.verdict import Suspect
from serve_app.api import graph_formats
from serve_app.api.codec import encode_verdict
from serve_app.api.graph_formats import to_networkx, write_graphml
from serve_app.api.views import Deviations, graph_document
from serve_app.errors import InvalidParameter
from tests.builders import verdict

GONE = "shop/gone"


@pytest.fixture
def snapshot() -> MeshSnapshot:
    [made] = Simulator(MeshSpec(services=30, seed=3), snapshots=1).snapshots()
    observed = made.node_observed.copy()
    observed[2] = False
    signals = (Signal(SignalKind.RESTARTS, made.node_ids[4], 2.0),)
    return replace(made, node_observed=observed, signals=signals)


@pytest.fixture
def document(snapshot: MeshSnapshot) -> bytes:
    services = np.linspace(0, 3, snapshot.num_nodes, dtype=np.float32)
    services[5] = np.nan
    suspects = (Suspect(snapshot.node_ids[1], 0.75, ()), Suspect(GONE, 0.25, ()))
    deviations = Deviations(services, np.ones(snapshot.num_edges, np.float32))
    return msgspec.json.encode(graph_document(snapshot, deviations, encode_verdict(verdict(suspects=suspects))))


def test_graphml_is_read_back_as_the_same_graph(document: bytes) -> None:
    graph, read = to_networkx(json.loads(document)), nx.read_graphml(BytesIO(write_graphml(document)))
    assert isinstance(read, nx.DiGraph)
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert list(read.edges(data=True)) == list(graph.edges(data=True))
    assert read.graph["status"] == "normal"


def test_attributes_are_those_of_the_snapshot_and_the_verdict(snapshot: MeshSnapshot, document: bytes) -> None:
    graph = to_networkx(json.loads(document))
    assert set(graph) == {*snapshot.node_ids, GONE}
    assert graph.number_of_edges() == snapshot.num_edges
    first, second, silent, restarted, unscored = (graph.nodes[snapshot.node_ids[i]] for i in (0, 1, 2, 4, 5))
    assert first["request_rate"] == pytest.approx(float(snapshot.node_features[0, 0]), rel=1e-6)
    assert (second["suspicion"], "suspicion" in first) == (0.75, False)
    assert set(silent) == {"deviation", "vanished"}, "what is not known is left out"
    assert restarted["restarts"] == 2
    assert "deviation" not in unscored
    assert graph.nodes[GONE] == {"vanished": True}
    source, destination = (snapshot.node_ids[i] for i in snapshot.edge_index[:, 0])
    assert graph.edges[source, destination]["requests_per_second"] == pytest.approx(float(snapshot.edge_features[0, 0]))


def test_a_graph_that_would_take_too_much_memory_is_refused(document: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_formats, "MAX_ELEMENTS", 10)
    with pytest.raises(InvalidParameter, match="services and calls are too many for graphml: the limit is 10;"):
        write_graphml(document)
