"""Recordings as a data set of PyTorch Geometric."""

import doctest
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric", reason="the pyg extra is not installed")

from lab.datasets import pyg
from lab.datasets.pyg import RecordingDataset, is_root_cause
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader
from tests.builders import START, write_recording


def with_name(snapshot: MeshSnapshot, name: str) -> MeshSnapshot:
    return replace(snapshot, node_ids=(name, *snapshot.node_ids[1:]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording of 20 snapshots with an incident of ``shop/cart`` in the last five."""
    simulator = Simulator(MeshSpec(services=20, calls_per_service=2, seed=3), snapshots=20)
    snapshots = [with_name(snapshot, "shop/cart") for snapshot in simulator.snapshots()]
    start, end = snapshots[15].observed_at, snapshots[-1].observed_at + timedelta(seconds=15)
    return write_recording(tmp_path / "shop", snapshots, LabelledIncident(start, end, "latency", "cart"))


def test_the_example_of_the_docstring_works(path: Path) -> None:
    results = doctest.testmod(pyg, globs={"path": path})
    assert results.attempted >= 6
    assert results.failed == 0


def test_an_item_is_the_past_of_its_last_snapshot(path: Path) -> None:
    snapshots, dataset = list(RecordingReader(path).snapshots()), RecordingDataset(path, window=3)
    assert len(dataset) == 18
    item, last = dataset[4], snapshots[6]
    assert item.node_ids == list(last.node_ids)
    assert item.time.item() == last.observed_at.timestamp()
    for step, snapshot in enumerate(snapshots[4:7]):
        row = {name: i for i, name in enumerate(snapshot.node_ids)}
        rows = [row[name] for name in last.node_ids]
        np.testing.assert_array_equal(item.x[:, step].numpy(), snapshot.node_features[rows])
        np.testing.assert_array_equal(item.x_observed[:, step].numpy(), snapshot.node_observed[rows])
    np.testing.assert_array_equal(item.edge_attr[:, -1].numpy(), last.edge_features)
    np.testing.assert_array_equal(item.edge_index.numpy(), last.edge_index)


def test_only_snapshots_of_an_incident_are_labelled(path: Path) -> None:
    dataset = RecordingDataset(path, window=1)
    assert [bool(item.incident) for item in dataset] == [False] * 15 + [True] * 5
    assert [int(item.y.sum()) for item in dataset] == [0] * 15 + [1] * 5


def test_a_service_that_was_not_there_is_masked(tmp_path: Path) -> None:
    snapshots = list(Simulator(MeshSpec(services=20, calls_per_service=2, seed=3), snapshots=2).snapshots())
    item = RecordingDataset(write_recording(tmp_path, [snapshots[0], with_name(snapshots[1], "shop/new")]), window=2)[0]
    row = item.node_ids.index("shop/new")
    assert not item.x_observed[row, 0].any()
    assert item.x_observed[row, 1].any()
    assert (item.x[row, 0] == 0).all()
    source, target = item.edge_index
    of_new = (source == row) | (target == row)
    assert not item.edge_attr_observed[of_new, 0].any()
    assert item.edge_attr_observed[~of_new, 0].any()
    assert item.x.dtype == item.edge_attr.dtype == torch.float32


def test_a_window_that_does_not_fit_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="expected 1 to the 20 snapshots"):
        RecordingDataset(path, window=21)


def test_a_root_cause_is_found_with_and_without_its_namespace() -> None:
    def incident(service: str, **details: str) -> LabelledIncident:
        return LabelledIncident(START, START, "latency", service, details=details)

    assert is_root_cause(incident("cart"), "shop/cart")
    assert is_root_cause(incident("shop/cart"), "shop/cart")
    assert is_root_cause(incident("cart", root_cause_namespace="shop"), "shop/cart")
    assert not is_root_cause(incident("cart", root_cause_namespace="bank"), "shop/cart")
    assert not is_root_cause(incident("web"), "shop/cart")
