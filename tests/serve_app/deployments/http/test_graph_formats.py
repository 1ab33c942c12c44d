"""The forms of the graph of a mesh."""

from collections.abc import Iterator
from io import BytesIO

import networkx as nx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from tests.serve_app.running import Service, problem, push, record_simulation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]
PATH = "/v1/meshes/drawn/graph"


@pytest.fixture(scope="module", autouse=True)
def mesh(service: Service) -> Iterator[None]:
    for snapshot in record_simulation(MeshSpec(services=30, seed=3), 3):
        push(service, "drawn", snapshot)
    yield
    service.http.delete("/v1/meshes/drawn")


def test_every_form_has_the_same_services_and_calls(service: Service) -> None:
    document = service.http.get(PATH).json()
    names = {f"{one['namespace']}/{one['name']}" for one in document["services"]}
    calls = {(one["source"], one["destination"]) for one in document["calls"]}
    graphml = service.http.get(PATH, params={"format": "graphml"})
    assert graphml.headers["content-type"] == "application/xml"
    graph = nx.read_graphml(BytesIO(graphml.content))
    assert (set(graph), set(graph.edges)) == (names, calls)


def test_the_surroundings_of_a_service_are_a_graph_too(service: Service) -> None:
    source = service.http.get(PATH).json()["calls"][0]["source"]
    near = service.http.get(PATH, params={"format": "graphml", "service": source})
    graph = nx.read_graphml(BytesIO(near.content))
    assert graph.number_of_edges() > 0
    assert all(source in call for call in graph.edges)


def test_an_unknown_form_is_refused(service: Service) -> None:
    refused = problem(service.http.get(PATH, params={"format": "dot"}), 422, "invalid-parameter")
    assert "'json' or 'graphml'" in refused["detail"]
