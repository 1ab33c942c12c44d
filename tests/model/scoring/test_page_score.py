"""The page score weighs the symptoms."""

import numpy as np

from model.scoring.kinds import EvidenceKind
from model.scoring.page_score import page_score


def test_resources_count_less_and_load_raises_no_alert() -> None:
    kinds = np.zeros((3, len(EvidenceKind)), np.float32)
    for row, kind in enumerate((EvidenceKind.RESOURCES, EvidenceKind.LATENCY, EvidenceKind.RISE)):
        kinds[row, kind] = 6.0
    np.testing.assert_allclose(page_score(kinds), [3.6, 6.0, 0.0], rtol=1e-6)
