"""The types of a snapshot in JSON and MessagePack, as rows or as columns, and its arrays.

Limits on counts are part of the types: the decoder of MessagePack checks them before it reads a list, the decoder of
JSON at its end.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, defstruct, to_builtins
from msgspec.structs import astuple
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec.arrays import ABSENT, create_snapshot, matrix, positions, row_numbers, signals_of_table
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import NeedsFullCheck
from serve_app.api.codec.rows import ENDS

LONGEST_INSTANT = 80  # bytes as encoded
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

    def columns(name: str, names: Sequence[str], what: str, *required: Any) -> Any:
        column = many(Number, what) | bytes | None | UnsetType
        return _struct(name, *required, *((field, column, UNSET) for field in names))

    metrics = columns("MetricColumns", NODE_METRICS, "services")
    signals = columns("SignalColumns", [kind.value for kind in SignalKind], "services")
    services = _struct(
        "ServiceColumns",
        *((name, many(str, "services")) for name in ("namespace", "name")),
        ("metrics", metrics | UnsetType | None, UNSET),
        ("signals", signals | UnsetType | None, UNSET),
    )
    ends = [(end, many(str | int, "calls") | bytes) for end in ENDS]
    calls = columns("CallColumns", EDGE_METRICS, "calls", *ends)
    return _struct(
        "Snapshot",
        ("observed_at", Raw),  # a text, in MessagePack also a timestamp
        ("services", many(_SERVICE, "services") | services),
        ("calls", many(_CALL, "calls") | calls | UnsetType, UNSET),
        ("changes", many(CHANGE, "changes") | UnsetType, UNSET),
        ("policies", many(POLICY, "policies") | UnsetType, UNSET),
        ("version", Annotated[int, Meta(ge=1, le=1)] | UnsetType, UNSET),
    )


@lru_cache(8)
def snapshots_type(limits: Limits) -> Any:
    """The type of several snapshots, each still encoded."""
    return _struct("Snapshots", ("snapshots", Annotated[list[Raw], Meta(max_length=limits.max_snapshots)]))


def build(document: Any, limits: Limits, decode: Callable[[Raw], Any]) -> tuple[MeshSnapshot, int]:
    """The snapshot of a document, and the number of its keys.

    Args:
        document: of :func:`snapshot_type`.
        limits: for columns of bytes, which have no length in the type.
        decode: a value that is still encoded.

    Raises:
        NeedsFullCheck, InvalidDocument, DocumentTooLarge: there is a mistake.
    """
    changes, policies = document.changes or [], document.policies or []
    keys = count_keys(document) + sum(map(count_keys, (*changes, *policies)))
    ids, nodes, signals, service_keys = _read_services(document.services)
    index, edges, call_keys = _read_calls(document.calls, ids)
    limits.check(services=len(ids), calls=len(edges))
    is_short = len(memoryview(document.observed_at)) <= LONGEST_INSTANT
    snapshot = create_snapshot(
        observed_at=decode(document.observed_at) if is_short else None,
        node_ids=ids,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        changes=to_builtins(changes),
        policies=to_builtins(policies),
        signals=() if signals is None else signals_of_table(ids, signals),
    )
    return snapshot, keys + service_keys + call_keys


def _read_services(services: Any) -> tuple[list[str], NDArray[np.float32], NDArray[np.float32] | None, int]:
    """Ids, metrics ``[N, 7]``, signals ``[N, 7]`` if there are any, and the number of keys of rows."""
    if not isinstance(services, list):
        ids = _ids(services.namespace, services.name)
        signals = _column_matrix(services.signals, SignalKind, len(ids)) if services.signals else None
        return ids, _column_matrix(services.metrics, NODE_METRICS, len(ids)), signals, 0
    ids = _ids([one.namespace for one in services], [one.name for one in services])
    nodes, keys = _row_matrix([one.metrics for one in services], _NO_METRICS)
    given = [one.signals for one in services]
    signals, signal_keys = _row_matrix(given, _NO_SIGNALS) if any(given) else (None, _count_given(given))
    return ids, nodes, signals, 2 * len(ids) + keys + signal_keys


def _read_calls(calls: Any, ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
    """Ends ``[2, E]``, metrics ``[E, 4]``, and the number of keys of rows."""
    place = {name: i for i, name in enumerate(ids)}
    if isinstance(calls, list):
        ends = [positions([getattr(call, end) for call in calls], place, len(ids)) for end in ENDS]
        numbers, given = row_numbers(list(chain.from_iterable(astuple(call)[len(ENDS) :] for call in calls)))
        edges = numbers.reshape(len(calls), len(EDGE_METRICS))
        return np.stack(ends), edges, len(ENDS) * len(calls) + given
    if not calls:
        return np.empty((2, 0), np.int64), np.empty((0, len(EDGE_METRICS)), np.float32), 0
    ends = [positions(end, place, len(ids)) for end in (calls.source, calls.destination)]
    count = len(ends[0])
    if len(ends[1]) != count or (count and calls.requests_per_second is UNSET):
        raise NeedsFullCheck
    return np.stack(ends), _column_matrix(calls, EDGE_METRICS, count), 0


def _ids(namespaces: Sequence[str], names: Sequence[str]) -> list[str]:
    """``namespace/name`` of each service. Raises ``NeedsFullCheck`` for a namespace that is empty or has a slash."""
    if len(namespaces) != len(names) or not all(n and "/" not in n for n in set(namespaces)):
        raise NeedsFullCheck
    return [f"{namespace}/{name}" for namespace, name in zip(namespaces, names, strict=True)]


def _row_matrix(given: Sequence[Any], empty: Struct) -> tuple[NDArray[np.float32], int]:
    """Numbers within rows, ``[rows, fields]``, and the number of their keys, with the one of the field itself."""
    values, keys = row_numbers(list(chain.from_iterable(astuple(one or empty) for one in given)))
    return values.reshape(len(given), len(empty.__struct_fields__)), keys + _count_given(given)


def _column_matrix(columns: Any, names: Iterable[str], rows: int) -> NDArray[np.float32]:
    """The columns of these names; ``columns`` may be null or UNSET."""
    given = (getattr(columns, name, UNSET) for name in names)
    return matrix([None if column is UNSET else column for column in given], rows)


def _count_given(fields: Sequence[Any]) -> int:
    return len(fields) - fields.count(UNSET)


def count_keys(struct: Struct) -> int:
    """Number of keys of an object and of the objects that it has as fields."""
    given = [value for value in astuple(struct) if value is not UNSET]
    return len(given) + sum(count_keys(value) for value in given if isinstance(value, Struct))
