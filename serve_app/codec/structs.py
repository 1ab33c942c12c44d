"""Snapshots in JSON and MessagePack, as rows or as columns.

What is plainly right goes from typed decoders straight into arrays. Whatever is not is decoded again without types and
left to :mod:`serve_app.codec.documents`, which finds every place that is wrong.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot, PlannedChange
from serve_app.codec.columns import as_columns, as_rows, matrix, numbers, positions
from serve_app.codec.documents import Limits, Unclear, checked, named, placed, policy, snapshot_document
from serve_app.errors import DocumentTooLarge, InvalidDocument, MalformedDocument
from serve_app.schemas import MOST_REASON, SERVICES

Number = float | None
Numbers = list[Number] | bytes | None
Ends = list[str | int] | bytes


class Metrics(Struct, forbid_unknown_fields=True, gc=False):
    request_rate: Number = None
    error_rate: Number = None
    p50_latency: Number = None
    p99_latency: Number = None
    cpu_utilization: Number = None
    memory_utilization: Number = None
    active_connections: Number = None


class Service(Struct, forbid_unknown_fields=True, gc=False):
    namespace: str
    name: str
    metrics: Metrics | None = None


class Call(Struct, forbid_unknown_fields=True, gc=False):
    source: str
    destination: str
    requests_per_second: float
    error_rate: Number = None
    p50_latency: Number = None
    p99_latency: Number = None


class MetricColumns(Struct, forbid_unknown_fields=True):
    request_rate: Numbers = None
    error_rate: Numbers = None
    p50_latency: Numbers = None
    p99_latency: Numbers = None
    cpu_utilization: Numbers = None
    memory_utilization: Numbers = None
    active_connections: Numbers = None


class ServiceColumns(Struct, forbid_unknown_fields=True):
    namespace: list[str]
    name: list[str]
    metrics: MetricColumns | None = None


class CallColumns(Struct, forbid_unknown_fields=True):
    source: Ends
    destination: Ends
    requests_per_second: Numbers
    error_rate: Numbers = None
    p50_latency: Numbers = None
    p99_latency: Numbers = None


class Change(Struct, forbid_unknown_fields=True):
    kind: Annotated[str, Meta(min_length=1)]
    service: str
    reason: str = ""


class Policy(Struct, forbid_unknown_fields=True):
    service: Annotated[str, Meta(pattern=SERVICES)]
    sensitivity: Literal["low", "normal", "high"] | None = None
    mute: Annotated[str, Meta(max_length=MOST_REASON)] = ""


class Snapshot(Struct, forbid_unknown_fields=True):
    observed_at: Annotated[datetime, Meta(tz=True)]
    services: list[Service] | ServiceColumns
    calls: list[Call] | CallColumns = []
    changes: list[Change] = []
    policies: list[Policy] = []
    version: Annotated[int, Meta(ge=1, le=1)] = 1


class Snapshots(Struct, forbid_unknown_fields=True):
    snapshots: list[Snapshot]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a snapshot: its name, decoders of one and of several, and one without types."""

    name: str
    one: Callable[[bytes], Snapshot]
    many: Callable[[bytes], Snapshots]
    plain: Callable[[bytes], Any]


JSON = Form(
    "JSON",
    msgspec.json.Decoder(Snapshot).decode,
    msgspec.json.Decoder(Snapshots).decode,
    lambda body: json.loads(body.decode("utf-8")),  # it takes NaN, so that its place can be told
)
MESSAGEPACK = Form(
    "MessagePack",
    msgspec.msgpack.Decoder(Snapshot).decode,
    msgspec.msgpack.Decoder(Snapshots).decode,
    msgspec.msgpack.Decoder().decode,
)
_BROKEN = (ValueError, RecursionError)  # what decoders raise; msgspec.DecodeError and UnicodeError are ValueErrors
_METRICS, _NO_METRICS = attrgetter(*NODE_METRICS), (None,) * len(NODE_METRICS)
_NO_COLUMNS = MetricColumns()


