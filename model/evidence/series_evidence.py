"""Evidence from the surprises of series: of the service, of calls into and out of it, and of its neighbours."""

import numpy as np

from model.evidence.explanations import SYMPTOMS
from model.evidence.kinds import CALLED_SYMPTOMS, EvidenceKind, K
from model.evidence.materiality import material
from model.evidence.scored_mesh import ScoredMesh
from model.features import CPU, CPU_PER_REQUEST, ERROR, OWN_TIME, P50, P99, RATE, Array
from model.ordering import either, largest_of_rows, worst_of_group
from model.state.mesh_state import topology_of

# Evidence about a caller whose calls are slow, or fail, because of it.
_LATE = (EvidenceKind.LATENCY, EvidenceKind.LATENCY_RAW, EvidenceKind.OWN_TIME)
_FAILED = (EvidenceKind.ERROR, EvidenceKind.ERROR_RAW)


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
    kinds = np.zeros((len(state.node_ids), K), np.float32)
    own = s.node[:, OWN_TIME]
    kinds[:, EvidenceKind.LATENCY] = either(s.node[:, P50] * counts[0], s.node[:, P99] * counts[1], own * counts[0])
    kinds[:, EvidenceKind.LATENCY_RAW] = either(s.node_raw[:, P50] * raw_counts[0], s.node_raw[:, P99] * raw_counts[1])
    kinds[:, EvidenceKind.ERROR] = s.node[:, ERROR] * counts[2]
    kinds[:, EvidenceKind.ERROR_RAW] = s.node_raw[:, ERROR] * raw_counts[2]
    kinds[:, EvidenceKind.OWN_TIME] = own
    # Memory stays high after an incident.
    kinds[:, EvidenceKind.RESOURCES] = np.maximum(s.node[:, CPU], s.node[:, CPU_PER_REQUEST])
    # Of the calls, only those that surprise by more than their number explains can be evidence.
    by_caller = mesh.causes.slow_by_caller, mesh.causes.failing_by_caller
    rows = np.flatnonzero((largest_of_rows(s.edge[:, SYMPTOMS]) > to[destination]) | by_caller[0] | by_caller[1])
    p50, p99, errors = material(edge.value[rows], s.edge_expected[rows], of_calls[rows], mesh.floors)
    latency, error = either(s.edge[rows, P50] * p50, s.edge[rows, P99] * p99), s.edge[rows, ERROR] * errors
    for calls, at_caller, into, out_of in (
        (latency, by_caller[0][rows], EvidenceKind.CALLS_IN_LATENCY, _LATE),
        (error, by_caller[1][rows], EvidenceKind.CALLS_IN_ERROR, _FAILED),
    ):
        kinds[:, into] = worst_of_group(calls * ~at_caller, destination[rows], to)
        for kind in out_of if at_caller.any() else ():
            np.maximum(kinds[:, kind], worst_of_group(calls * at_caller, source[rows], by), out=kinds[:, kind])
    more = (edge.now[:, RATE] > 0) & ~mesh.retried
    kinds[:, EvidenceKind.CALLS_OUT] = worst_of_group(s.edge[:, RATE] * more, source, by)
    symptom = largest_of_rows(kinds[:, CALLED_SYMPTOMS])
    kinds[:, EvidenceKind.CALLEES] = worst_of_group(symptom[destination], source, by)
    kinds[:, EvidenceKind.CALLERS] = worst_of_group(symptom[source], destination, to)
    return kinds
