"""Between documents and the house's own types: the only file that names both sides.

Snapshots also have a packed form for stores and for hops between deployments: safetensors, which holds arrays and
strings and can execute nothing.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from safetensors import SafetensorError

from model.errors import InvalidSnapshot
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange
from model.verdict import Incident, Reason, Suspect, Verdict
from serve_app.errors import CorruptState, DocumentTooLarge, InvalidDocument, MalformedDocument
from serve_app.reasons import reads_as_expected, reason_text
from serve_app.schemas import (
    CallDocument,
    ChangeDocument,
    IncidentDocument,
    ReasonDocument,
    ScoreDocument,
    SnapshotDocument,
    SuspectDocument,
    VerdictDocument,
)

ERRORS_LISTED = 20  # of a document with thousands of wrong places a client needs the first few
PACKED_FORMAT = "tagae.snapshot/1"
_End = Literal["source", "destination"]
_ENDS: tuple[_End, _End] = ("source", "destination")
_WIRE_PLACES = {"nodes": "services", "edges": "calls"}
_WIRE_WORDS = {"node": "service", "edge": "call"}


def decode_snapshot_json(body: bytes, *, max_services: int | None = None, max_calls: int | None = None) -> MeshSnapshot:
    """One JSON snapshot document as a checked snapshot.

    Raises:
        MalformedDocument: the body is not JSON.
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than given.
    """
    try:
        document = SnapshotDocument.model_validate_json(body)
    except ValidationError as error:
        raise invalid_document(error) from None
    return decode_snapshot(document, max_services=max_services, max_calls=max_calls)


def decode_snapshots_json(
    body: bytes, *, max_services: int | None = None, max_calls: int | None = None
) -> list[MeshSnapshot]:
    """A JSON document of several snapshots, each checked; errors as :func:`decode_snapshot_json`."""
    try:
        documents = ScoreDocument.model_validate_json(body).snapshots
    except ValidationError as error:
        raise invalid_document(error) from None
    snapshots = []
    for row, document in enumerate(documents):
        try:
            snapshots.append(decode_snapshot(document, max_services=max_services, max_calls=max_calls))
        except (InvalidDocument, DocumentTooLarge) as error:
            raise _within(error, row) from error
    return snapshots


def decode_snapshot(
    document: SnapshotDocument, *, max_services: int | None = None, max_calls: int | None = None
) -> MeshSnapshot:
    """A snapshot document as a checked snapshot.

    Raises:
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services or calls than given.
    """
    _check_size("services", len(document.services), max_services)
    _check_size("calls", len(document.calls), max_calls)
    ids = [f"{service['namespace']}/{service['name']}" for service in document.services]
    metrics: list[Mapping[str, Any]] = [service.get("metrics", {}) for service in document.services]
    try:
        return MeshSnapshot.create(
            node_ids=ids,
            edge_index=_edge_index(document.calls, ids),
            node_features=_columns(metrics, NODE_METRICS),
            edge_features=_columns(document.calls, EDGE_METRICS),
            observed_at=document.observed_at,
            changes=[PlannedChange(change.kind, change.service, change.reason) for change in document.changes],
        )
    except InvalidSnapshot as error:
        raise _on_the_wire(error) from error


def invalid_document(error: ValidationError) -> InvalidDocument:
    """What pydantic found, with JSON pointers; for JSON that does not parse a :class:`MalformedDocument`."""
    found = error.errors(include_url=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        return MalformedDocument(f"expected a JSON document, came {found[0]['msg']}; send UTF-8 JSON")
    errors = [{"pointer": _pointer(e["loc"]), "detail": _detail(e)} for e in found[:ERRORS_LISTED]]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    first = errors[0]
    return InvalidDocument(
        f"{first['pointer'] or 'document'}: {first['detail']}{more}", pointer=first["pointer"], errors=errors
    )


def encode_snapshot(snapshot: MeshSnapshot) -> dict[str, Any]:
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
        document["changes"] = [_change(change).model_dump() for change in snapshot.changes]
    return document


def encode_verdict(verdict: Verdict) -> VerdictDocument:
    """The document of a verdict; numbers without a value (NaN, infinite) become null where the schema allows it.

    Reasons that read as expected are left out.
    """
    return VerdictDocument(
        observed_at=verdict.observed_at,
        sequence=verdict.sequence,
        status=verdict.status.value,
        mesh_score=verdict.mesh_score,
        threshold=_finite(verdict.threshold),
        probability=verdict.probability,
        suspects=_suspects(verdict.suspects, verdict.observed_at),
        incidents=[_incident(incident, verdict.observed_at) for incident in verdict.incidents],
        coverage=verdict.coverage,
        missing_parts=list(verdict.missing_parts),
        model=verdict.model_digest,
    )


def verdict_line(verdict: Verdict) -> str:
    """The verdict as one line of JSON, without the line's end: a line of ``tagae score --output``."""
    return encode_verdict(verdict).model_dump_json()