def decode(form: Form, body: bytes, limits: Limits) -> MeshSnapshot:
    """One snapshot. Errors as of :func:`serve_app.codec.decode_snapshot`."""
    try:
        return _snapshot(form.one(body), limits)
    except (*_BROKEN, Unclear):
        return _named(plain(form, body), limits, "")


def decode_many(form: Form, body: bytes, limits: Limits) -> list[MeshSnapshot]:
    """``{"snapshots": [...]}``. Errors as of :func:`serve_app.codec.decode_snapshots`."""
    try:
        return [_snapshot(snapshot, limits) for snapshot in form.many(body).snapshots]
    except (*_BROKEN, InvalidDocument, DocumentTooLarge, Unclear):
        return _named_many(plain(form, body), limits)


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


def plain(form: Form, body: bytes) -> Any:
    """Dicts, lists, strings and numbers; raises ``MalformedDocument``."""
    try:
        return form.plain(body)
    except _BROKEN as error:
        raise MalformedDocument(
            f"expected a {form.name} document, came {str(error)[:200]}; send UTF-8 {form.name}"
        ) from None


def _named_many(document: Any, limits: Limits) -> list[MeshSnapshot]:
    given = document.get("snapshots") if isinstance(document, Mapping) else None
    if not isinstance(given, list) or len(document) > 1:
        detail = 'expected {"snapshots": [...]} and nothing else; put them into one list, oldest first'
        raise InvalidDocument(detail, pointer="/snapshots", errors=[{"pointer": "/snapshots", "detail": detail}])
    return [_named(snapshot, limits, f"/snapshots/{i}") for i, snapshot in enumerate(given)]


def _named(document: Any, limits: Limits, prefix: str) -> MeshSnapshot:
    try:
        rows = as_rows(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise placed(error, prefix) from None
    return named(rows, limits, prefix)


def _snapshot(document: Snapshot, limits: Limits) -> MeshSnapshot:
    services, calls = document.services, document.calls
    if isinstance(services, list):
        limits.check(len(services), 0)
        ids = node_ids([s.namespace for s in services], [s.name for s in services])
        measured = [_NO_METRICS if s.metrics is None else _METRICS(s.metrics) for s in services]
        nodes = numbers([value for row in measured for value in row]).reshape(len(ids), len(NODE_METRICS))
    else:
        limits.check(len(services.name), 0)
        ids = node_ids(services.namespace, services.name)
        nodes = matrix(_METRICS(services.metrics or _NO_COLUMNS), len(ids))
    place = {name: i for i, name in enumerate(ids)}
    index, edges = _of_rows(calls, place, limits) if isinstance(calls, list) else _of_columns(calls, place, limits)
    return checked(
        observed_at=document.observed_at,
        node_ids=ids,
        edge_index=index,
        node_features=nodes,
        edge_features=edges,
        changes=[PlannedChange(c.kind, c.service, c.reason) for c in document.changes],
        policies=[policy(p.service, p.sensitivity, p.mute) for p in document.policies],
    )


def _of_rows(calls: list[Call], place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any]:
    limits.check(0, len(calls))
    try:
        index = np.array([[place[c.source] for c in calls], [place[c.destination] for c in calls]], np.int64)
    except KeyError:
        raise Unclear from None
    edges = np.stack([numbers(list(map(attrgetter(name), calls))) for name in EDGE_METRICS], axis=1)
    return index, edges


def _of_columns(calls: CallColumns, place: Mapping[str, int], limits: Limits) -> tuple[NDArray[np.int64], Any]:
    limits.check(0, len(calls.source) // (4 if isinstance(calls.source, bytes) else 1))
    source, destination = positions(calls.source, place), positions(calls.destination, place)
    if len(source) != len(destination):
        raise Unclear
    columns = [getattr(calls, name) for name in EDGE_METRICS]
    return np.stack([source, destination]), matrix(columns, len(source))
