"""Traffic that moved from a usual callee to another established service."""

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind
from model.evidence.release_versions import ESTABLISHED, MOST_OF_TIME, moves_between_versions
from model.evidence.scored_mesh import ScoredMesh, is_reported
from model.features import RATE, rate_of
from model.ordering import worst_of_group
from model.state.filters import SEEN
from model.state.mesh_state import topology_of

MIN_REQUESTS = 50  # requests on new calls that count in full
MIN_MOVED = 0.1  # of a call's usual requests, from which it counts as rerouted
REROUTE_COUNTED = 4  # snapshots whose requests count


def find_rerouted(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find traffic that an established service moves from a usual callee to another established service. It counts for
    the caller and both destinations.

    There is no past to compare with. The surprise is ``EVENT_SURPRISE`` if a tenth of the caller's traffic or a third
    of a usual call moves, and that call falls beyond its usual variation. Traffic can take minutes to move, and small
    calls take minutes to make enough requests. So a call counts as new for ``REROUTE_YOUNG`` snapshots.

    Canaries and replacements get their traffic in steps, each caller at its own time. So a destination is established
    after ``ESTABLISHED`` snapshots, or if it has been there for most of the time that the mesh is known.
    """
    state, observation, s = mesh.state, mesh.observation, mesh.surprise
    edge, (source, destination) = observation.edge, state.edge_index
    is_established = state.node_filters[SEEN, :, RATE] >= min(ESTABLISHED, MOST_OF_TIME * state.learned)
    young = mesh.new_calls & is_established[destination]
    young &= ~moves_between_versions(state, young)
    if not young.any():
        return ()
    rerouting = np.zeros(len(state.node_ids), np.float32)
    now = rate_of(edge.value[:, RATE]) * observation.edge_present
    usual = rate_of(edge.expected[:, RATE]) * (is_reported(observation) & ~young)
    missing = np.maximum(usual - now, 0) * ~young
    count = len(rerouting)
    gain, total = (np.bincount(source, v, count) for v in (now * young, now))
    moved_share = np.minimum(gain[source], missing) / np.maximum(usual, 1e-6)
    fallen = moved_share >= MIN_MOVED
    loss = np.bincount(source, missing * fallen, count)
    share = np.minimum(gain, loss) / np.maximum(total, 1e-6)
    of_call = np.zeros(count)
    np.maximum.at(of_call, source, moved_share * fallen * (s.edge_rate_raw >= 1))
    fall = np.minimum(worst_of_group(s.edge_rate_raw * fallen, source, topology_of(state).chances_as_caller), 1)
    snapshots = np.minimum(state.edge_filters[SEEN, :, RATE], REROUTE_COUNTED)
    requests = np.bincount(source, now * young * snapshots, count) * state.interval_seconds
    weight = np.clip(requests / MIN_REQUESTS, 0, 1)
    much = np.clip(np.maximum((share - 0.02) / 0.08, (of_call - 0.1) / 0.2), 0, 1)
    strength = (EVENT_SURPRISE * fall * weight * much).astype(np.float32)
    for ends, calls in ((source, fallen), (destination, fallen), (destination, young)):
        np.maximum.at(rerouting, ends[calls], strength[source[calls]])
    return (Finding(EvidenceKind.VANISHED, rerouting),)
