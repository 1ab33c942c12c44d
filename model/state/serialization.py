"""A mesh's O(1) state as bytes: safetensors, with the feature schema in its header. The ring is stored separately.

A step is what a state has beyond the last full state and the snapshots since: the memory of incidents, with the scores
since that state. It is small.

The names of arrays and fields are a storage format. They stay when an attribute gets another name.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from model.drift.serialization import drift_arrays, drift_document, read_drift
from model.errors import IncompatibleWeights
from model.features import SCHEMA, FeatureSchema
from model.incidents.memory import IncidentMemory
from model.incidents.reconstruction_history import ReconstructionHistory
from model.snapshot import MeshSnapshot
from model.state.few_requests import Counts
from model.state.mesh_state import MeshState
from model.state.traffic import PROFILES, ROWS, EntryTraffic

T = TypeVar("T")

ARRAYS = (
    "edge_index", "node_filters", "edge_filters", "node_impact", "edge_impact", "node_absent", "edge_absent",
    "attended_callers", "attended_callees", "node_unmeasured", "node_history",
)  # fmt: skip
TIMES = ("observed_at", "learned_at")
HEADER_SIZE_BYTES = 8  # of the header's length, before the header
DTYPES = {
    np.dtype(of): name
    for of, name in (
        (np.float64, "F64"), (np.int64, "I64"), (np.float32, "F32"), (np.int32, "I32"), (np.float16, "F16"),
        (np.uint32, "U32"), (np.uint16, "U16"), (np.uint8, "U8"), (np.bool_, "BOOL"),
    )
}  # fmt: skip
STORED = (  # fields of the memory. Others are arrays, or are true of one snapshot only
    "threshold", "tracks", "above_notice", "above_traffic", "open", "ended", "changes", "past", "feedback", "mutes",
    "schedule",
)  # fmt: skip
PLAIN = ("node_ids", "sequence", "learned", "interval_seconds")


def pack_state(state: MeshState) -> bytes:
    """Serialize the state without its ring of snapshots."""
    document = {key: getattr(state, key) for key in PLAIN}
    document |= {key: value and value.isoformat() for key in TIMES for value in [getattr(state, key)]}
    document["memory"] = _memory_document(state.memory)
    document["schema"] = SCHEMA.to_json()
    tensors = {key: np.ascontiguousarray(getattr(state, key)) for key in ARRAYS}
    tensors |= _counts_arrays(state) | _memory_arrays(state.memory) | _traffic_arrays(state.traffic)
    document["traffic"] = {"names": state.traffic.names, "slot": state.traffic.slot}
    document["drift"] = drift_document(state.drift)
    tensors |= drift_arrays(state.drift)
    return _join_arrays(tensors | {"document": _json_array(document)})


def pack_step(memory: IncidentMemory, snapshots: int) -> bytes:
    """Serialize a step.

    Args:
        memory: after the snapshot. Its scores can be thousands, so a step has only those that the full state lacks.
        snapshots: number since the full state, at least 1; each adds one score at most.
    """
    whole = memory.reconstruction
    recent = replace(
        memory,
        scores=memory.scores[-snapshots:],
        times=memory.times[-snapshots:],
        alerted_scores=memory.alerted_scores[-snapshots:],
        reconstruction=replace(whole, past=whole.past[:, -snapshots:]),
    )
    document, tensors = _memory_document(recent), _memory_arrays(recent)
    document["score_counts"] = [len(memory.scores), len(memory.alerted_scores)]
    document["reconstruction"]["count"] = whole.snapshots
    return _join_arrays(tensors | {"document": _json_array(document)})


def unpack_step(data: bytes, full: IncidentMemory) -> IncidentMemory:
    """Read the bytes of :func:`pack_step`.

    Args:
        data: of the step.
        full: the memory of the full state before it.

    Raises:
        IncompatibleWeights: the bytes are not a step.
    """
    with _refusing_other_bytes("a step of a state"):
        tensors = load(data)
        document = json.loads(tensors["document"].tobytes())
        memory = _add_earlier_scores(_memory(document, tensors), full, *document["score_counts"])
        whole = _add_earlier_losses(memory.reconstruction, full.reconstruction, document["reconstruction"]["count"])
        return replace(memory, reconstruction=whole)


def _add_earlier_scores(memory: IncidentMemory, full: IncidentMemory, quiet: int, alerted: int) -> IncidentMemory:
    """Return the memory with this many scores without and with an alert, the earliest of them from the full state."""
    since = bisect_left(full.times, memory.times[0]) if memory.times else 0
    moments = [at for at, _ in full.alerted_scores]
    alerted_since = bisect_left(moments, memory.alerted_scores[0][0]) if memory.alerted_scores else 0
    return replace(
        memory,
        scores=_last((*full.scores[:since], *memory.scores), quiet),
        times=_last((*full.times[:since], *memory.times), quiet),
        alerted_scores=_last((*full.alerted_scores[:alerted_since], *memory.alerted_scores), alerted),
    )


def _add_earlier_losses(whole: ReconstructionHistory, full: ReconstructionHistory, count: int) -> ReconstructionHistory:
    """Return the history with so many snapshots, the earliest of them from the full state."""
    since = int(np.searchsorted(full.past[0], whole.past[0, 0])) if whole.snapshots else 0
    past = np.concatenate([full.past[:, :since], whole.past], axis=1)
    return replace(whole, past=past[:, past.shape[1] - count :])


def _last(values: tuple[T, ...], count: int) -> tuple[T, ...]:
    return values[len(values) - count :]


def unpack_state(data: bytes, window: Iterable[MeshSnapshot] = ()) -> MeshState:
    """Read the bytes of :func:`pack_state` and add the ring.

    Args:
        data: of the state.
        window: the ring.

    Raises:
        IncompatibleWeights: the bytes are not a state, or have another feature schema.
    """
    with _refusing_other_bytes(f"{len(ARRAYS)} arrays and a document"):
        tensors = load(data)
        document = json.loads(tensors["document"].tobytes())
        SCHEMA.require(FeatureSchema.from_json(document["schema"]), "saved state")
        fields = _tables(tensors) | {key: document[key] for key in PLAIN} | {"node_ids": tuple(document["node_ids"])}
        fields |= {key: document[key] and datetime.fromisoformat(document[key]) for key in TIMES}
        fields["memory"] = _memory(document["memory"], tensors)
        fields["traffic"] = _traffic(document["traffic"], tensors)
        fields["drift"] = read_drift(document["drift"], tensors)
        return MeshState(**fields, window=tuple(window))


def _tables(tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the arrays of services and calls."""
    tables: dict[str, Any] = {key: tensors[key] for key in ARRAYS}
    for table in ("node", "edge"):
        tables[f"{table}_counts"] = Counts(tuple(tensors[f"{table}_recent"]), tensors[f"{table}_usual"])
    return tables