def pack_snapshot(snapshot: MeshSnapshot) -> bytes:
    """A snapshot as safetensors bytes, exact to the bit."""
    arrays = {
        "edge_index": snapshot.edge_index.astype(np.int32),
        "node_features": np.where(snapshot.node_observed, snapshot.node_features, np.float32(np.nan)),
        "edge_features": np.where(snapshot.edge_observed, snapshot.edge_features, np.float32(np.nan)),
    }
    # safetensors writes memory as it lies, also where that is the transpose
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    changes = [[change.kind, change.service, change.reason] for change in snapshot.changes]
    metadata = {
        "format": PACKED_FORMAT,
        "observed_at": snapshot.observed_at.isoformat(),
        "node_ids": json.dumps(snapshot.node_ids, ensure_ascii=False),
        "changes": json.dumps(changes, ensure_ascii=False),
    }
    return bytes(safetensors.numpy.save(arrays, metadata))


def unpack_snapshot(packed: bytes) -> MeshSnapshot:
    """The snapshot of :func:`pack_snapshot`.

    Raises:
        CorruptState: for other bytes.
    """
    try:
        arrays = safetensors.numpy.load(packed)
        header = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])  # safetensors: length, JSON, data
        metadata = header.get("__metadata__", {})
        if metadata.get("format") != PACKED_FORMAT:
            raise ValueError(f"format {metadata.get('format')!r}")
        return MeshSnapshot.create(
            node_ids=json.loads(metadata["node_ids"]),
            observed_at=datetime.fromisoformat(metadata["observed_at"]),
            changes=[PlannedChange(*change) for change in json.loads(metadata["changes"])],
            **{name: arrays[name] for name in ("edge_index", "node_features", "edge_features")},
        )
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CorruptState(
            f"packed snapshot of {len(packed)} bytes: expected {PACKED_FORMAT}, came {error!r}; delete the mesh, "
            "new snapshots rebuild its state"
        ) from error


def _check_size(what: str, count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise DocumentTooLarge(
            f"{what}: expected at most {limit}, came {count}; raise limits.max_{what} or split the mesh",
            pointer=f"/{what}",
        )


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
    errors = [
        _unknown_end(call, row, end, len(ids))
        for row, call in enumerate(calls)
        for end in _ENDS
        if call[end] not in known
    ]
    return InvalidDocument(errors[0]["detail"], pointer=errors[0]["pointer"], errors=errors[:ERRORS_LISTED])


def _unknown_end(call: CallDocument, row: int, end: _End, services: int) -> dict[str, str]:
    return {
        "pointer": f"/calls/{row}/{end}",
        "detail": f"call {row}: {end} {call[end]!r} is not among the services ({services} given); "
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


def _within(error: InvalidDocument | DocumentTooLarge, row: int) -> InvalidDocument | DocumentTooLarge:
    """The error of one snapshot of several."""
    details = dict(error.details)
    place = f"/snapshots/{row}"
    details["pointer"] = place + details.get("pointer", "")
    details["errors"] = [e | {"pointer": place + e["pointer"]} for e in details.get("errors", ())]
    return type(error)(f"snapshot {row}: {error.message}", **details)


def _pointer(place: Sequence[str | int]) -> str:
    """JSON pointer, RFC 6901."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place)


def _detail(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return f"{error['loc'][-1]!r} is not a field of this document; correct the name or leave it out"
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and was not given"
    return f"{error['msg'].removeprefix('Value error, ')}, came {json.dumps(error['input'], default=str)[:80]}"


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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _change(change: PlannedChange) -> ChangeDocument:
    return ChangeDocument(kind=change.kind, service=change.service, reason=change.reason)


def _suspects(suspects: Sequence[Suspect], observed_at: datetime) -> list[SuspectDocument]:
    return [
        SuspectDocument(
            service=suspect.service,
            score=suspect.score,
            reasons=[_reason(reason, observed_at) for reason in suspect.reasons if not reads_as_expected(reason)],
        )
        for suspect in suspects
    ]


def _reason(reason: Reason, observed_at: datetime) -> ReasonDocument:
    return ReasonDocument(
        metric=reason.metric,
        source=reason.source or None,
        observed=_finite(reason.observed),
        expected=_finite(reason.expected),
        since=reason.since,
        text=reason_text(reason, observed_at),
    )


def _incident(incident: Incident, observed_at: datetime) -> IncidentDocument:
    return IncidentDocument(
        id=incident.id,
        since=incident.since,
        severity=incident.severity.value,
        score=incident.score,
        suspects=_suspects(incident.suspects, observed_at),
        affected=list(incident.affected),
        changes=[_change(change) for change in incident.changes],
    )
