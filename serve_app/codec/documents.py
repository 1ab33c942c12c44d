"""Snapshots as documents of rows, checked place by place.

Every form of a snapshot that is not plainly right ends here, so that the same mistake is told in the same words and at
the same JSON pointer, whatever the form.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from model.errors import InvalidSnapshot
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange, Sensitivity, ServicePolicy
from serve_app.errors import AheadOfClock, DocumentTooLarge, InvalidDocument
from serve_app.schemas import (
    CallDocument,
    ChangeDocument,
    Instant,
    PolicyDocument,
    SnapshotDocument,
)


class Unclear(Exception):
    """Not plainly right: to be read again as rows, which tells the place."""


_INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)
ERRORS_LISTED = 20  # of a document with thousands of wrong places a client needs the first few
SHOWN = 80  # letters of what came: it is shown, not repeated
_End = Literal["source", "destination"]
_ENDS: tuple[_End, _End] = ("source", "destination")
_WIRE_PLACES = {"nodes": "services", "edges": "calls"}
_WIRE_WORDS = {"node": "service", "edge": "call"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Most services and calls of one snapshot; None is any number."""

    max_services: int | None = None
    max_calls: int | None = None

    def check(self, services: int, calls: int) -> None:
        """Refuse more.

        Raises:
            DocumentTooLarge: names what there is too much of.
        """
        for what, count, limit in (("services", services, self.max_services), ("calls", calls, self.max_calls)):
            if limit is not None and count > limit:
                raise DocumentTooLarge(
                    f"{what}: expected at most {limit}, came {count}; raise limits.max_{what} or split the mesh",
                    pointer=f"/{what}",
                )


def not_ahead(observed_at: datetime, now: datetime, most_seconds: float) -> None:
    """Refuse a time that has not come: all that follows would be stale.

    Raises:
        AheadOfClock: ``observed_at`` is more than ``most_seconds`` after ``now``.
    """
    if (observed_at - now) / timedelta(seconds=1) > most_seconds:
        raise AheadOfClock(
            f"observed_at: expected at most {most_seconds:g} s after the service's clock, "
            f"{now.astimezone(UTC).isoformat(timespec='seconds')}, came {observed_at.isoformat()}; correct the clock "
            "or the time zone, or raise limits.max_ahead_seconds",
            pointer="/observed_at",
        )


def named(rows: Any, limits: Limits, prefix: str = "") -> MeshSnapshot:
    """A snapshot from a document of rows, with every mistake named.

    Args:
        rows: what a decoder made of it: dicts, lists, strings and numbers.
        limits: of a snapshot.
        prefix: pointer to the document, where it is one of several.

    Raises:
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than ``limits`` allow.
    """
    try:
        if isinstance(rows, Mapping):
            limits.check(*(len(v) if isinstance(v := rows.get(k), Sequence) else 0 for k in ("services", "calls")))
        return _from_document(SnapshotDocument.model_validate(rows))
    except ValidationError as error:
        raise placed(invalid_document(error), prefix) from None
    except (InvalidDocument, DocumentTooLarge) as error:
        raise placed(error, prefix) from None


def instant(value: Any) -> datetime:
    """A time with a zone, as the documents write it.

    Raises:
        Unclear: anything else.
    """
    try:
        return _INSTANT.validate_python(value)
    except ValidationError:
        raise Unclear from None


def checked(**arrays: Any) -> MeshSnapshot:
    """:meth:`MeshSnapshot.create` with its errors in the words and places of a document.

    Raises:
        InvalidDocument: what is wrong, and where.
    """
    try:
        return MeshSnapshot.create(**arrays)
    except InvalidSnapshot as error:
        raise _on_the_wire(error) from error


