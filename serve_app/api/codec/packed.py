"""The packed form of a snapshot, for stores and for transfers between deployments: safetensors, which holds arrays and
strings, and no code."""

import json
from datetime import datetime

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from model.snapshot import MeshSnapshot, PlannedChange
from serve_app.api.codec.validation import policy
from serve_app.errors import CorruptState

PACKED_FORMAT = "tagae.snapshot/1"


def pack_snapshot(snapshot: MeshSnapshot) -> bytes:
    """Pack a snapshot as safetensors, without loss."""
    arrays = {
        "edge_index": snapshot.edge_index.astype(np.int32),
        "node_features": np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan)),
        "edge_features": np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan)),
    }
    # safetensors writes the memory in its order, even if that is transposed
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    changes = [[change.kind, change.service, change.reason] for change in snapshot.changes]
    metadata = {
        "format": PACKED_FORMAT,
        "observed_at": snapshot.observed_at.isoformat(),
        "node_ids": json.dumps(snapshot.node_ids, ensure_ascii=False),
        "changes": json.dumps(changes, ensure_ascii=False),
    }
    if snapshot.policies:
        policies = [[one.service, one.sensitivity, one.mute] for one in snapshot.policies]
        metadata["policies"] = json.dumps(policies, ensure_ascii=False)
    return bytes(safetensors.numpy.save(arrays, metadata))


def unpack_snapshot(packed: bytes, last: MeshSnapshot | None = None) -> MeshSnapshot:
    """Read what :func:`pack_snapshot` wrote.

    Args:
        packed: the bytes.
        last: a snapshot of the same mesh. If it has the same services and calls, they are shared.

    Raises:
        CorruptState: other bytes.
    """
    try:
        arrays = safetensors.numpy.load(packed)
        header = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])  # safetensors: length, JSON, data
        metadata = header.get("__metadata__", {})
        if metadata.get("format") != PACKED_FORMAT:
            raise ValueError(f"format {metadata.get('format')!r}")
        ids, index = tuple(json.loads(metadata["node_ids"])), arrays["edge_index"]
        nodes, edges = arrays["node_features"], arrays["edge_features"]
        at = datetime.fromisoformat(metadata["observed_at"])
        changes = [PlannedChange(*change) for change in json.loads(metadata["changes"])]
        policies = [policy(*one) for one in json.loads(metadata.get("policies", "[]"))]
        if last is not None and ids == last.node_ids:
            if np.array_equal(index, last.edge_index):
                return last.with_values(at, nodes, edges, changes, policies)
            ids = last.node_ids
        return MeshSnapshot.create(
            node_ids=ids,
            edge_index=index,
            node_features=nodes,
            edge_features=edges,
            observed_at=at,
            changes=changes,
            policies=policies,
        )
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CorruptState(
            f"packed snapshot of {len(packed)} bytes: expected {PACKED_FORMAT}, came {error!r}; delete the mesh; "
            "new snapshots rebuild its state"
        ) from error
