"""New calls that the learned structure of the mesh does not expect."""

import numpy as np

from model.features import Array
from model.scoring.calls import young_calls
from model.scoring.finders.finder import Finding
from model.scoring.kinds import EvidenceKind
from model.scoring.scored_mesh import ScoredMesh


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
    return (Finding(EvidenceKind.STRUCTURE, worst, is_event=False),)


def unlikelihood(logits: Array) -> Array:
    """Return ``-log10 sigmoid(logit)``: how unexpected a call is."""
    decades: Array = np.log10(1 + np.exp(-logits.clip(-30, 30)))
    return decades
