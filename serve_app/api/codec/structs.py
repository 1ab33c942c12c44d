"""Snapshots in JSON and MessagePack, as rows or as columns.

A correct body goes from typed decoders straight into arrays. Any other body is decoded again without types, and
:mod:`serve_app.api.codec.validation` finds all its mistakes.

Typed decoders silently take the last of two equal keys. So the keys are counted: JSON has a colon for each, and
MessagePack declares the number in each map. If the body has more keys than the snapshot, one is repeated.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import astuple
from numpy.typing import NDArray

from model.names import is_service_name, is_services_name
from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange, ServicePolicy, Signal, SignalKind
from serve_app.api.codec import json_text, messagepack
from serve_app.api.codec import memory as weight
from serve_app.api.codec.columns import ABSENT, ENDS, as_columns, as_rows, matrix, positions, row_numbers, to_int64
from serve_app.api.codec.validation import (
    Limits,
    NeedsFullCheck,
    TooHeavy,
    create_snapshot,
    error_at,
    locate_error,
    parse_instant,
    parse_rows,
    pointer,
    policy,
    signals_of_table,
    snapshot_document,
)
from serve_app.api.schemas.base import LONGEST_CHANGE_REASON, LONGEST_KIND, MOST_REASON, UNPRINTABLE
from serve_app.errors import DocumentTooLarge, InvalidDocument, MalformedDocument

D = TypeVar("D")
R = TypeVar("R")
Number = float | None
Numbers = list[Number] | bytes | None
Ends = list[str | int] | bytes
Text = Annotated[str, Meta(max_length=LONGEST_CHANGE_REASON)]


class Metrics(Struct, forbid_unknown_fields=True, gc=False):
    """In the order of ``NODE_METRICS``."""

    request_rate: Number = ABSENT
    error_rate: Number = ABSENT
    p50_latency: Number = ABSENT
    p99_latency: Number = ABSENT
    cpu_utilization: Number = ABSENT
    memory_utilization: Number = ABSENT
    active_connections: Number = ABSENT


class Signals(Struct, forbid_unknown_fields=True, gc=False):
    """In the order of ``SignalKind``."""

    cpu_throttling: Number = ABSENT
    oom_kills: Number = ABSENT
    restarts: Number = ABSENT
    disk_pressure: Number = ABSENT
    pending_pods: Number = ABSENT
    queue_depth: Number = ABSENT
    cancelled: Number = ABSENT


class Service(Struct, forbid_unknown_fields=True, gc=False):
    namespace: str
    name: str
    metrics: Metrics | UnsetType | None = UNSET
    signals: Signals | UnsetType | None = UNSET


class Call(Struct, forbid_unknown_fields=True, gc=False):
    source: str
    destination: str
    requests_per_second: float
    error_rate: Number = ABSENT
    p50_latency: Number = ABSENT
    p99_latency: Number = ABSENT


class MetricColumns(Struct, forbid_unknown_fields=True):
    """In the order of ``NODE_METRICS``."""

    request_rate: Numbers | UnsetType = UNSET
    error_rate: Numbers | UnsetType = UNSET
    p50_latency: Numbers | UnsetType = UNSET
    p99_latency: Numbers | UnsetType = UNSET
    cpu_utilization: Numbers | UnsetType = UNSET
    memory_utilization: Numbers | UnsetType = UNSET
    active_connections: Numbers | UnsetType = UNSET


class SignalColumns(Struct, forbid_unknown_fields=True):
    """In the order of ``SignalKind``."""

    cpu_throttling: Numbers | UnsetType = UNSET
    oom_kills: Numbers | UnsetType = UNSET
    restarts: Numbers | UnsetType = UNSET
    disk_pressure: Numbers | UnsetType = UNSET
    pending_pods: Numbers | UnsetType = UNSET
    queue_depth: Numbers | UnsetType = UNSET
    cancelled: Numbers | UnsetType = UNSET


class ServiceColumns(Struct, forbid_unknown_fields=True):
    namespace: list[str]
    name: list[str]
    metrics: MetricColumns | UnsetType | None = UNSET
    signals: SignalColumns | UnsetType | None = UNSET


class CallColumns(Struct, forbid_unknown_fields=True):
    source: Ends
    destination: Ends
    requests_per_second: Numbers
    error_rate: Numbers | UnsetType = UNSET
    p50_latency: Numbers | UnsetType = UNSET
    p99_latency: Numbers | UnsetType = UNSET


class ChangeStruct(Struct, forbid_unknown_fields=True):
    kind: Annotated[str, Meta(min_length=1, max_length=LONGEST_KIND)]
    service: str
    reason: Text | UnsetType = UNSET


class Policy(Struct, forbid_unknown_fields=True):
    service: str
    sensitivity: Literal["low", "normal", "high"] | UnsetType | None = UNSET
    mute: Annotated[str, Meta(max_length=MOST_REASON)] | UnsetType = UNSET


class Snapshot(Struct, forbid_unknown_fields=True):
    """The result of typed decoders. In JSON the time stays text, so that its colons can be counted."""

    observed_at: Any
    services: list[Service] | ServiceColumns
    calls: list[Call] | CallColumns | UnsetType = UNSET
    changes: list[ChangeStruct] | UnsetType = UNSET
    policies: list[Policy] | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1, le=1)] | UnsetType = UNSET


class JsonSnapshot(Snapshot):
    observed_at: Annotated[str, Meta(max_length=64)]


class JsonSnapshots(Struct, forbid_unknown_fields=True):
    snapshots: list[JsonSnapshot]


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format of snapshots.

    Attributes:
        name: of the format.
        decode_one, decode_many: decode a correct body; raise ``NeedsFullCheck`` or ``ValueError`` for any other.
        parse: decode to dicts, lists, strings and numbers.
    """

    name: str
    decode_one: Callable[[bytes, Limits], MeshSnapshot]
    decode_many: Callable[[bytes, Limits], list[MeshSnapshot]]
    parse: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class ParsedSnapshot:
    """A snapshot with counts of its document.

    Attributes:
        snapshot: checked.
        keys: number of entries of all objects.
        colons: number of colons inside strings.
    """

    snapshot: MeshSnapshot
    keys: int
    colons: int


