"""New calls that the learned structure of the mesh does not expect."""

import numpy as np

from model.evidence.finders.finder import Finding
from model.evidence.kinds import EvidenceKind
from model.evidence.scored_mesh import ScoredMesh, young_calls
from model.scoring.surprises import unlikelihood


def find_unlikely_calls(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find young calls between established services that the learned structure finds unlikely. They count for both
    ends."""
    state, structure = mesh.state, mesh.scores.structure
    young = young_calls(state, mesh.observation) & np.isfinite(structure)
    if not young.any():
        return ()
    unlikely = unlikelihood(structure[young])
    worst = np.zeros(len(state.node_ids), np.float32)
    for ends in state.edge_index[:, young]:
        np.maximum.at(worst, ends, unlikely)
    return (Finding(EvidenceKind.STRUCTURE, worst),)
