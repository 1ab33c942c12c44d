"""A mesh's O(1) state as bytes: safetensors, with the feature schema in its header. The ring is stored separately.

Arrays stand under the path of their field, and everything else in one document of JSON, as the dataclasses nest. A step
is what a state has beyond the last full state and the snapshots since: the memory of incidents, with the scores since
that state. It is small.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from model.drift.sketch import DriftSketch
from model.errors import IncompatibleWeights
from model.features import SCHEMA, FeatureSchema
from model.incidents.memory import IncidentMemory
from model.incidents.reconstruction_history import ReconstructionHistory
from model.snapshot import MeshSnapshot
from model.state.mesh_state import MeshState

T = TypeVar("T")
Arrays = dict[str, NDArray[Any]]

LAYOUT = 1  # version of the stored form; it rises when fields are added, removed or renamed
NUMBERS = frozenset({"scores", "times", "incident_scores"})  # long tuples of numbers, stored as arrays
HEADER_SIZE_BYTES = 8  # of the header's length, before the header
DTYPES = {
    np.dtype(of): name
    for of, name in (
        (np.float64, "F64"), (np.int64, "I64"), (np.float32, "F32"), (np.int32, "I32"), (np.float16, "F16"),
        (np.uint32, "U32"), (np.uint16, "U16"), (np.uint8, "U8"), (np.bool_, "BOOL"),
    )
}  # fmt: skip


def pack_state(state: MeshState) -> bytes:
    """Serialize the state without its ring of snapshots."""
    arrays: Arrays = {}
    document = _take_apart(state, "", arrays)
    return _join_arrays(document | {"schema": SCHEMA.to_json(), "layout": LAYOUT}, arrays)


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
        incident_scores=memory.incident_scores[-snapshots:],
        reconstruction=replace(whole, past=whole.past[:, -snapshots:]),
    )
    arrays: Arrays = {}
    document = _take_apart(recent, "", arrays)
    counts = len(memory.scores), len(memory.incident_scores), whole.snapshots
    return _join_arrays(document | {"counts": counts, "layout": LAYOUT}, arrays)


def unpack_state(data: bytes, window: Iterable[MeshSnapshot] = ()) -> MeshState:
    """Read the bytes of :func:`pack_state` and add the ring.

    Raises:
        IncompatibleWeights: the bytes are not a state, or have another layout or feature schema.
    """
    with _refusing_other_bytes("arrays and a document"):
        document, arrays = _split(data)
        SCHEMA.require(FeatureSchema.from_json(document["schema"]), "saved state")
        _renew_drift(document, arrays)
        return replace(_put_together(MeshState, document, "", arrays), window=tuple(window))


def unpack_step(data: bytes, full: IncidentMemory) -> IncidentMemory:
    """Read the bytes of :func:`pack_step`.

    Raises:
        IncompatibleWeights: the bytes are not a step, or have another layout.
    """
    with _refusing_other_bytes("a step of a state"):
        document, arrays = _split(data)
        quiet, alerted, losses = document["counts"]
        memory = _add_earlier_scores(_put_together(IncidentMemory, document, "", arrays), full, quiet, alerted)
        return replace(memory, reconstruction=_add_earlier_losses(memory.reconstruction, full.reconstruction, losses))


def _take_apart(value: Any, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a dataclass without its arrays, which are added to ``arrays`` under their paths."""
    document = {}
    for field in _stored(type(value)):
        item, name = getattr(value, field.name), prefix + field.name
        if isinstance(item, np.ndarray) or field.name in NUMBERS or (isinstance(item, tuple) and _are_arrays(item)):
            arrays[name] = np.array(item) if isinstance(item, tuple) else item
        elif is_dataclass(item):
            document[field.name] = _take_apart(item, f"{name}.", arrays)
        else:
            document[field.name] = msgspec.to_builtins(item, enc_hook=float)
    return document


