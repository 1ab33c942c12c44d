"""New calls that the learned structure does not expect."""

from dataclasses import replace

import numpy as np
import pytest

from model.evidence.finders.structure import find_unlikely_calls
from model.evidence.kinds import EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from model.scoring.surprises import unlikelihood
from tests.model.evidence_cases import CART, IDLE, scored_mesh
from tests.model.model_cases import CALLS, settled_state, snapshot, watch


def mesh_with_call(logit: float) -> ScoredMesh:
    """Return a mesh with a new call from the cart to the idle service, which the structure gives this logit."""
    observation, state = watch([snapshot(30, calls=(*CALLS, (CART, IDLE)))], settled_state())
    mesh = scored_mesh(state, observation)
    structure = np.full(state.edge_index.shape[1], 5.0, np.float32)
    structure[-1] = logit
    return replace(mesh, scores=replace(mesh.scores, structure=structure))


def test_an_unlikely_new_call_counts_for_both_ends() -> None:
    (finding,) = find_unlikely_calls(mesh_with_call(-7.0))
    assert finding.kind is EvidenceKind.STRUCTURE
    assert finding.surprise[[CART, IDLE]] == pytest.approx(float(unlikelihood(np.array([-7.0], np.float32))[0]))
    assert np.flatnonzero(finding.surprise).tolist() == [CART, IDLE]


def test_a_call_between_parts_is_judged_elsewhere() -> None:
    assert find_unlikely_calls(mesh_with_call(np.nan)) == ()


def test_calls_that_are_known_are_not_judged() -> None:
    observation, state = watch([snapshot(30)], settled_state())
    mesh = scored_mesh(state, observation)
    unlikely = replace(mesh.scores, structure=np.full(len(CALLS), -9.0, np.float32))
    assert find_unlikely_calls(replace(mesh, scores=unlikely)) == ()
