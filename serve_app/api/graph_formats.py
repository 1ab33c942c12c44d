"""The graph of a mesh for other programs: as networkx, or in GraphML.

Unknown numbers are omitted, as GraphML has no null. Units are as in the JSON form.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from typing import TYPE_CHECKING, Any

from serve_app.errors import InvalidParameter

if TYPE_CHECKING:
    import networkx as nx

GRAPHML = "application/xml"
MAX_ELEMENTS = 25_000  # services and calls; GraphML of so many takes 90 MB and 2 s of one core


class GraphFormat(StrEnum):
    """Forms of a graph."""

    JSON = "json"
    GRAPHML = "graphml"


def write_graphml(graph: bytes) -> bytes:
    """A ``GraphDocument`` in GraphML.

    Raises:
        InvalidParameter: it has too many services and calls for GraphML, which is not written in pieces.
    """
    import networkx as nx

    document = json.loads(graph)
    count = len(document["services"]) + len(document["calls"])
    if count > MAX_ELEMENTS:
        raise InvalidParameter(
            f"format: {count} services and calls are too many for graphml: the limit is {MAX_ELEMENTS}; ask for a "
            "service or for incidents, or use json",
            pointer="/format",
        )
    text = BytesIO()
    nx.write_graphml_xml(to_networkx(document), text, prettyprint=False)
    return text.getvalue()


def to_networkx(document: Mapping[str, Any]) -> "nx.DiGraph":
    """A directed graph of a ``GraphDocument``: services by id, with metrics, signals and results as attributes."""
    import networkx as nx

    observed_at = datetime.fromisoformat(document["observed_at"]).isoformat()
    graph = nx.DiGraph(observed_at=observed_at, status=document["status"])
    for service in document["services"]:
        metrics = dict(service.get("metrics") or {}) | dict(service.get("signals") or {})
        results = {name: service[name] for name in ("deviation", "suspicion", "incident")}
        graph.add_node(
            f"{service['namespace']}/{service['name']}",
            **_present_attributes({**metrics, **results, "vanished": False}),
        )
    graph.add_nodes_from(document["vanished"], vanished=True)
    for call in document["calls"]:
        ends = {"source", "destination"}
        attributes = {name: value for name, value in call.items() if name not in ends}
        graph.add_edge(call["source"], call["destination"], **_present_attributes(attributes))
    return graph


def _present_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes that have a value. Numbers are floats, so that an attribute has one type in GraphML."""
    return {
        name: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in attributes.items()
        if value is not None
    }
