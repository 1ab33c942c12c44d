"""A finder is one file, one line in a list, and one test."""

from pathlib import Path

import numpy as np
import pytest

from model.evidence import gather
from model.evidence.finders import FINDERS, finder
from model.evidence.finders.finder import Finding
from model.evidence.kinds import EvidenceKind
from model.evidence.scored_mesh import ScoredMesh
from tests.model.evidence_cases import IDLE, evidence_of, score_of
from tests.model.model_cases import SERVICES, snapshot

ROOT = Path(__file__).parents[4]
FOLDER = "model/evidence/finders"
FILES = {path.stem for path in (ROOT / FOLDER).glob("*.py")} - {"__init__", finder.__name__.split(".")[-1]}


def find_idle(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find the idle service, whatever it does."""
    surprise = np.zeros(len(mesh.state.node_ids), np.float32)
    surprise[IDLE] = 7.0
    return (Finding(EvidenceKind.ERROR, surprise),)


def test_each_file_has_its_line_in_the_list_and_its_test() -> None:
    assert sorted(find.__module__ for find in FINDERS) == sorted(f"model.evidence.finders.{name}" for name in FILES)
    assert {name for name in FILES if not (Path(__file__).parent / f"test_{name}.py").exists()} == set()


def test_a_new_finder_in_the_list_is_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = evidence_of(snapshot(30))
    monkeypatch.setattr(gather, "FINDERS", (*FINDERS, find_idle))
    found = evidence_of(snapshot(30))
    assert found.names[0] == SERVICES[IDLE]
    assert score_of(found, IDLE, "error") == 7.0
    assert usual.page.max() < 2
