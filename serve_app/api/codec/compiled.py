"""JSON snapshots of rows by compiled code, many times as fast as row by row.

It decodes only documents that are plainly right. All others are decoded row by row
(:mod:`serve_app.api.codec.json_body`), as every document is where the library does not run: there, mistakes get their
texts and places.
"""

import json
from typing import Any

from kernels.json_rows import Keys, read_rows
from model.snapshot import EDGE_METRICS, LARGEST_VALUE, NODE_METRICS, MeshSnapshot, SignalKind
from serve_app.api.codec import json_text
from serve_app.api.codec.arrays import create_snapshot, signals_of_table
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import NeedsFullCheck
from serve_app.errors import ServeError

MAX_INSTANT_BYTES = 80  # of a time, as encoded
_KEYS = Keys(NODE_METRICS, tuple(SignalKind), EDGE_METRICS)
_REFUSALS = (ValueError, RecursionError, ServeError, NeedsFullCheck)


def decode(body: bytes, limits: Limits) -> MeshSnapshot | None:
    """Return the snapshot of a JSON document; None if it has to be decoded in the other way."""
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


def _read_list(text: bytes, what: str, limits: Limits) -> list[Any]:
    """The rows of a list that is still encoded, none if it is missing."""
    rows = json_text.parse(text) if text else []
    if not isinstance(rows, list):
        raise NeedsFullCheck
    limits.check(**{what: len(rows)})
    return rows
