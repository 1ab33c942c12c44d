"""Snapshots in JSON.

Compiled code reads a body that is plainly right (:mod:`serve_app.api.codec.compiled`). Any other body, and every body
where the compiled code does not run, is parsed, checked as a whole (:mod:`serve_app.api.codec.validation`), and read
row by row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec import compiled, json_text
from serve_app.api.codec.arrays import create_snapshot, signals_of_table, to_float32
from serve_app.api.codec.documents import ENDS
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import error_at, located
from serve_app.api.codec.validation import check_document


def decode(body: bytes, limits: Limits) -> MeshSnapshot:
    """Decode one snapshot."""
    found = compiled.decode(body, limits)
    return decode_by_row(body, limits) if found is None else found


def decode_many(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """Decode ``{"snapshots": [...]}``. A mistake has the place of its snapshot."""
    document = json_text.parse(body)
    if not isinstance(document, dict) or document.keys() != {"snapshots"} or type(document["snapshots"]) is not list:
        raise error_at("/snapshots", 'expected {"snapshots": [...]} and nothing else; put them into one list')
    limits.check(snapshots=len(document["snapshots"]))
    decoded = []
    for number, snapshot in enumerate(document["snapshots"]):
        with located(f"/snapshots/{number}"):
            decoded.append(_build(snapshot, limits))
    return decoded


def decode_by_row(body: bytes, limits: Limits) -> MeshSnapshot:
    """As :func:`decode`, without compiled code."""
    return _build(json_text.parse(body), limits)


def _build(document: Any, limits: Limits) -> MeshSnapshot:
    check_document(document, limits)
    services, calls = document["services"], document.get("calls", [])
    ids = [f"{one['namespace']}/{one['name']}" for one in services]
    place = {name: i for i, name in enumerate(ids)}
    return create_snapshot(
        observed_at=document["observed_at"],
        node_ids=ids,
        edge_index=np.array([[place[call[end]] for call in calls] for end in ENDS], np.int64),
        node_features=_matrix((one.get("metrics") or {} for one in services), NODE_METRICS),
        edge_features=_matrix(calls, EDGE_METRICS),
        changes=document.get("changes", []),
        policies=document.get("policies", []),
        signals=signals_of_table(ids, _matrix((one.get("signals") or {} for one in services), tuple(SignalKind))),
    )


def _matrix(rows: Iterable[Mapping[str, float | None]], names: Sequence[str]) -> NDArray[np.float32]:
    """The numbers of rows, ``[rows, names]``; NaN: null or missing."""
    values = [[row.get(name) for name in names] for row in rows]
    return to_float32(np.array(values, np.float64).reshape(len(values), len(names)))