_BROKEN = (ValueError, RecursionError)  # raised by decoders; msgspec.DecodeError and UnicodeError are ValueErrors
_NO_METRICS, _NO_COLUMNS, _NO_SIGNAL_COLUMNS = Metrics(), MetricColumns(), SignalColumns()
_ONE, _MANY = msgspec.json.Decoder(JsonSnapshot).decode, msgspec.json.Decoder(JsonSnapshots).decode


def decode(form: BodyFormat, body: bytes, limits: Limits) -> MeshSnapshot:
    """Decode one snapshot. Errors as :func:`serve_app.api.codec.decode_snapshot`."""
    try:
        return form.decode_one(body, limits)
    except (*_BROKEN, NeedsFullCheck) as error:
        return _parse_rows(_parse(form, body, error), limits, "")


def decode_many(form: BodyFormat, body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """Decode ``{"snapshots": [...]}``. Errors as :func:`serve_app.api.codec.decode_snapshots`."""
    try:
        return form.decode_many(body, limits)
    except (*_BROKEN, NeedsFullCheck) as error:
        return _parse_many_rows(_parse(form, body, error), limits)


def parse(form: BodyFormat, body: bytes) -> Any:
    """Decode a body to dicts, lists, strings and numbers.

    Raises:
        MalformedDocument: the body is not in this format.
        InvalidDocument: a key is repeated.
        DocumentTooLarge: it would take far more memory than its size.
    """
    return _parse(form, body, None)


def _parse(form: BodyFormat, body: bytes, refused: Exception | None) -> Any:
    """As :func:`parse`; ``refused`` is the error of the typed decoder."""
    try:
        return form.parse(body)
    except TooHeavy:
        if isinstance(refused, msgspec.ValidationError):
            raise _first_mistake(refused) from None
        raise DocumentTooLarge(
            f"body: it has a mistake, but {len(body)} bytes hold too many values to search for its place; send "
            "the same mistake in a smaller document to get the place"
        ) from None
    except InvalidDocument:
        raise
    except _BROKEN as error:
        raise MalformedDocument(
            f"expected a {form.name} document, came {str(error)[:200]!r}; send UTF-8 {form.name}"
        ) from None


def _first_mistake(error: msgspec.ValidationError) -> InvalidDocument:
    """The mistake that a typed decoder stopped at, for a body that is too heavy to search for all mistakes."""
    detail, _, path = str(error).partition(" - at `$")
    place = [key or int(row) for key, row in _STEP.findall(path)]
    if missing := _MISSING.match(detail):
        return error_at(pointer((*place, missing[1])), f"{missing[1]!r} is required and was not given")
    return error_at(pointer(place), f"{detail[:200]}; correct it")


_STEP, _MISSING = re.compile(r"\.(\w+)|\[(\d+)\]"), re.compile("Object missing required field `(\\w+)`")


def encode_rows(snapshot: MeshSnapshot) -> bytes:
    """Encode as JSON with rows, for people to read."""
    return msgspec.json.encode(snapshot_document(snapshot))


def encode_columns(snapshot: MeshSnapshot) -> bytes:
    """Encode as MessagePack with columns as bytes."""
    return msgspec.msgpack.encode(as_columns(snapshot))


def node_ids(namespaces: list[str], names: list[str]) -> list[str]:
    """``namespace/name`` of each service.

    Raises:
        NeedsFullCheck: a namespace with a slash, an empty part, or columns of different lengths.
    """
    if len(namespaces) != len(names) or not all(n and "/" not in n for n in set(namespaces)):
        raise NeedsFullCheck
    return [f"{namespace}/{name}" for namespace, name in zip(namespaces, names, strict=True)]


def _parse_many_rows(document: Any, limits: Limits) -> list[MeshSnapshot]:
    given = document.get("snapshots") if isinstance(document, Mapping) else None
    if not isinstance(given, list) or len(document) > 1:
        detail = 'expected {"snapshots": [...]} and nothing else; put the snapshots into one list, oldest first'
        raise InvalidDocument(detail, pointer="/snapshots", errors=[{"pointer": "/snapshots", "detail": detail}])
    limits.check_snapshots(len(given))
    return [_parse_rows(snapshot, limits, f"/snapshots/{i}") for i, snapshot in enumerate(given)]


def _parse_rows(document: Any, limits: Limits, prefix: str) -> MeshSnapshot:
    try:
        rows = as_rows(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise locate_error(error, prefix) from None
    return parse_rows(rows, limits, prefix)


def _one_of_json(body: bytes, limits: Limits) -> MeshSnapshot:
    _require_light(body)
    read = _snapshot(_ONE(body), limits)
    _require_each_key_once(body, read.keys + read.colons)
    return read.snapshot


def _many_of_json(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    _require_light(body)
    documents = _MANY(body).snapshots
    limits.check_snapshots(len(documents))
    read = [_read_one(_snapshot, document, limits, i) for i, document in enumerate(documents)]
    _require_each_key_once(body, 1 + sum(one.keys + one.colons for one in read))
    return [one.snapshot for one in read]


def _require_light(body: bytes) -> None:
    """Refuse a body that would need too much memory. Typed decoders stop at the first mistake, so only long lists of
    short values can."""
    if len(body) > weight.TYPED_BYTES and not weight.fits(weight.typed_weight(body), len(body)):
        raise DocumentTooLarge(
            f"body: {len(body)} bytes hold so many small values that they would take more than {weight.FACTOR} times "
            "as much memory; correct the document, or split it"
        )


def _require_each_key_once(body: bytes, colons: int) -> None:
    """Raise ``NeedsFullCheck`` if a key may be repeated. A body with escapes is parsed, since one may be a colon."""
    if json_text.ESCAPE in body:
        try:
            json_text.parse(body)
        except TooHeavy:
            raise NeedsFullCheck from None
    elif json_text.count_colons(body) != colons:
        raise NeedsFullCheck


def _one_of_messagepack(body: bytes, limits: Limits) -> MeshSnapshot:
    parts = messagepack.parts(body, limits)
    read = _snapshot(_decode_typed(parts), limits)
    if parts.keys != read.keys:
        raise NeedsFullCheck
    return read.snapshot


def _many_of_messagepack(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    bodies = messagepack.split_snapshots(body, limits)
    return [_read_one(_one_of_messagepack, one, limits, i) for i, one in enumerate(bodies)]


def _read_one(read: Callable[[D, Limits], R], document: D, limits: Limits, i: int) -> R:
    """Read one of several snapshots; errors point into the list."""
    try:
        return read(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise locate_error(error, f"/snapshots/{i}") from None


_PACKED = {field.name: msgspec.msgpack.Decoder(field.type) for field in msgspec.structs.fields(Snapshot)}


def _decode_typed(parts: messagepack.Parts) -> Snapshot:
    return Snapshot(**{name: _PACKED[name].decode(raw) for name, raw in parts.fields.items()})


JSON = BodyFormat("JSON", _one_of_json, _many_of_json, json_text.parse)
MESSAGEPACK = BodyFormat("MessagePack", _one_of_messagepack, _many_of_messagepack, messagepack.parse)


def _snapshot(document: Snapshot, limits: Limits) -> ParsedSnapshot:
    services, calls = document.services, document.calls
    changes, policies = _given_rows(document.changes), _given_rows(document.policies)
    limits.check(changes=len(changes), policies=len(policies))
    if isinstance(services, list):
        ids, nodes, service_keys = _parse_service_rows(services, limits)
        signals, signal_keys = _parse_signal_rows(ids, services)
    else:
        limits.check(services=len(services.name))
        ids = node_ids(services.namespace, services.name)
        metrics = services.metrics or _NO_COLUMNS
        nodes, service_keys = (
            matrix(_columns(astuple(metrics)), len(ids)),
            _count_keys(services) + _count_keys(metrics),
        )
        signals, signal_keys = _parse_signal_columns(ids, services.signals or _NO_SIGNAL_COLUMNS)
    place = {name: i for i, name in enumerate(ids)}
    by_name = True
    if isinstance(calls, list):
        index, edges, call_keys = _parse_call_rows(calls, place, limits)
    elif isinstance(calls, CallColumns):
        by_name = bool(calls.source or calls.destination) and not _are_positions(calls)
        index, edges = _parse_call_columns(calls, place, limits)
        call_keys = _count_keys(calls)
    else:
        index, edges, call_keys = np.empty((2, 0), np.int64), np.empty((0, len(EDGE_METRICS)), np.float32), 0
    snapshot = create_snapshot(
        observed_at=parse_instant(document.observed_at),
        node_ids=ids,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        changes=[_change(change) for change in changes],
        policies=[_policy(one) for one in policies],
        signals=signals,
    )
    rows = (*changes, *policies)
    return ParsedSnapshot(
        snapshot,
        keys=_count_keys(document) + service_keys + signal_keys + call_keys + sum(map(_count_keys, rows)),
        colons=_count_name_colons(ids, index if by_name else None) + sum(map(_count_text_colons, (document, *rows))),
    )


def _given_rows(rows: list[Any] | UnsetType) -> list[Any]:
    return rows if isinstance(rows, list) else []


def _count_keys(struct: Struct) -> int:
    """Number of fields that were given."""
    return sum(getattr(struct, name) is not UNSET for name in struct.__struct_fields__)


def _count_text_colons(struct: Struct) -> int:
    """Number of colons in the texts of an object."""
    texts = (getattr(struct, name) for name in struct.__struct_fields__)
    return sum(text.count(":") for text in texts if isinstance(text, str))


def _count_name_colons(ids: list[str], index: NDArray[np.int64] | None) -> int:
    """Number of colons in the names of services and, if calls use names, of their ends."""
    if ":" not in "\n".join(ids):
        return 0
    counts = np.array([name.count(":") for name in ids])
    return int(counts.sum() + (0 if index is None else counts[index].sum()))


def _change(change: ChangeStruct) -> PlannedChange:
    reason = change.reason or ""
    if not change.kind.strip() or not is_service_name(change.service) or _is_unprintable(change.kind + reason):
        raise NeedsFullCheck
    return PlannedChange(change.kind, change.service, reason)


def _policy(one: Policy) -> ServicePolicy:
    mute = one.mute or ""
    if not is_services_name(one.service):
        raise NeedsFullCheck
    if _is_unprintable(mute):
        raise NeedsFullCheck
    return policy(one.service, one.sensitivity or None, mute)


def _is_unprintable(text: str) -> bool:
    return UNPRINTABLE.search(text) is not None


def _columns(columns: tuple[Numbers | UnsetType, ...]) -> list[Numbers]:
    return [None if column is UNSET else column for column in columns]


def _are_positions(calls: CallColumns) -> bool:
    return all(isinstance(ends, bytes) or not isinstance(ends[0], str) for ends in (calls.source, calls.destination))


def _parse_service_rows(services: list[Service], limits: Limits) -> tuple[list[str], NDArray[np.float32], int]:
    """Ids, metrics ``[N, 7]``, and the number of keys of the rows."""
    limits.check(services=len(services))
    ids = node_ids([s.namespace for s in services], [s.name for s in services])
    metrics = [s.metrics for s in services]
    nodes, given = row_numbers(list(chain.from_iterable(astuple(one or _NO_METRICS) for one in metrics)))
    keys = 3 * len(ids) - metrics.count(UNSET) + given
    return ids, nodes.reshape(len(ids), len(NODE_METRICS)), keys


def _parse_signal_rows(ids: list[str], services: list[Service]) -> tuple[list[Signal], int]:
    """Signals, and the number of keys that the rows have for them."""
    given = [(name, row.signals) for name, row in zip(ids, services, strict=True) if row.signals is not UNSET]
    if not given:
        return [], 0
    signals, keys = [], len(given)
    for name, one in given:
        values = astuple(one) if isinstance(one, Signals) else ()
        keys += len(values) - values.count(ABSENT)
        for kind, value in zip(SignalKind, values, strict=False):
            if value is None or value == ABSENT:
                continue
            if value != value:
                raise NeedsFullCheck
            signals.append(Signal(kind, name, value))
    return signals, keys


def _parse_signal_columns(ids: list[str], columns: SignalColumns) -> tuple[list[Signal], int]:
    """Signals, and the number of columns that were given."""
    keys = _count_keys(columns)
    return signals_of_table(ids, matrix(_columns(astuple(columns)), len(ids))) if keys else [], keys


def _parse_call_rows(calls: list[Call], place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any, int]:
    """Ends ``[2, E]``, metrics ``[E, 4]``, and the number of keys of the rows."""
    limits.check(calls=len(calls))
    sources: list[int] = []
    destinations: list[int] = []
    metrics: list[Number] = []
    try:
        for call in calls:  # Python reads attributes written out in code several times as fast as attrgetter
            sources.append(place[call.source])
            destinations.append(place[call.destination])
            metrics.append(call.requests_per_second)
            metrics.append(call.error_rate)
            metrics.append(call.p50_latency)
            metrics.append(call.p99_latency)
    except KeyError:
        raise NeedsFullCheck from None
    edges, given = row_numbers(metrics)
    index = to_int64(sources + destinations).reshape(len(ENDS), len(calls))
    return index, edges.reshape(len(calls), len(EDGE_METRICS)), len(ENDS) * len(calls) + given


def _parse_call_columns(calls: CallColumns, place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any]:
    limits.check(calls=len(calls.source) // (4 if isinstance(calls.source, bytes) else 1))
    source, destination = positions(calls.source, place), positions(calls.destination, place)
    if len(source) != len(destination):
        raise NeedsFullCheck
    columns = _columns(tuple(getattr(calls, name) for name in EDGE_METRICS))
    return np.stack([source, destination]), matrix(columns, len(source))