def _from_document(document: SnapshotDocument) -> MeshSnapshot:
    ids = [f"{service['namespace']}/{service['name']}" for service in document.services]
    metrics: list[Mapping[str, Any]] = [service.get("metrics") or {} for service in document.services]
    return checked(
        node_ids=ids,
        edge_index=_edge_index(document.calls, ids),
        node_features=_columns(metrics, NODE_METRICS),
        edge_features=_columns(document.calls, EDGE_METRICS),
        observed_at=document.observed_at,
        changes=[PlannedChange(change.kind, change.service, change.reason) for change in document.changes],
        policies=[policy(one.service, one.sensitivity, one.mute) for one in document.policies],
    )


def placed(error: InvalidDocument | DocumentTooLarge, prefix: str) -> InvalidDocument | DocumentTooLarge:
    """The error with its pointers inside a larger document."""
    if not prefix:
        return error
    errors = [{**e, "pointer": prefix + e["pointer"]} for e in error.details.get("errors", ())]
    pointer = prefix + error.details.get("pointer", "")
    return type(error)(f"{prefix}: {error.message}", pointer=pointer, errors=errors)


def wrong(pointer: str, detail: str) -> InvalidDocument:
    """One thing that is wrong, at one place."""
    return InvalidDocument(f"{pointer}: {detail}", pointer=pointer, errors=[{"pointer": pointer, "detail": detail}])


def invalid_document(error: ValidationError) -> InvalidDocument:
    """What pydantic found, with JSON pointers."""
    found = error.errors(include_url=False, include_context=False)
    errors = [{"pointer": _pointer(e["loc"]), "detail": _detail(e)} for e in found[:ERRORS_LISTED]]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    first = errors[0]
    return InvalidDocument(
        f"{first['pointer'] or 'document'}: {first['detail']}{more}", pointer=first["pointer"], errors=errors
    )


def snapshot_document(snapshot: MeshSnapshot) -> dict[str, Any]:
    """The JSON document of a snapshot, as a client sends it, in the fewest digits that read back as the same float32;
    what was not observed is left out."""
    nodes = _dicts(NODE_METRICS, snapshot.node_features, snapshot.node_observed)
    calls = _dicts(EDGE_METRICS, snapshot.edge_features, snapshot.edge_observed)
    ends = snapshot.edge_index.T.tolist()
    document: dict[str, Any] = {
        "observed_at": snapshot.observed_at.isoformat(),
        "services": [
            dict(zip(("namespace", "name"), name.split("/", 1), strict=True), metrics=metrics)
            for name, metrics in zip(snapshot.node_ids, nodes, strict=True)
        ],
        "calls": [
            {"source": snapshot.node_ids[source], "destination": snapshot.node_ids[destination], **metrics}
            for (source, destination), metrics in zip(ends, calls, strict=True)
        ],
    }
    if snapshot.changes:
        document["changes"] = [change_document(change).model_dump() for change in snapshot.changes]
    if snapshot.policies:
        document["policies"] = [_policy_document(one).model_dump(exclude_none=True) for one in snapshot.policies]
    return document


def policy(service: str, sensitivity: str | None, mute: str) -> ServicePolicy:
    """A policy of its fields; raises ``ValueError`` for a sensitivity that there is not."""
    return ServicePolicy(service, None if sensitivity is None else Sensitivity(sensitivity), mute)


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> NDArray[np.float32]:
    """``[rows, names]``, NaN for absent or null; beyond float32 is infinite, which the snapshot's check refuses."""
    table = np.empty((len(rows), len(names)), np.float32)
    with np.errstate(over="ignore"):
        for column, name in enumerate(names):
            table[:, column] = [row.get(name, math.nan) for row in rows]
    return table


def _edge_index(calls: Sequence[CallDocument], ids: Sequence[str]) -> NDArray[np.int64]:
    position = {name: i for i, name in enumerate(ids)}
    try:
        sources = [position[call["source"]] for call in calls]
        destinations = [position[call["destination"]] for call in calls]
    except KeyError:
        raise _unknown_ends(calls, ids) from None
    return np.array([sources, destinations], dtype=np.int64)


