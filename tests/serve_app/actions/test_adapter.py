"""The document of an adapter."""

from datetime import UTC, datetime

import numpy as np
import pytest

from model.state.load_adapter import LATENCIES, Adaptation, Adapter
from serve_app.actions import adapter as action
from serve_app.actions.adapter import encode_adaptation


def test_a_document_has_the_steepest_curves_and_the_number_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action, "MOST_CURVES", 2)
    slopes = np.array([0.1, 0.5, 0.5, 0.2], np.float32)
    curve = np.zeros((4, len(LATENCIES), 2), np.float32)
    curve[..., 0] = slopes[:, None]
    load = np.tile(np.array([0, -1, 1], np.float32), (4, 1))
    fitted = Adapter(("a/w", "a/z", "a/x", "a/y"), load, curve, datetime(2026, 1, 1, tzinfo=UTC), 60, 1.0, 0.5)
    document = encode_adaptation(Adaptation(fitted)).adapter
    assert document is not None
    assert document.services == 4
    assert [one.service for one in document.curves] == ["a/x", "a/z"]
    assert document.curves[0].slowdown == pytest.approx(np.exp(1.0))
