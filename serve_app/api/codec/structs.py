"""Snapshots in JSON and MessagePack, as rows or as columns.

What is plainly right goes from typed decoders straight into arrays. Whatever is not is decoded again without types and
left to :mod:`serve_app.api.codec.validation`, which finds every place that is wrong.

Typed decoders take the last of two equal keys. So the keys that a snapshot gives are counted: JSON has a colon for
each, and MessagePack says how many each map has. Where the body has more, a key is repeated.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange, ServicePolicy, is_service_name
from serve_app.api.codec import json_text, messagepack
from serve_app.api.codec import memory as weight
from serve_app.api.codec.columns import ABSENT, ENDS, as_columns, as_rows, matrix, positions, row_numbers
from serve_app.api.codec.validation import (
    Limits,
    TooHeavy,
    Unclear,
    checked,
    instant,
    named,
    placed,
    pointer,
    policy,
    snapshot_document,
    wrong,
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
    request_rate: Number = ABSENT
    error_rate: Number = ABSENT
    p50_latency: Number = ABSENT
    p99_latency: Number = ABSENT
    cpu_utilization: Number = ABSENT
    memory_utilization: Number = ABSENT
    active_connections: Number = ABSENT


class Service(Struct, forbid_unknown_fields=True, gc=False):
    namespace: str
    name: str
    metrics: Metrics | UnsetType | None = UNSET


class Call(Struct, forbid_unknown_fields=True, gc=False):
    source: str
    destination: str
    requests_per_second: float
    error_rate: Number = ABSENT
    p50_latency: Number = ABSENT
    p99_latency: Number = ABSENT


class MetricColumns(Struct, forbid_unknown_fields=True):
    request_rate: Numbers | UnsetType = UNSET
    error_rate: Numbers | UnsetType = UNSET
    p50_latency: Numbers | UnsetType = UNSET
    p99_latency: Numbers | UnsetType = UNSET
    cpu_utilization: Numbers | UnsetType = UNSET
    memory_utilization: Numbers | UnsetType = UNSET
    active_connections: Numbers | UnsetType = UNSET


class ServiceColumns(Struct, forbid_unknown_fields=True):
    namespace: list[str]
    name: list[str]
    metrics: MetricColumns | UnsetType | None = UNSET


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
    """As typed decoders give it. JSON leaves the time a text, to count its colons."""

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
    """One way to write a snapshot.

    Attributes:
        name: of the form.
        one, many: the snapshots of a body that is plainly right; ``Unclear`` or ``ValueError`` for any other.
        plain: its dicts, lists, strings and numbers.
    """

    name: str
    one: Callable[[bytes, Limits], MeshSnapshot]
    many: Callable[[bytes, Limits], list[MeshSnapshot]]
    plain: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Read:
    """A snapshot and what its document gave.

    Attributes:
        snapshot: checked.
        keys: entries of all objects.
        colons: inside the strings.
    """

    snapshot: MeshSnapshot
    keys: int
    colons: int


_BROKEN = (ValueError, RecursionError)  # what decoders raise; msgspec.DecodeError and UnicodeError are ValueErrors
_METRICS, _NO_METRICS = attrgetter(*NODE_METRICS), (ABSENT,) * len(NODE_METRICS)
_NO_COLUMNS = MetricColumns()
_ONE, _MANY = msgspec.json.Decoder(JsonSnapshot).decode, msgspec.json.Decoder(JsonSnapshots).decode


def decode(form: BodyFormat, body: bytes, limits: Limits) -> MeshSnapshot:
    """One snapshot. Errors as of :func:`serve_app.api.codec.decode_snapshot`."""
    try:
        return form.one(body, limits)
    except (*_BROKEN, Unclear) as error:
        return _named(_plain(form, body, error), limits, "")


def decode_many(form: BodyFormat, body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """``{"snapshots": [...]}``. Errors as of :func:`serve_app.api.codec.decode_snapshots`."""
    try:
        return form.many(body, limits)
    except (*_BROKEN, Unclear) as error:
        return _named_many(_plain(form, body, error), limits)


def plain(form: BodyFormat, body: bytes) -> Any:
    """Dicts, lists, strings and numbers.

    Raises:
        MalformedDocument: it is not of this form.
        InvalidDocument: a key is given twice.
        DocumentTooLarge: it would take far more memory than its size.
    """
    return _plain(form, body, None)


def _plain(form: BodyFormat, body: bytes, refused: Exception | None) -> Any:
    """As :func:`plain`; ``refused`` says why the typed decoder did not take it."""
    try:
        return form.plain(body)
    except TooHeavy:
        if isinstance(refused, msgspec.ValidationError):
            raise _first_place(refused) from None
        raise DocumentTooLarge(
            f"body: something in it is wrong, and {len(body)} bytes hold too many values to look for the place; send "
            "the same mistake in a smaller document to learn the place"
        ) from None
    except InvalidDocument:
        raise
    except _BROKEN as error:
        raise MalformedDocument(
            f"expected a {form.name} document, came {str(error)[:200]!r}; send UTF-8 {form.name}"
        ) from None


def _first_place(error: msgspec.ValidationError) -> InvalidDocument:
    """The mistake that a typed decoder stopped at: of a body that is too heavy to look for all of them."""
    detail, _, path = str(error).partition(" - at `$")
    place = [key or int(row) for key, row in _STEP.findall(path)]
    if missing := _MISSING.match(detail):
        return wrong(pointer((*place, missing[1])), f"{missing[1]!r} is required and was not given")
    return wrong(pointer(place), f"{detail[:200]}; correct it")


_STEP, _MISSING = re.compile(r"\.(\w+)|\[(\d+)\]"), re.compile("Object missing required field `(\\w+)`")


def encode_rows(snapshot: MeshSnapshot) -> bytes:
    """JSON, rows: what people read and write."""
    return msgspec.json.encode(snapshot_document(snapshot))


def encode_columns(snapshot: MeshSnapshot) -> bytes:
    """MessagePack, columns as bytes."""
    return msgspec.msgpack.encode(as_columns(snapshot))


def node_ids(namespaces: list[str], names: list[str]) -> list[str]:
    """``namespace/name`` of each service.

    Raises:
        Unclear: a namespace with a slash, an empty part, or columns of different lengths.
    """
    if len(namespaces) != len(names) or not all(n and "/" not in n for n in set(namespaces)):
        raise Unclear
    return [f"{namespace}/{name}" for namespace, name in zip(namespaces, names, strict=True)]


def _named_many(document: Any, limits: Limits) -> list[MeshSnapshot]:
    given = document.get("snapshots") if isinstance(document, Mapping) else None
    if not isinstance(given, list) or len(document) > 1:
        detail = 'expected {"snapshots": [...]} and nothing else; put them into one list, oldest first'
        raise InvalidDocument(detail, pointer="/snapshots", errors=[{"pointer": "/snapshots", "detail": detail}])
    limits.check_snapshots(len(given))
    return [_named(snapshot, limits, f"/snapshots/{i}") for i, snapshot in enumerate(given)]


def _named(document: Any, limits: Limits, prefix: str) -> MeshSnapshot:
    try:
        rows = as_rows(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise placed(error, prefix) from None
    return named(rows, limits, prefix)


def _one_of_json(body: bytes, limits: Limits) -> MeshSnapshot:
    _require_light(body)
    read = _snapshot(_ONE(body), limits)
    _require_each_key_once(body, read.keys + read.colons)
    return read.snapshot


def _many_of_json(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    _require_light(body)
    documents = _MANY(body).snapshots
    limits.check_snapshots(len(documents))
    read = [_placed(_snapshot, document, limits, i) for i, document in enumerate(documents)]
    _require_each_key_once(body, 1 + sum(one.keys + one.colons for one in read))
    return [one.snapshot for one in read]


def _require_light(body: bytes) -> None:
    """Typed decoders stop at the first mistake, so only long lists of short values take much memory."""
    if len(body) > weight.TYPED_BYTES and not weight.fits(weight.typed_weight(body), len(body)):
        raise DocumentTooLarge(
            f"body: {len(body)} bytes hold so many small values that they would take more than {weight.FACTOR} times "
            "as much memory; correct the document, or split it"
        )


def _require_each_key_once(body: bytes, colons: int) -> None:
    """Raises ``Unclear`` where a key may be repeated. An escape may stand for a colon, so a body with one is parsed."""
    if json_text.ESCAPE in body:
        try:
            json_text.parse(body)
        except TooHeavy:
            raise Unclear from None
    elif json_text.count_colons(body) != colons:
        raise Unclear


def _one_of_messagepack(body: bytes, limits: Limits) -> MeshSnapshot:
    parts = messagepack.parts(body, limits)
    read = _snapshot(_typed(parts), limits)
    if parts.keys != read.keys:
        raise Unclear
    return read.snapshot


def _many_of_messagepack(body: bytes, limits: Limits) -> list[MeshSnapshot]:
    bodies = messagepack.several(body, limits)
    return [_placed(_one_of_messagepack, one, limits, i) for i, one in enumerate(bodies)]


def _placed(read: Callable[[D, Limits], R], document: D, limits: Limits, i: int) -> R:
    """One of several snapshots, its errors with their places among them."""
    try:
        return read(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise placed(error, f"/snapshots/{i}") from None


_PACKED = {field.name: msgspec.msgpack.Decoder(field.type) for field in msgspec.structs.fields(Snapshot)}


def _typed(parts: messagepack.Parts) -> Snapshot:
    return Snapshot(**{name: _PACKED[name].decode(raw) for name, raw in parts.fields.items()})


JSON = BodyFormat("JSON", _one_of_json, _many_of_json, json_text.parse)
MESSAGEPACK = BodyFormat("MessagePack", _one_of_messagepack, _many_of_messagepack, messagepack.parse)


def _snapshot(document: Snapshot, limits: Limits) -> Read:
    services, calls = document.services, document.calls
    changes, policies = _given_rows(document.changes), _given_rows(document.policies)
    limits.check(changes=len(changes), policies=len(policies))
    if isinstance(services, list):
        ids, nodes, service_keys = _of_service_rows(services, limits)
    else:
        limits.check(services=len(services.name))
        ids = node_ids(services.namespace, services.name)
        metrics = services.metrics or _NO_COLUMNS
        nodes, service_keys = matrix(_columns(_METRICS(metrics)), len(ids)), _keys(services) + _keys(metrics)
    place = {name: i for i, name in enumerate(ids)}
    by_name = True
    if isinstance(calls, list):
        index, edges, call_keys = _of_rows(calls, place, limits)
    elif isinstance(calls, CallColumns):
        by_name = bool(calls.source or calls.destination) and not _are_positions(calls)
        index, edges = _of_columns(calls, place, limits)
        call_keys = _keys(calls)
    else:
        index, edges, call_keys = np.empty((2, 0), np.int64), np.empty((0, len(EDGE_METRICS)), np.float32), 0
    snapshot = checked(
        observed_at=instant(document.observed_at),
        node_ids=ids,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        changes=[_change(change) for change in changes],
        policies=[_policy(one) for one in policies],
    )
    rows = (*changes, *policies)
    return Read(
        snapshot,
        keys=_keys(document) + service_keys + call_keys + sum(map(_keys, rows)),
        colons=_colons(ids, index if by_name else None) + sum(map(_colons_of, (document, *rows))),
    )


def _given_rows(rows: list[Any] | UnsetType) -> list[Any]:
    return rows if isinstance(rows, list) else []


def _keys(struct: Struct) -> int:
    """Fields that were given."""
    return sum(getattr(struct, name) is not UNSET for name in struct.__struct_fields__)


def _colons_of(struct: Struct) -> int:
    """Colons inside the texts of an object."""
    texts = (getattr(struct, name) for name in struct.__struct_fields__)
    return sum(text.count(":") for text in texts if isinstance(text, str))


def _colons(ids: list[str], index: NDArray[np.int64] | None) -> int:
    """Colons inside the names of services, and of the ends of calls where names stand for them."""
    if ":" not in "\n".join(ids):
        return 0
    counts = np.array([name.count(":") for name in ids])
    return int(counts.sum() + (0 if index is None else counts[index].sum()))


def _change(change: ChangeStruct) -> PlannedChange:
    reason = change.reason or ""
    if not change.kind.strip() or not is_service_name(change.service) or _is_unprintable(change.kind + reason):
        raise Unclear
    return PlannedChange(change.kind, change.service, reason)


def _policy(one: Policy) -> ServicePolicy:
    mute = one.mute or ""
    if not is_service_name(one.service.removesuffix("/*") + "/all" * one.service.endswith("/*")):
        raise Unclear
    if _is_unprintable(mute):
        raise Unclear
    return policy(one.service, one.sensitivity or None, mute)


def _is_unprintable(text: str) -> bool:
    return UNPRINTABLE.search(text) is not None


def _columns(columns: tuple[Numbers | UnsetType, ...]) -> list[Numbers]:
    return [None if column is UNSET else column for column in columns]


def _are_positions(calls: CallColumns) -> bool:
    return all(isinstance(ends, bytes) or not isinstance(ends[0], str) for ends in (calls.source, calls.destination))


def _of_service_rows(services: list[Service], limits: Limits) -> tuple[list[str], NDArray[np.float32], int]:
    """Ids, metrics ``[N, 7]`` and how many keys the rows have."""
    limits.check(services=len(services))
    ids = node_ids([s.namespace for s in services], [s.name for s in services])
    metrics = [s.metrics for s in services]
    measured = [_METRICS(one) if one else _NO_METRICS for one in metrics]
    nodes, given = row_numbers([value for row in measured for value in row])
    keys = 3 * len(ids) - metrics.count(UNSET) + given
    return ids, nodes.reshape(len(ids), len(NODE_METRICS)), keys


def _of_rows(calls: list[Call], place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any, int]:
    """Ends ``[2, E]``, metrics ``[E, 4]`` and how many keys the rows have."""
    limits.check(calls=len(calls))
    try:
        index = np.array([[place[c.source] for c in calls], [place[c.destination] for c in calls]], np.int64)
    except KeyError:
        raise Unclear from None
    columns = [row_numbers(list(map(attrgetter(name), calls))) for name in EDGE_METRICS]
    keys = len(ENDS) * len(calls) + sum(given for _, given in columns)
    return index, np.stack([values for values, _ in columns], axis=1), keys


def _of_columns(calls: CallColumns, place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any]:
    limits.check(calls=len(calls.source) // (4 if isinstance(calls.source, bytes) else 1))
    source, destination = positions(calls.source, place), positions(calls.destination, place)
    if len(source) != len(destination):
        raise Unclear
    columns = _columns(tuple(getattr(calls, name) for name in EDGE_METRICS))
    return np.stack([source, destination]), matrix(columns, len(source))