def _unknown_ends(calls: Sequence[CallDocument], ids: Sequence[str]) -> InvalidDocument:
    known = set(ids)
    unknown = ((row, call, end) for row, call in enumerate(calls) for end in _ENDS if call[end] not in known)
    errors = [_unknown_end(call, row, end, len(ids)) for row, call, end in islice(unknown, ERRORS_LISTED)]
    return InvalidDocument(errors[0]["detail"], pointer=errors[0]["pointer"], errors=errors)


def _unknown_end(call: CallDocument, row: int, end: _End, services: int) -> dict[str, str]:
    return {
        "pointer": f"/calls/{row}/{end}",
        "detail": f"call {row}: {end} {call[end][:SHOWN]!r} is not among the services ({services} given); "
        "add it or drop the call",
    }


def _on_the_wire(error: InvalidSnapshot) -> InvalidDocument:
    """The model's error in the words and places of the document."""
    place: tuple[Any, ...] = error.details.get("place", ())
    message = error.message
    if place and place[0] == "nodes" and len(place) == 3:
        pointer = _pointer(("services", place[1], "metrics", place[2]))
    else:
        pointer = _pointer((_WIRE_PLACES.get(place[0], place[0]), *place[1:]) if place else ())
    for inside, outside in _WIRE_WORDS.items():
        if len(place) > 1 and message.startswith(f"{inside} {place[1]}"):
            message = outside + message.removeprefix(inside)
    return InvalidDocument(message, pointer=pointer, errors=[{"pointer": pointer, "detail": message}])


def _pointer(place: Sequence[str | int]) -> str:
    """JSON pointer, RFC 6901."""
    return "".join("/" + str(part)[:SHOWN].replace("~", "~0").replace("/", "~1") for part in place)


def _detail(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return f"{str(error['loc'][-1])[:SHOWN]!r} is not a field of this document; correct the name or leave it out"
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and was not given"
    return f"{error['msg'].removeprefix('Value error, ')}, came {_shown(error['input'])}"


def _shown(value: Any) -> str:
    """What came, cut short. MessagePack has maps with keys that JSON has not, and both nest as deep as Python goes."""
    if isinstance(value, str | bytes):
        value = value[:SHOWN]
    try:
        return json.dumps(value, default=str)[:SHOWN]
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that JSON cannot write"


def _dicts(names: Sequence[str], values: NDArray[np.float32], observed: NDArray[np.bool_]) -> list[dict[str, float]]:
    return [
        {name: value for name, value, present in zip(names, row, mask, strict=True) if present}
        for row, mask in zip(_short(values).tolist(), observed.tolist(), strict=True)
    ]


def _short(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The doubles that print shortest and read back as these float32: 0.1, not 0.10000000149011612.

    Decimals of 6 to 9 digits are tried; 6 always survive float32, 9 always tell two of them apart (C's FLT_DIG and
    FLT_DECIMAL_DIG). Where powers of ten are inexact in a double (below 1e-14, above 1e28) more digits may be left.
    """
    exact = values.astype(np.float64)
    short, exponent = exact.copy(), np.floor(np.log10(np.where(exact == 0, 1, np.abs(exact))))
    with np.errstate(over="ignore"):
        for digits in (9, 8, 7, 6):
            shift = digits - 1 - exponent
            scale = 10.0 ** np.abs(shift)
            decimal = np.where(shift >= 0, np.rint(exact * scale) / scale, np.rint(exact / scale) * scale)
            short = np.where(decimal.astype(np.float32) == values, decimal, short)
    return short


def change_document(change: PlannedChange) -> ChangeDocument:
    """A planned change as a document."""
    return ChangeDocument(kind=change.kind, service=change.service, reason=change.reason)


def _policy_document(one: ServicePolicy) -> PolicyDocument:
    return PolicyDocument(service=one.service, sensitivity=one.sensitivity and one.sensitivity.value, mute=one.mute)
