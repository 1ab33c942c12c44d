"""Creates a checked snapshot from arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from model.errors import InvalidSnapshot
from model.names import NAME_RULE, escape_name, escape_namespace, find_bad_name
from model.snapshot import EDGE_METRICS, LARGEST_VALUE, NODE_METRICS, MeshSnapshot, PlannedChange, Signal, SignalKind
from serve_app.api.codec.documents import policy
from serve_app.api.codec.mistakes import NeedsFullCheck, abbreviate, error_at, json_pointer, sentence_errors
from serve_app.api.codec.validation import INSTANT, ROWS
from serve_app.errors import InvalidDocument

_WIRE_PLACES = {"nodes": "services", "edges": "calls"}
_WIRE_WORDS = {"node": "service", "edge": "call"}


def to_float32(exact: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32. Rounding never moves an invalid value into range: values beyond float32 become
    infinite, and values below 0 or above ``LARGEST_VALUE`` stay there. The snapshot's check refuses them all."""
    with np.errstate(over="ignore", under="ignore"):
        values: NDArray[np.float32] = exact.astype(np.float32)
    underflows = (values == 0) & (exact < 0)
    if underflows.any():
        values[underflows] = -np.finfo(np.float32).smallest_subnormal
    is_too_large = exact > LARGEST_VALUE
    if is_too_large.any():
        values[is_too_large] = np.maximum(
            values[is_too_large], np.nextafter(np.float32(LARGEST_VALUE), np.float32(np.inf))
        )
    return values


def signals_of_table(ids: Sequence[str], table: NDArray[np.float32]) -> list[Signal]:
    """Signals from values ``[N, 7]`` in the order of ``SignalKind``; NaN: not measured."""
    kinds = list(SignalKind)
    places = zip(*(at.tolist() for at in np.nonzero(table == table)), strict=True)
    return [Signal(kinds[kind], ids[row], float(table[row, kind])) for row, kind in places]


def table_of_signals(snapshot: MeshSnapshot) -> NDArray[np.float32]:
    """Values of the signals ``[N, 7]`` in the order of ``SignalKind``; NaN: not measured."""
    table = np.full((snapshot.num_nodes, len(SignalKind)), np.nan, np.float32)
    row, column = ({name: i for i, name in enumerate(names)} for names in (snapshot.node_ids, SignalKind))
    for signal in snapshot.signals:
        table[row[signal.service], column[signal.kind]] = signal.value
    return table


def create_snapshot(observed_at: Any, changes: Any, policies: Any, **arrays: Any) -> MeshSnapshot:
    """Call :meth:`MeshSnapshot.create` with the documents' stricter rules for names and values.

    Raises:
        InvalidDocument: lists the mistakes and their places in the document.
        NeedsFullCheck: there is a mistake in the first three, which are as in the document.
    """
    try:
        at = INSTANT.validate_python(observed_at)
        changes = [PlannedChange(row.kind, row.service, row.reason) for row in _validate_rows("changes", changes)]
        policies = [
            policy(row.service, row.sensitivity, row.mute, row.team, row.contact)
            for row in _validate_rows("policies", policies)
        ]
    except ValidationError:
        raise NeedsFullCheck from None
    if (bad := find_bad_name(arrays["node_ids"])) is not None:
        escaped_name = escape_namespace(bad.text) if bad.part == "namespace" else escape_name(bad.text)
        hint = f"; write {escaped_name}" if escaped_name else ""
        message = f"expected {NAME_RULE}; got {abbreviate(bad.text)}{hint}"
        raise error_at(f"/services/{bad.position}/{bad.part}", message)
    try:
        snapshot = MeshSnapshot.create(observed_at=at, changes=changes, policies=policies, **arrays)
    except InvalidSnapshot as error:
        raise _translate_error(error) from error
    _require_possible(snapshot.node_features, NODE_METRICS, ("services", "service"), ("metrics",))
    _require_possible(snapshot.edge_features, EDGE_METRICS, ("calls", "call"), ())
    return snapshot


def _validate_rows(name: str, rows: list[Any]) -> list[Any]:
    return ROWS[name].validate_python(rows) if rows else []


def _require_possible(
    values: NDArray[np.float32], names: Sequence[str], words: tuple[str, str], inside: tuple[str, ...]
) -> None:
    """Raise ``InvalidDocument`` for the first value above ``LARGEST_VALUE``."""
    largest = np.float32(LARGEST_VALUE)
    if not values.size or values.max() <= largest:
        return
    row, column = (int(i) for i in np.argwhere(values > largest)[0])
    raise error_at(
        json_pointer((words[0], row, *inside, names[column])),
        f"{words[1]} {row}: {names[column]}: {values[row, column]:g} is too large: the limit is {LARGEST_VALUE:g}; "
        "correct the unit, or leave out what was not observed",
    )


def _translate_error(error: InvalidSnapshot) -> InvalidDocument:
    """The model's error in the document's terms and places."""
    place: tuple[Any, ...] = error.details.get("place", ())
    message = error.message
    if place and place[0] == "nodes" and len(place) == 3:
        pointer = json_pointer(("services", place[1], "metrics", place[2]))
    else:
        pointer = json_pointer((_WIRE_PLACES.get(place[0], place[0]), *place[1:]) if place else ())
    for inside, outside in _WIRE_WORDS.items():
        if len(place) > 1 and message.startswith(f"{inside} {place[1]}"):
            message = outside + message.removeprefix(inside)
    return sentence_errors([(pointer, message)])
