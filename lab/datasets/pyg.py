"""Recordings as a PyTorch Geometric data set, to train and compare your own models."""

import os
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data, Dataset

from model.snapshot import EDGE_METRICS, NODE_METRICS, BoolArray, FloatArray, IntArray, MeshSnapshot
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.reader import RecordingReader


class RecordingDataset(Dataset):  # type: ignore[misc]  # the library has no types
    """A recording's windows, in order of time: each snapshot's past as a temporal graph with labels.

    An item is a ``Data`` with the services and calls of its last snapshot:

    ====================== ====================== ================================================================
    ``x``                  float32 ``[N, W, 7]``  metrics of services, oldest first (``NodeMetric``; s, 1/s, ratios)
    ``x_observed``         bool ``[N, W, 7]``     whether each was measured; the value is 0 if not
    ``edge_index``         int64 ``[2, E]``       caller and callee
    ``edge_attr``          float32 ``[E, W, 4]``  metrics of calls (``EdgeMetric``)
    ``edge_attr_observed`` bool ``[E, W, 4]``     whether each was measured
    ``time``               float64 ``[1]``        of the last snapshot, s since 1970
    ``y``                  float32 ``[N]``        1 where an incident in progress has its labelled root cause
    ``incident``           bool ``[1]``           whether an incident is in progress
    ``node_ids``           list of str            names of the services
    ====================== ====================== ================================================================

    Neighbouring items overlap, so split a recording by time, not at random. All snapshots are in memory.

    >>> from lab.datasets.pyg import RecordingDataset
    >>> from torch_geometric.loader import DataLoader
    >>> dataset = RecordingDataset(path, window=4)
    >>> dataset[0].x.shape, dataset[0].edge_attr.shape
    (torch.Size([20, 4, 7]), torch.Size([40, 4, 4]))
    >>> [dataset[i].node_ids[int(dataset[i].y.argmax())] for i in range(len(dataset)) if dataset[i].incident][0]
    'shop/cart'
    >>> train, held_out = dataset[:12], dataset[12:]
    >>> batch = next(iter(DataLoader(train, batch_size=3)))
    >>> batch.x.shape, batch.y.shape, batch.num_graphs
    (torch.Size([60, 4, 7]), torch.Size([60]), 3)

    Args:
        path: folder of the recording.
        window: snapshots of an item, W.

    Raises:
        BadRecording: it is not a complete recording.
        ValueError: it has fewer snapshots than a window.
    """

    def __init__(self, path: str | os.PathLike[str], window: int = 8) -> None:
        super().__init__()
        reader = RecordingReader(path)
        self.window = window
        self.snapshots: Sequence[MeshSnapshot] = list(reader.snapshots())
        self.incidents: Sequence[LabelledIncident] = reader.incidents()
        if not 1 <= window <= len(self.snapshots):
            raise ValueError(
                f"window: expected 1 to the {len(self.snapshots)} snapshots of recording {path}, got {window}"
            )

    def len(self) -> int:
        return len(self.snapshots) - self.window + 1

    def get(self, idx: int) -> Data:
        """Return the window that begins at a snapshot."""
        past = self.snapshots[idx : idx + self.window]
        last = past[-1]
        nodes = _series(last.node_ids, [(s.node_ids, s.node_features, s.node_observed) for s in past], NODE_METRICS)
        edges = _series(calls_of(last), [(calls_of(s), s.edge_features, s.edge_observed) for s in past], EDGE_METRICS)
        active = [incident for incident in self.incidents if incident.start <= last.observed_at < incident.end]
        culprit = [any(is_root_cause(incident, name) for incident in active) for name in last.node_ids]
        return Data(
            x=torch.from_numpy(nodes[0]),
            x_observed=torch.from_numpy(nodes[1]),
            edge_index=torch.from_numpy(np.array(last.edge_index)),
            edge_attr=torch.from_numpy(edges[0]),
            edge_attr_observed=torch.from_numpy(edges[1]),
            time=torch.tensor([last.observed_at.timestamp()], dtype=torch.float64),
            y=torch.tensor(culprit, dtype=torch.float32),
            incident=torch.tensor([bool(active)]),
            node_ids=list(last.node_ids),
        )


def calls_of(snapshot: MeshSnapshot) -> list[tuple[str, str]]:
    """Return a snapshot's calls as names of caller and callee."""
    return [(snapshot.node_ids[a], snapshot.node_ids[b]) for a, b in snapshot.edge_index.T.tolist()]


def is_root_cause(incident: LabelledIncident, node_id: str) -> bool:
    """Return whether a service is the labelled root cause, which recordings often name without its namespace."""
    namespace, _, name = node_id.partition("/")
    return incident.root_cause_service in (name, node_id) and incident.details.get(
        "root_cause_namespace", namespace
    ) in (namespace, None)


def _series(
    keys: Sequence[object],
    past: Sequence[tuple[Sequence[object], FloatArray, BoolArray]],
    metrics: Sequence[str],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return values and masks ``[K, W, M]`` of the rows with these keys in each snapshot; missing rows are masked."""
    shape = (len(keys), len(past), len(metrics))
    values, mask = np.zeros(shape, np.float32), np.zeros(shape, np.bool_)
    for step, (names, features, masks) in enumerate(past):
        row_of = {name: row for row, name in enumerate(names)}
        rows: IntArray = np.array([row_of.get(key, -1) for key in keys], np.int64)
        here = rows >= 0
        mask[here, step] = masks[rows[here]]
        values[here, step] = np.where(masks[rows[here]], features[rows[here]], 0)
    return values, mask