def _counts_arrays(state: MeshState) -> dict[str, NDArray[Any]]:
    both = {"node": state.node_counts, "edge": state.edge_counts}
    recent = {f"{table}_recent": np.stack(of.recent) for table, of in both.items()}
    return recent | {f"{table}_usual": of.usual for table, of in both.items()}


def _join_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return safetensors bytes. The library would copy each array twice, and a large mesh has hundreds of MB of them.

    Source: https://huggingface.co/docs/safetensors (Format).
    """
    header: dict[str, Any] = {}
    pieces: list[memoryview] = []
    size = 0
    # Arrays of large items first: then each one is aligned.
    for name, array in sorted(arrays.items(), key=lambda one: (-one[1].itemsize, one[0])):
        pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        header[name] = {
            "dtype": DTYPES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [size, size + array.nbytes],
        }
        size += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % HEADER_SIZE_BYTES)  # so that the arrays are aligned, too
    return b"".join((len(text).to_bytes(HEADER_SIZE_BYTES, "little"), text, *pieces))


@contextmanager
def _refusing_other_bytes(expected: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, IncompatibleWeights):
            raise
        raise IncompatibleWeights(
            f"saved state: expected {expected}, got something else ({error}); delete the mesh and let it warm up again"
        ) from error


def _traffic_arrays(traffic: EntryTraffic) -> dict[str, NDArray[Any]]:
    return {f"traffic_{key}": np.ascontiguousarray(getattr(traffic, key)) for key in (*ROWS, *PROFILES)}


def _traffic(document: dict[str, Any], tensors: dict[str, Any]) -> EntryTraffic:
    arrays = {key: tensors[f"traffic_{key}"] for key in (*ROWS, *PROFILES)}
    return EntryTraffic(names=tuple(document["names"]), slot=document["slot"], **arrays)


def _json_array(document: dict[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(document, default=datetime.isoformat).encode(), np.uint8)


def _memory_arrays(memory: IncidentMemory) -> dict[str, NDArray[Any]]:
    whole = memory.reconstruction
    return {
        "scores": np.array(memory.scores, np.float64),
        "times": np.array(memory.times, np.float64),
        "withheld": np.array(memory.alerted_scores, np.float64).reshape(-1, 2),
        "reconstruction": whole.past,
        "embedding": whole.moments,
    }


def _memory_document(memory: IncidentMemory) -> dict[str, Any]:
    """Return what is not an array."""
    stored: dict[str, Any] = msgspec.to_builtins({key: getattr(memory, key) for key in STORED}, enc_hook=float)
    whole = {key: getattr(memory.reconstruction, key) for key in ("model", "pending", "above", "since")}
    return stored | {"reconstruction": whole}


def _memory(document: dict[str, Any], tensors: dict[str, Any]) -> IncidentMemory:
    memory = msgspec.convert({key: document[key] for key in STORED if key in document}, IncidentMemory)
    return replace(
        memory,
        scores=tuple(tensors["scores"].tolist()),
        times=tuple(tensors["times"].tolist()),
        alerted_scores=tuple(map(tuple, tensors["withheld"].tolist())),
        reconstruction=_read_reconstruction(document["reconstruction"], tensors),
    )


def _read_reconstruction(document: dict[str, Any], tensors: dict[str, Any]) -> ReconstructionHistory:
    since = document["since"] and datetime.fromisoformat(document["since"])
    numbers = document["pending"], document["above"]
    return ReconstructionHistory(document["model"], tensors["reconstruction"], tensors["embedding"], *numbers, since)
