"""Snapshots in JSON.

Compiled code reads a correct body many times as fast. Any other body, and every body where the compiled code does not
run, is parsed, checked as a whole (:mod:`serve_app.api.codec.validation`), and read row by row, so that mistakes get
their texts and places.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.json_rows import Keys, read_rows
from model.snapshot import EDGE_METRICS, LARGEST_VALUE, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec import json_text
from serve_app.api.codec.arrays import create_snapshot, signals_of_table, to_float32
from serve_app.api.codec.documents import ENDS
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import NeedsFullCheck, error_at, prefix_pointers
from serve_app.api.codec.validation import check_document
from serve_app.errors import ServeError

MAX_INSTANT_BYTES = 80  # in an encoded time
_KEYS = Keys(NODE_METRICS, tuple(SignalKind), EDGE_METRICS)
_REFUSALS = (ValueError, RecursionError, ServeError, NeedsFullCheck)


def decode(body: bytes, limits: Limits) -> MeshSnapshot:
    snapshot = decode_compiled(body, limits)
    return decode_by_row(body, limits) if snapshot is None else snapshot


def decode_many(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """Decode ``{"snapshots": [...]}``. A mistake has the place of its snapshot."""
    document = json_text.parse(body)
    if not isinstance(document, dict) or document.keys() != {"snapshots"} or type(document["snapshots"]) is not list:
        raise error_at("/snapshots", 'expected {"snapshots": [...]} and nothing else; put them into one list')
    limits.check(snapshots=len(document["snapshots"]))
    snapshots = []
    for number, row in enumerate(document["snapshots"]):
        with prefix_pointers(f"/snapshots/{number}"):
            snapshots.append(_build(row, limits))
    return snapshots


def decode_compiled(body: bytes, limits: Limits) -> MeshSnapshot | None:
    """A JSON document's snapshot; None if it has to be decoded by row."""
    columns = read_rows(body, _KEYS, LARGEST_VALUE, limits.max_services, limits.max_calls)
    if columns is None or len(columns.observed_at) > MAX_INSTANT_BYTES:
        return None
    try:
        ids = columns.ids.decode().removesuffix("\n").split("\n")
        return create_snapshot(
            observed_at=json.loads(columns.observed_at),
            node_ids=ids,
            edge_index=columns.edge_index,
            node_features=columns.metrics,
            edge_features=columns.call_metrics,
            changes=_read_list(columns.changes, "changes", limits),
            policies=_read_list(columns.policies, "policies", limits),
            signals=signals_of_table(ids, columns.signals),
        )
    except _REFUSALS:
        return None


def decode_by_row(body: bytes, limits: Limits) -> MeshSnapshot:
    """Like :func:`decode`, without compiled code."""
    return _build(json_text.parse(body), limits)


def _read_list(text: bytes, name: str, limits: Limits) -> list[Any]:
    """The rows of an encoded list; empty if it is missing."""
    rows = json_text.parse(text) if text else []
    if not isinstance(rows, list):
        raise NeedsFullCheck
    limits.check(**{name: len(rows)})
    return rows


def _build(document: Any, limits: Limits) -> MeshSnapshot:
    check_document(document, limits)
    services, calls = document["services"], document.get("calls", [])
    ids = [f"{service['namespace']}/{service['name']}" for service in services]
    place = {name: i for i, name in enumerate(ids)}
    return create_snapshot(
        observed_at=document["observed_at"],
        node_ids=ids,
        edge_index=np.array([[place[call[end]] for call in calls] for end in ENDS], np.int64),
        node_features=_matrix((service.get("metrics") or {} for service in services), NODE_METRICS),
        edge_features=_matrix(calls, EDGE_METRICS),
        changes=document.get("changes", []),
        policies=document.get("policies", []),
        signals=signals_of_table(
            ids, _matrix((service.get("signals") or {} for service in services), tuple(SignalKind))
        ),
    )


def _matrix(rows: Iterable[Mapping[str, float | None]], names: Sequence[str]) -> NDArray[np.float32]:
    """The numbers of rows, ``[rows, names]``; NaN: null or missing."""
    values = [[row.get(name) for name in names] for row in rows]
    return to_float32(np.array(values, np.float64).reshape(len(values), len(names)))
