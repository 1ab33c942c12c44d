"""Every accepted value gives a finite score: the smallest, the largest, and all between them."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.checkpoint import Checkpoint
from model.snapshot import EDGE_METRICS, LARGEST_VALUE, NODE_METRICS, RATIOS, MeshSnapshot
from serve_app.api.codec import encode_verdict
from serve_app.pipeline import Mesh, Options, advance
from tests.contract import check_finite

SERVICES = ("shop/web", "shop/cart", "shop/store", "bank/ledger")
CALLS = ((0, 1, 1, 2), (1, 2, 3, 2))
EXTREMES = [0.0, 1e-45, 1e-38, 1e-7, 0.05, 1.0, 1e7, 1e14, LARGEST_VALUE]
values = st.sampled_from(EXTREMES) | st.floats(0, LARGEST_VALUE, allow_subnormal=True)
SNAPSHOTS = 13


@st.composite
def tables(draw: st.DrawFn, rows: int, names: tuple[str, ...], required: int) -> np.ndarray:
    table = np.array(draw(st.lists(values, min_size=rows * len(names), max_size=rows * len(names))))
    table = table.reshape(rows, len(names))
    for column, name in enumerate(names):
        if name in RATIOS:
            table[:, column] = np.minimum(table[:, column], 1)
        if column >= required and draw(st.booleans()):
            table[draw(st.integers(0, rows - 1)), column] = np.nan
    return table


@st.composite
def recordings(draw: st.DrawFn) -> list[MeshSnapshot]:
    """Return a mesh at one level, and then at another. Both the normal level and the deviation may be extreme."""
    kinds = [
        (draw(tables(len(SERVICES), NODE_METRICS, 0)), draw(tables(len(CALLS[0]), EDGE_METRICS, 1))) for _ in range(3)
    ]
    order = draw(st.lists(st.integers(0, 2), min_size=SNAPSHOTS, max_size=SNAPSHOTS))
    at = draw(st.datetimes(datetime(2, 1, 1), datetime(2100, 1, 1))).replace(tzinfo=UTC)
    found = []
    for kind in order:
        at += timedelta(seconds=draw(st.sampled_from([1e-6, 1.0, 15.0, 86400.0, 3e9])))
        nodes, edges = kinds[kind]
        found.append(
            MeshSnapshot.create(
                node_ids=SERVICES,
                edge_index=CALLS,
                node_features=nodes,
                edge_features=edges,
                observed_at=at,
            )
        )
    return found


@pytest.mark.slow
@given(recordings())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_accepted_value_has_a_finite_verdict(checkpoint: Checkpoint, recording: list[MeshSnapshot]) -> None:
    mesh, options = Mesh(), Options()
    for i, snapshot in enumerate(recording):
        verdict, mesh = advance(checkpoint, mesh, snapshot, options, counted=i != 1)
        check_finite(verdict)
        for suspect in verdict.suspects:
            assert np.isfinite(suspect.score)
        document = encode_verdict(verdict).model_dump_json()
        json.loads(document, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", [1e37, float(np.finfo(np.float32).max)])
def test_stored_values_beyond_the_limit_are_scored(checkpoint: Checkpoint, value: float) -> None:
    """Older versions accepted such values."""
    mesh = Mesh()
    for minute in range(SNAPSHOTS):
        nodes = np.full((2, len(NODE_METRICS)), np.nan)
        nodes[:, 0] = value if minute == SNAPSHOTS - 1 else 100
        snapshot = MeshSnapshot.create(
            node_ids=SERVICES[:2],
            edge_index=[[0], [1]],
            node_features=nodes,
            edge_features=[[value, np.nan, value, np.nan]],
            observed_at=datetime(2026, 3, 1, 3, minute, tzinfo=UTC),
        )
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        check_finite(verdict)
        encode_verdict(verdict)
