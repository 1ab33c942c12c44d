"""The types of a snapshot in JSON, with limits on counts as part of them, and its arrays."""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct, to_builtins
from msgspec.structs import astuple
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec.arrays import create_snapshot, signals_of_table, to_float32
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import NeedsFullCheck
from serve_app.api.codec.rows import ENDS

MAX_INSTANT_BYTES = 80  # bytes as encoded
ABSENT = -math.inf  # the field is missing, not null; JSON has no such number
Number = float | None


def _struct(name: str, *fields: Any, gc: bool = True) -> Any:
    return defstruct(name, fields, forbid_unknown_fields=True, gc=gc)


# Rows, without the garbage collector: they cannot refer to themselves.
_METRICS = _struct("Metrics", *((name, Number, ABSENT) for name in NODE_METRICS), gc=False)
_SIGNALS = _struct("Signals", *((kind.value, Number, ABSENT) for kind in SignalKind), gc=False)
_SERVICE = _struct(
    "Service",
    ("namespace", str),
    ("name", str),
    ("metrics", _METRICS | UnsetType | None, UNSET),
    ("signals", _SIGNALS | UnsetType | None, UNSET),
    gc=False,
)
_CALL = _struct(
    "Call",
    *((end, str) for end in ENDS),
    (EDGE_METRICS[0], float),
    *((name, Number, ABSENT) for name in EDGE_METRICS[1:]),
    gc=False,
)
CHANGE = _struct("Change", ("kind", str), ("service", str), ("reason", str | UnsetType, UNSET))
POLICY = _struct(
    "Policy",
    ("service", str),
    ("sensitivity", str | UnsetType | None, UNSET),
    *((name, str | UnsetType, UNSET) for name in ("mute", "team", "contact")),
)
_NO_METRICS, _NO_SIGNALS = _METRICS(), _SIGNALS()


def list_type(kind: Any, what: str, limits: Limits) -> Any:
    """The type of a list with as many of ``what`` as the limits allow."""
    return Annotated[list[kind], Meta(max_length=getattr(limits, f"max_{what}"))]


@lru_cache(8)
def snapshot_type(limits: Limits) -> Any:
    """The type of one snapshot within these limits."""

    def many(kind: Any, what: str) -> Any:
        return list_type(kind, what, limits)

    return _struct(
        "Snapshot",
        ("observed_at", Raw),
        ("services", many(_SERVICE, "services")),
        ("calls", many(_CALL, "calls") | UnsetType, UNSET),
        ("changes", many(CHANGE, "changes") | UnsetType, UNSET),
        ("policies", many(POLICY, "policies") | UnsetType, UNSET),
        ("version", Annotated[int, Meta(ge=1, le=1)] | UnsetType, UNSET),
    )


@lru_cache(8)
def snapshots_type(limits: Limits) -> Any:
    """The type of several snapshots, each still encoded."""
    return _struct("Snapshots", ("snapshots", Annotated[list[Raw], Meta(max_length=limits.max_snapshots)]))


@lru_cache(16)
def decoder(kind: Any) -> Any:
    """The decoder of JSON for a type."""
    return msgspec.json.Decoder(kind)


def build(document: Any) -> tuple[MeshSnapshot, int]:
    """The snapshot of a document of :func:`snapshot_type`, and the number of its keys.

    Raises:
        NeedsFullCheck, InvalidDocument: there is a mistake.
    """
    changes, policies = document.changes or [], document.policies or []
    keys = count_keys(document) + sum(map(count_keys, (*changes, *policies)))
    ids, nodes, signals, service_keys = _read_services(document.services)
    index, edges, call_keys = _read_calls(document.calls or [], ids)
    is_short = len(memoryview(document.observed_at)) <= MAX_INSTANT_BYTES
    snapshot = create_snapshot(
        observed_at=msgspec.json.decode(document.observed_at) if is_short else None,
        node_ids=ids,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        changes=to_builtins(changes),
        policies=to_builtins(policies),
        signals=() if signals is None else signals_of_table(ids, signals),
    )
    return snapshot, keys + service_keys + call_keys


def _read_services(services: Sequence[Any]) -> tuple[list[str], NDArray[np.float32], NDArray[np.float32] | None, int]:
    """Ids, metrics ``[N, 7]``, signals ``[N, 7]`` if there are any, and the number of keys."""
    ids = _ids(services)
    nodes, keys = _matrix([one.metrics for one in services], _NO_METRICS)
    given = [one.signals for one in services]
    signals, signal_keys = _matrix(given, _NO_SIGNALS) if any(given) else (None, _count_given(given))
    return ids, nodes, signals, 2 * len(ids) + keys + signal_keys


def _read_calls(calls: Sequence[Any], ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
    """Ends ``[2, E]``, metrics ``[E, 4]``, and the number of keys."""
    place = {name: i for i, name in enumerate(ids)}
    ends = [_positions([getattr(call, end) for call in calls], place) for end in ENDS]
    numbers, given = _numbers(astuple(call)[len(ENDS) :] for call in calls)
    return np.stack(ends), numbers.reshape(len(calls), len(EDGE_METRICS)), len(ENDS) * len(calls) + given


def _ids(services: Sequence[Any]) -> list[str]:
    """``namespace/name`` of each service. Raises ``NeedsFullCheck`` for a namespace that is empty or has a slash."""
    if not all(namespace and "/" not in namespace for namespace in {one.namespace for one in services}):
        raise NeedsFullCheck
    return [f"{one.namespace}/{one.name}" for one in services]


def _positions(ends: Sequence[str], place: Mapping[str, int]) -> NDArray[np.int64]:
    """Places of these ends of calls. Raises ``NeedsFullCheck`` for an end that is not among the services."""
    try:
        return _pack("q", [*map(place.__getitem__, ends)])
    except KeyError:
        raise NeedsFullCheck from None


def _matrix(given: Sequence[Any], empty: Struct) -> tuple[NDArray[np.float32], int]:
    """Numbers within rows, ``[rows, fields]``, and the number of their keys, with the one of the field itself."""
    values, keys = _numbers(astuple(one or empty) for one in given)
    return values.reshape(len(given), len(empty.__struct_fields__)), keys + _count_given(given)


def _numbers(rows: Iterable[Sequence[float | None]]) -> tuple[NDArray[np.float32], int]:
    """All values with NaN for null and ``ABSENT``, and how many are not ``ABSENT``."""
    values = [*chain.from_iterable(rows)]
    try:
        exact = _pack("d", values)
    except struct.error:  # a null; Arrow converts a list with nulls in half the time of numpy
        exact = pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
    absent = exact == ABSENT
    return to_float32(np.where(absent, np.nan, exact)), len(exact) - int(np.count_nonzero(absent))


def _pack(kind: str, values: Sequence[Any]) -> NDArray[Any]:
    """Numbers as an array of a type of ``struct``, in half the time of numpy. Raises ``struct.error`` for others."""
    return np.frombuffer(struct.pack(f"{len(values)}{kind}", *values), kind)


def _count_given(fields: Sequence[Any]) -> int:
    return len(fields) - fields.count(UNSET)


def count_keys(given: Struct) -> int:
    """Number of keys of an object and of the objects that it has as fields."""
    values = [value for value in astuple(given) if value is not UNSET]
    return len(values) + sum(count_keys(value) for value in values if isinstance(value, Struct))
