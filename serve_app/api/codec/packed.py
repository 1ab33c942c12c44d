"""A snapshot's packed form, for stores and transfers between deployments: safetensors, which holds arrays and strings,
but no code."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from model.snapshot import MeshSnapshot, PlannedChange, ServicePolicy, Signal, SignalKind
from serve_app.api.codec.documents import policy
from serve_app.errors import CorruptState

PACKED_FORMAT = "tagae.snapshot/1"


def pack_snapshot(snapshot: MeshSnapshot) -> bytes:
    """Pack a snapshot as safetensors, without loss."""
    arrays = {
        "edge_index": snapshot.edge_index.astype(np.int32),
        "node_features": np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan)),
        "edge_features": np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan)),
    }
    # safetensors writes memory in its order, even if that is transposed
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    changes = [[change.kind, change.service, change.reason] for change in snapshot.changes]
    metadata = {
        "format": PACKED_FORMAT,
        "observed_at": snapshot.observed_at.isoformat(),
        "node_ids": json.dumps(snapshot.node_ids, ensure_ascii=False),
        "changes": json.dumps(changes, ensure_ascii=False),
    }
    if snapshot.policies:
        rows = []
        for policy in snapshot.policies:
            owner = [policy.owner.team, policy.owner.contact] if policy.owner else []
            rows.append([policy.service, policy.sensitivity, policy.mute, *owner])
        metadata["policies"] = json.dumps(rows, ensure_ascii=False)
    if snapshot.signals:
        metadata["signals"] = json.dumps([kind.value for kind in SignalKind])
        row, kinds = {name: i for i, name in enumerate(snapshot.node_ids)}, list(SignalKind)
        places = [(row[signal.service], kinds.index(signal.kind)) for signal in snapshot.signals]
        arrays["signal_places"] = np.array(places, np.int32)
        arrays["signal_values"] = np.array([signal.value for signal in snapshot.signals], np.float32)
    return bytes(safetensors.numpy.save(arrays, metadata))


def unpack_snapshot(packed: bytes, last: MeshSnapshot | None = None) -> MeshSnapshot:
    """Read what :func:`pack_snapshot` wrote; share services and calls with ``last`` if it has the same ones.

    Raises:
        CorruptState: the bytes are something else.
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
        policies = _read_policies(metadata.get("policies", "[]"))
        signals = _signals(ids, arrays, metadata) if "signals" in metadata else []
        if last is not None and ids == last.node_ids:
            if np.array_equal(index, last.edge_index):
                return last.with_values(at, nodes, edges, changes, policies, signals)
            ids = last.node_ids
        return MeshSnapshot.create(
            node_ids=ids,
            edge_index=index,
            node_features=nodes,
            edge_features=edges,
            observed_at=at,
            changes=changes,
            policies=policies,
            signals=signals,
        )
    except (SafetensorError, ValueError, LookupError, TypeError) as error:
        raise CorruptState(
            f"packed snapshot of {len(packed)} bytes: expected {PACKED_FORMAT}, got {error!r}; delete the mesh; "
            "new snapshots rebuild its state"
        ) from error


@lru_cache(32)
def _read_policies(text: str) -> tuple[ServicePolicy, ...]:
    """Read policies. They are cached, since a mesh with thousands of owners repeats them for hours."""
    return tuple(policy(*row) for row in json.loads(text))


def _signals(ids: Sequence[str], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> list[Signal]:
    """The signals; ``metadata`` has the kinds that the writer knew, in the order of their numbers."""
    kinds = [SignalKind(kind) for kind in json.loads(metadata["signals"])]
    places = zip(arrays["signal_places"].tolist(), arrays["signal_values"].tolist(), strict=True)
    return [Signal(kinds[kind], ids[row], value) for (row, kind), value in places]