def _put_together(kind: type[T], document: Mapping[str, Any], prefix: str, arrays: Arrays) -> T:
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in _stored(kind):
        name, hint = prefix + field.name, hints[field.name]
        if field.name in NUMBERS:
            values[field.name] = msgspec.convert(arrays[name].tolist(), hint)
        elif get_origin(hint) is np.ndarray:
            values[field.name] = arrays[name]
        elif get_origin(hint) is tuple and name in arrays:
            values[field.name] = tuple(arrays[name])
        elif isinstance(hint, type) and is_dataclass(hint):
            values[field.name] = _put_together(hint, document[field.name], f"{name}.", arrays)
        else:
            values[field.name] = msgspec.convert(document[field.name], hint)
    return kind(**values)


def _renew_drift(document: dict[str, Any], arrays: Arrays) -> None:
    """Put an empty drift sketch in place of one with other populations or bins, of another version. It fills again
    within a week, and nothing else depends on it."""
    empty: Arrays = {}
    fresh = _take_apart(DriftSketch(), "drift.", empty)
    shapes = {name: array.shape for name, array in empty.items() if not name.startswith("drift.calls.")}
    if empty.keys() - arrays.keys() or any(arrays[name].shape != shape for name, shape in shapes.items()):
        document["drift"] = fresh
        arrays.update(empty)


def _stored(kind: type[Any]) -> tuple[Field[Any], ...]:
    return tuple(field for field in fields(kind) if field.metadata.get("stored", True))


def _are_arrays(values: tuple[Any, ...]) -> bool:
    return bool(values) and isinstance(values[0], np.ndarray)


def _add_earlier_scores(memory: IncidentMemory, full: IncidentMemory, quiet: int, alerted: int) -> IncidentMemory:
    """Return the memory with this many scores without and with an alert, the earliest of them from the full state."""
    since = bisect_left(full.times, memory.times[0]) if memory.times else 0
    moments = [at for at, _ in full.incident_scores]
    alerted_since = bisect_left(moments, memory.incident_scores[0][0]) if memory.incident_scores else 0
    return replace(
        memory,
        scores=_last((*full.scores[:since], *memory.scores), quiet),
        times=_last((*full.times[:since], *memory.times), quiet),
        incident_scores=_last((*full.incident_scores[:alerted_since], *memory.incident_scores), alerted),
    )


def _add_earlier_losses(whole: ReconstructionHistory, full: ReconstructionHistory, count: int) -> ReconstructionHistory:
    """Return the history with so many snapshots, the earliest of them from the full state."""
    since = int(np.searchsorted(full.past[0], whole.past[0, 0])) if whole.snapshots else 0
    past = np.concatenate([full.past[:, :since], whole.past], axis=1)
    return replace(whole, past=past[:, past.shape[1] - count :])


def _last(values: tuple[T, ...], count: int) -> tuple[T, ...]:
    return values[len(values) - count :]


def _join_arrays(document: dict[str, Any], arrays: Arrays) -> bytes:
    """Return safetensors bytes of arrays and a document. The library would copy each array twice, and a large mesh has
    hundreds of MB of them.

    Source: https://huggingface.co/docs/safetensors (Format).
    """
    arrays = arrays | {"document": np.frombuffer(json.dumps(document).encode(), np.uint8)}
    header: dict[str, Any] = {}
    pieces: list[memoryview] = []
    size = 0
    # Arrays of large items first: then each one is aligned.
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):
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


def _split(data: bytes) -> tuple[dict[str, Any], Arrays]:
    arrays = load(data)
    document = json.loads(arrays.pop("document").tobytes())
    if document["layout"] != LAYOUT:
        raise ValueError(f"layout {document['layout']}, not {LAYOUT}")
    return document, arrays


@contextmanager
def _refusing_other_bytes(expected: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, IncompatibleWeights):
            raise
        raise IncompatibleWeights(
            f"saved state: expected {expected}, got something else ({error}); delete the mesh and let it warm up again"
        ) from error
