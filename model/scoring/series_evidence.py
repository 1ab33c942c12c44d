"""Evidence from the surprises of series: of the service, of calls into and out of it, and of its neighbours."""

import numpy as np

from model.features import CONNECTIONS, CPU, CPU_PER_REQUEST, ERROR, OWN_TIME, P50, P99, RATE, Array
from model.ordering import largest_of_rows
from model.scoring.explanations import SYMPTOMS
from model.scoring.kinds import CALLED_SYMPTOMS, EvidenceKind, K
from model.scoring.materiality import material
from model.scoring.scored_mesh import ScoredMesh
from model.scoring.strongest import either, worst_of_group
from model.state.mesh_state import topology_of


def series_evidence(mesh: ScoredMesh) -> Array:
    """Return the evidence ``[N, K]`` by kind; 0 for the kinds that only finders see."""
    state, s = mesh.state, mesh.surprise
    node, edge = mesh.observation.node, mesh.observation.edge
    source, destination = state.edge_index
    topology = topology_of(state)
    by, to = topology.chances_as_caller, topology.chances_as_callee
    of_services, of_calls = mesh.repeats
    counts, raw_counts = (
        material(node.value, expected, of_services, mesh.floors) for expected in (s.node_expected, node.expected)
    )
    rising = node.now[:, RATE] > 0
    kinds = np.zeros((len(state.node_ids), K), np.float32)
    own = s.node[:, OWN_TIME]
    kinds[:, EvidenceKind.LATENCY] = either(s.node[:, P50] * counts[0], s.node[:, P99] * counts[1], own * counts[0])
    kinds[:, EvidenceKind.LATENCY_RAW] = either(s.node_raw[:, P50] * raw_counts[0], s.node_raw[:, P99] * raw_counts[1])
    kinds[:, EvidenceKind.ERROR] = s.node[:, ERROR] * counts[2]
    kinds[:, EvidenceKind.ERROR_RAW] = s.node_raw[:, ERROR] * raw_counts[2]
    kinds[:, EvidenceKind.OWN_TIME] = own
    kinds[:, EvidenceKind.RISE] = s.node[:, RATE] * rising
    kinds[:, EvidenceKind.FALL] = s.node_raw[:, RATE] * ~rising
    # Memory stays high after an incident.
    kinds[:, EvidenceKind.RESOURCES] = np.maximum(s.node[:, CPU], s.node[:, CPU_PER_REQUEST])
    kinds[:, EvidenceKind.CONNECTIONS] = s.node[:, CONNECTIONS]
    # Of the calls, only those that surprise by more than their number explains can be evidence.
    rows = np.flatnonzero((largest_of_rows(s.edge[:, SYMPTOMS]) > to[destination]) | mesh.slow_by_caller)
    surprise, by_caller, callee = s.edge[rows], mesh.slow_by_caller[rows], destination[rows]
    p50, p99, errors = material(edge.value[rows], s.edge_expected[rows], of_calls[rows], mesh.floors)
    latency = either(surprise[:, P50] * p50, surprise[:, P99] * p99)
    kinds[:, EvidenceKind.CALLS_IN_LATENCY] = worst_of_group(latency * ~by_caller, callee, to)
    kinds[:, EvidenceKind.CALLS_IN_ERROR] = worst_of_group(surprise[:, ERROR] * errors, callee, to)
    waits = worst_of_group(latency * by_caller, source[rows], by)
    for kind in (EvidenceKind.LATENCY, EvidenceKind.LATENCY_RAW, EvidenceKind.OWN_TIME):
        np.maximum(kinds[:, kind], waits, out=kinds[:, kind])
    kinds[:, EvidenceKind.CALLS_OUT] = worst_of_group(s.edge[:, RATE] * (edge.now[:, RATE] > 0), source, by)
    symptom = largest_of_rows(kinds[:, CALLED_SYMPTOMS])
    from_afar = mesh.remote[destination]
    of_callee = symptom[destination]
    kinds[:, EvidenceKind.CALLEES] = worst_of_group(of_callee * ~from_afar, source, by)
    kinds[:, EvidenceKind.REMOTES] = worst_of_group(of_callee * from_afar, source, by)
    kinds[:, EvidenceKind.CALLERS] = worst_of_group(symptom[source], destination, to)
    return kinds
