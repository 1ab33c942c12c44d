"""The full check of a snapshot as a document of rows, which finds every mistake.

Bodies of all formats with a mistake end here, so that the same mistake has the same text and JSON pointer in every
format. Rows are checked in blocks, and the check stops at ``ERRORS_LISTED`` mistakes: the memory that it needs does not
depend on the number of mistakes.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from model.errors import InvalidSnapshot
from model.names import NAME_RULE, escape_name, escape_namespace, find_bad_name
from model.snapshot import (
    EDGE_METRICS,
    LARGEST_VALUE,
    NODE_METRICS,
    MeshSnapshot,
    PlannedChange,
    Sensitivity,
    ServicePolicy,
    Signal,
    SignalKind,
)
from serve_app.api.schemas.base import Document, Instant, Version
from serve_app.api.schemas.snapshot import (
    CallDocument,
    ChangeDocument,
    PolicyDocument,
    ServiceDocument,
    SnapshotDocument,
    StoredChangeDocument,
)
from serve_app.errors import AheadOfClock, DocumentTooLarge, InvalidDocument


class NeedsFullCheck(Exception):
    """The fast path found a mistake: the full check must find its place."""


class TooHeavy(Exception):
    """Decoded to dicts and lists, the body would take more memory than a body of this size may."""


class _Head(Document):
    """The fields of a snapshot that are not lists."""

    version: Version = 1
    observed_at: Instant


Model = TypeVar("Model", bound=Document)
_INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)
_ROWS: dict[str, TypeAdapter[list[Any]]] = {
    "services": TypeAdapter(list[ServiceDocument]),
    "calls": TypeAdapter(list[CallDocument]),
    "changes": TypeAdapter(list[ChangeDocument]),
    "policies": TypeAdapter(list[PolicyDocument]),
}
ERRORS_LISTED = 20  # of a document with thousands of mistakes, a client needs only the first few
ROWS_AT_ONCE = 256  # in a block
MOST_FIELDS = 32  # of one row; more cannot be typing errors
ALL_ROWS = slice(None)
SHOWN = 80  # characters of a value in an error
_SHOWN_ITEMS, _SHOWN_DEPTH = 4, 2
_End = Literal["source", "destination"]
_ENDS: tuple[_End, _End] = ("source", "destination")
_WIRE_PLACES = {"nodes": "services", "edges": "calls"}
_WIRE_WORDS = {"node": "service", "edge": "call"}


@runtime_checkable
class Rows(Protocol):
    """Rows that are built on demand."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> list[Any]:
        """The rows from ``start`` to before ``stop``."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest counts that one document may have; None: any."""

    max_services: int | None = None
    max_calls: int | None = None
    max_changes: int | None = None
    max_policies: int | None = None
    max_snapshots: int | None = None

    def check(self, services: int = 0, calls: int = 0, changes: int = 0, policies: int = 0) -> None:
        """Check the counts of one snapshot.

        Raises:
            DocumentTooLarge: a count is above its limit.
        """
        counts = {"services": services, "calls": calls, "changes": changes, "policies": policies}
        for what, count in counts.items():
            limit = getattr(self, f"max_{what}")
            if limit is not None and count > limit:
                advice = "split the mesh" if what in ("services", "calls") else "send fewer"
                raise DocumentTooLarge(
                    f"{what}: expected at most {limit}, came {count}; raise limits.max_{what} or {advice}",
                    pointer=f"/{what}",
                )

    def check_snapshots(self, count: int) -> None:
        """Check the number of snapshots in one body. Raises ``DocumentTooLarge``."""
        if self.max_snapshots is not None and count > self.max_snapshots:
            raise DocumentTooLarge(
                f"snapshots: expected at most {self.max_snapshots}, came {count}; send the newest ones, or raise "
                "limits.max_snapshots",
                pointer="/snapshots",
            )


@dataclass(slots=True)
class _Mistakes:
    """The first mistakes of a document."""

    listed: list[dict[str, str]] = field(default_factory=list)
    count: int = 0

    def add(self, errors: Iterable[tuple[str, str]]) -> None:
        for where, detail in errors:
            self.count += 1
            if len(self.listed) < ERRORS_LISTED:
                self.listed.append({"pointer": where, "detail": detail})

    @property
    def are_enough(self) -> bool:
        return self.count >= ERRORS_LISTED

    def require_none(self) -> None:
        """Raise ``InvalidDocument`` if there is a mistake."""
        if not self.listed:
            return
        first = self.listed[0]
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        raise InvalidDocument(
            f"{first['pointer'] or 'document'}: {first['detail']}{more}", pointer=first["pointer"], errors=self.listed
        )


def require_not_ahead(observed_at: datetime, now: datetime, most_seconds: float) -> None:
    """Refuse a time in the future: all later snapshots would be stale.

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


def parse_rows(document: Any, limits: Limits, prefix: str = "") -> MeshSnapshot:
    """Parse a document of rows, and list its mistakes, up to ``ERRORS_LISTED``.

    Args:
        document: dicts, lists, strings and numbers; services and calls may be ``Rows``.
        limits: for the counts.
        prefix: JSON pointer to the document, if it is one of several.

    Raises:
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services, calls, changes or policies than ``limits`` allow.
    """
    try:
        return _from_document(document, limits)
    except (InvalidDocument, DocumentTooLarge) as error:
        raise locate_error(error, prefix) from None


def parse_instant(value: Any) -> datetime:
    """Parse a time with a zone.

    Raises:
        NeedsFullCheck: anything else.
    """
    try:
        return _INSTANT.validate_python(value)
    except ValidationError:
        raise NeedsFullCheck from None


def create_snapshot(**arrays: Any) -> MeshSnapshot:
    """Call :meth:`MeshSnapshot.create` with the stricter rules of documents for names and values. Errors point into the
    document.

    Raises:
        InvalidDocument: lists the mistakes and their places.
    """
    if (bad := find_bad_name(arrays["node_ids"])) is not None:
        written = escape_namespace(bad.text) if bad.part == "namespace" else escape_name(bad.text)
        hint = f"; write {written}" if written else ""
        message = f"expected {NAME_RULE}; came {abbreviate(bad.text)}{hint}"
        raise error_at(f"/services/{bad.position}/{bad.part}", message)
    try:
        snapshot = MeshSnapshot.create(**arrays)
    except InvalidSnapshot as error:
        raise _translate_error(error) from error
    _require_possible(snapshot.node_features, NODE_METRICS, ("services", "service"), ("metrics",))
    _require_possible(snapshot.edge_features, EDGE_METRICS, ("calls", "call"), ())
    return snapshot


def _require_possible(
    values: NDArray[np.float32], names: Sequence[str], words: tuple[str, str], inside: tuple[str, ...]
) -> None:
    """Raise ``InvalidDocument`` for the first value above ``LARGEST_VALUE``."""
    largest = np.float32(LARGEST_VALUE)
    if not values.size or values.max() <= largest:
        return
    row, column = (int(i) for i in np.argwhere(values > largest)[0])
    raise error_at(
        pointer((words[0], row, *inside, names[column])),
        f"{words[1]} {row}: {names[column]}: expected at most {LARGEST_VALUE:g}, came {values[row, column]:g}; "
        "correct the unit, or leave out what was not observed",
    )


def _from_document(document: Any, limits: Limits) -> MeshSnapshot:
    if not isinstance(document, Mapping):
        raise error_at("", f"expected an object with the fields of a snapshot, came {abbreviate(document)}")
    lists = {name: document.get(name, ()) for name in _ROWS}
    limits.check(**{name: len(rows) for name, rows in lists.items() if isinstance(rows, list | Rows)})
    mistakes = _Mistakes()
    head = _parse_head(document, mistakes)
    services, calls = _Services(mistakes), _Calls(mistakes)
    few: dict[str, list[Any]] = {"changes": [], "policies": []}
    if "services" not in document:
        mistakes.add([("/services", "'services' is required and was not given")])
    takers = {"services": services.take, "calls": calls.take} | {name: rows.extend for name, rows in few.items()}
    for name, take in takers.items():
        for rows in _validate_blocks(name, lists[name], mistakes):
            take(rows)
    mistakes.add(unknown_fields(document, SnapshotDocument.model_fields))
    mistakes.require_none()
    assert head is not None  # else require_none() has raised
    return create_snapshot(
        node_ids=services.ids,
        edge_index=calls.edge_index(services.ids),
        node_features=_stack(services.features, NODE_METRICS),
        edge_features=_stack(calls.features, EDGE_METRICS),
        observed_at=head.observed_at,
        changes=[PlannedChange(change.kind, change.service, change.reason) for change in few["changes"]],
        policies=[policy(one.service, one.sensitivity, one.mute) for one in few["policies"]],
        signals=services.signals,
    )


def _parse_head(document: Mapping[str, Any], mistakes: _Mistakes) -> _Head | None:
    try:
        return _Head.model_validate({name: document[name] for name in _Head.model_fields if name in document})
    except ValidationError as error:
        mistakes.add(_describe_errors(error))
        return None


def _validate_blocks(name: str, rows: Any, mistakes: _Mistakes) -> Iterable[list[Any]]:
    """Yield the validated rows of a list in blocks, until there are enough mistakes."""
    if not isinstance(rows, list | tuple | Rows):
        mistakes.add([(f"/{name}", f"Input should be a valid list, came {abbreviate(rows)}")])
        return
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if mistakes.are_enough:
            return
        stop = min(start + ROWS_AT_ONCE, len(rows))
        some = rows.read(start, stop) if isinstance(rows, Rows) else rows[start:stop]
        wide = [(i, where, of) for i, row in enumerate(some) for where, of in _find_wide(row)]
        if wide:
            mistakes.add(
                (pointer((name, start + i, *where)), f"expected at most {MOST_FIELDS} fields, came {of}")
                for i, where, of in wide
            )
            return
        try:
            yield _ROWS[name].validate_python(some)
        except ValidationError as error:
            mistakes.add(_describe_errors(error, (name,), start))


def _find_wide(row: Any) -> Iterable[tuple[tuple[str, ...], int]]:
    """The objects of a row with too many fields to check one by one: place and number of fields."""
    if isinstance(row, Mapping):
        for where, inner in (((), row), *(((name,), row.get(name)) for name in ("metrics", "signals"))):
            if isinstance(inner, Mapping) and len(inner) > MOST_FIELDS:
                yield where, len(inner)


@dataclass(slots=True)
class _Services:
    """Collects checked services: ids, blocks of metrics, and signals."""

    mistakes: _Mistakes
    ids: list[str] = field(default_factory=list)
    features: list[NDArray[np.float32]] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)

    def take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not self.mistakes.listed:  # else the document is refused anyway
            self.ids += [f"{row['namespace']}/{row['name']}" for row in rows]
            self.features.append(_columns([row.get("metrics") or {} for row in rows], NODE_METRICS))
            for name, given in ((f"{row['namespace']}/{row['name']}", row.get("signals") or {}) for row in rows):
                self.signals += [
                    Signal(SignalKind(kind), name, value) for kind, value in given.items() if value is not None
                ]


@dataclass(slots=True)
class _Calls:
    """Collects checked calls: names of their ends, and blocks of metrics."""

    mistakes: _Mistakes
    ends: list[tuple[str, str]] = field(default_factory=list)
    features: list[NDArray[np.float32]] = field(default_factory=list)

    def take(self, rows: Sequence[CallDocument]) -> None:
        if not self.mistakes.listed:
            self.ends += [(row["source"], row["destination"]) for row in rows]
            self.features.append(_columns(rows, EDGE_METRICS))

    def edge_index(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Positions of both ends of each call.

        Raises:
            InvalidDocument: an end is not among the services.
        """
        position = {name: i for i, name in enumerate(ids)}
        index = np.array([[position.get(end, -1) for end in ends] for ends in self.ends], np.int64).reshape(-1, 2)
        unknown = np.argwhere(index < 0)[:ERRORS_LISTED].tolist()
        if unknown:
            errors = [_unknown_end(self.ends[row][end], row, _ENDS[end], len(ids)) for row, end in unknown]
            raise InvalidDocument(errors[0]["detail"], pointer=errors[0]["pointer"], errors=errors)
        return index.T


def _stack(blocks: Sequence[NDArray[np.float32]], names: Sequence[str]) -> NDArray[np.float32]:
    return np.concatenate(blocks) if blocks else np.empty((0, len(names)), np.float32)


def unknown_fields(document: Mapping[Any, Any], known: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The first unknown fields of a document: pointer and detail."""
    unknown = (name for name in document if name not in known)
    return [(pointer((name,)), describe_unknown_field(name)) for name in islice(unknown, ERRORS_LISTED)]


def validate_document(document: Any, model: type[Model]) -> Model:
    """Validate a document against its model. Of very many unknown fields, only the first are listed.

    Raises:
        InvalidDocument: lists the mistakes and their places.
    """
    if isinstance(document, Mapping) and len(document) > MOST_FIELDS:
        mistakes = _Mistakes()
        mistakes.add(unknown_fields(document, model.model_fields))
        mistakes.require_none()
    try:
        return model.model_validate(document)
    except ValidationError as error:
        mistakes = _Mistakes()
        mistakes.add(_describe_errors(error))
        mistakes.require_none()
        raise  # unreachable: a validation error has at least one place


def locate_error(error: InvalidDocument | DocumentTooLarge, prefix: str) -> InvalidDocument | DocumentTooLarge:
    """The error with its pointers moved below a prefix."""
    if not prefix:
        return error
    errors = [{**e, "pointer": prefix + e["pointer"]} for e in error.details.get("errors", ())]
    where = prefix + error.details.get("pointer", "")
    return type(error)(f"{prefix}: {error.message}", pointer=where, errors=errors)


def error_at(where: str, detail: str) -> InvalidDocument:
    """The error for one mistake."""
    message = f"{where or 'document'}: {detail}"
    return InvalidDocument(message, pointer=where, errors=[{"pointer": where, "detail": detail}])


def errors_at(errors: Iterable[tuple[str, str]]) -> InvalidDocument:
    """The error for several mistakes: pointer and detail of each."""
    mistakes = _Mistakes()
    mistakes.add(errors)
    first = mistakes.listed[0]
    return InvalidDocument(f"{first['pointer']}: {first['detail']}", pointer=first["pointer"], errors=mistakes.listed)


def _describe_errors(error: ValidationError, place: tuple[str, ...] = (), first_row: int = 0) -> list[tuple[str, str]]:
    """Pointer and detail of each error of pydantic. Rows are counted from ``first_row`` of ``place``."""
    found = error.errors(include_url=False, include_context=False)
    if not place:
        return [(pointer(e["loc"]), _detail(e)) for e in found]
    return [(pointer((*place, first_row + int(e["loc"][0]), *e["loc"][1:])), _detail(e)) for e in found]


def snapshot_document(snapshot: MeshSnapshot) -> dict[str, Any]:
    """The JSON document of a snapshot, as a client sends it. Numbers have the fewest digits that read back as the same
    float32; unobserved values are left out."""
    document: dict[str, Any] = {
        "observed_at": snapshot.observed_at.isoformat(),
        "services": service_documents(snapshot),
        "calls": call_documents(snapshot),
    }
    if snapshot.changes:
        document["changes"] = [change_document(change).model_dump() for change in snapshot.changes]
    if snapshot.policies:
        document["policies"] = [_policy_document(one) for one in snapshot.policies]
    return document


def service_documents(snapshot: MeshSnapshot, rows: slice = ALL_ROWS) -> list[dict[str, Any]]:
    """The documents of these services of a snapshot."""
    metrics = _metric_dicts(NODE_METRICS, snapshot.node_features[rows], snapshot.node_observed[rows])
    documents: list[dict[str, Any]] = [
        dict(zip(("namespace", "name"), name.split("/", 1), strict=True), metrics=of_service)
        for name, of_service in zip(snapshot.node_ids[rows], metrics, strict=True)
    ]
    if snapshot.signals:
        of_name = dict(zip(snapshot.node_ids[rows], documents, strict=True))
        for signal in snapshot.signals:
            if signal.service in of_name:
                of_name[signal.service].setdefault("signals", {})[signal.kind.value] = signal.value
    return documents


def signals_of_table(ids: Sequence[str], table: NDArray[np.float32]) -> list[Signal]:
    """Signals from values ``[N, 7]`` in the order of ``SignalKind``; NaN: not measured."""
    kinds = list(SignalKind)
    measured = zip(*(at.tolist() for at in np.nonzero(table == table)), strict=True)
    return [Signal(kinds[kind], ids[row], float(table[row, kind])) for row, kind in measured]


def table_of_signals(snapshot: MeshSnapshot) -> NDArray[np.float32]:
    """Values of the signals ``[N, 7]`` in the order of ``SignalKind``; NaN: not measured."""
    table = np.full((snapshot.num_nodes, len(SignalKind)), np.nan, np.float32)
    row, column = ({name: i for i, name in enumerate(of)} for of in (snapshot.node_ids, SignalKind))
    for signal in snapshot.signals:
        table[row[signal.service], column[signal.kind]] = signal.value
    return table


def call_documents(snapshot: MeshSnapshot, rows: slice = ALL_ROWS) -> list[dict[str, Any]]:
    """The documents of these calls of a snapshot."""
    metrics = _metric_dicts(EDGE_METRICS, snapshot.edge_features[rows], snapshot.edge_observed[rows])
    return [
        {"source": snapshot.node_ids[source], "destination": snapshot.node_ids[destination], **of_call}
        for (source, destination), of_call in zip(snapshot.edge_index[:, rows].T.tolist(), metrics, strict=True)
    ]


def policy(service: str, sensitivity: str | None, mute: str) -> ServicePolicy:
    """Build a policy. Raises ``ValueError`` for an unknown sensitivity."""
    return ServicePolicy(service, None if sensitivity is None else Sensitivity(sensitivity), mute)


def _columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> NDArray[np.float32]:
    """``[rows, names]``, NaN for absent or null. Values beyond float32 become infinite, which the check of the snapshot
    refuses."""
    table = np.empty((len(rows), len(names)), np.float64)
    for column, name in enumerate(names):
        table[:, column] = [row.get(name, math.nan) for row in rows]
    return to_float32(table)


def to_float32(exact: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32. Rounding never moves an invalid value into range: values beyond float32 become
    infinite, and values below 0 or above ``LARGEST_VALUE`` stay there. The check of the snapshot refuses them all."""
    with np.errstate(over="ignore", under="ignore"):
        values: NDArray[np.float32] = exact.astype(np.float32)
    vanished = (values == 0) & (exact < 0)
    if vanished.any():
        values[vanished] = -np.finfo(np.float32).smallest_subnormal
    beyond = exact > LARGEST_VALUE
    if beyond.any():
        values[beyond] = np.maximum(values[beyond], np.nextafter(np.float32(LARGEST_VALUE), np.float32(np.inf)))
    return values


def _unknown_end(name: str, row: int, end: _End, services: int) -> dict[str, str]:
    return {
        "pointer": f"/calls/{row}/{end}",
        "detail": f"call {row}: {end} {name[:SHOWN]!r} is not among the services ({services} given); "
        "add it or remove the call",
    }


def _translate_error(error: InvalidSnapshot) -> InvalidDocument:
    """The model's error with the terms and places of the document."""
    place: tuple[Any, ...] = error.details.get("place", ())
    message = error.message
    if place and place[0] == "nodes" and len(place) == 3:
        where = pointer(("services", place[1], "metrics", place[2]))
    else:
        where = pointer((_WIRE_PLACES.get(place[0], place[0]), *place[1:]) if place else ())
    for inside, outside in _WIRE_WORDS.items():
        if len(place) > 1 and message.startswith(f"{inside} {place[1]}"):
            message = outside + message.removeprefix(inside)
    return InvalidDocument(message, pointer=where, errors=[{"pointer": where, "detail": message}])


def pointer(place: Sequence[Any]) -> str:
    """JSON pointer, RFC 6901. Characters that UTF-8 cannot encode are escaped."""
    parts = (str(part)[:SHOWN].encode("utf-8", "backslashreplace").decode() for part in place)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _detail(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return describe_unknown_field(error["loc"][-1])
    if error["type"] == "missing":
        return f"{error['loc'][-1]!r} is required and was not given"
    return f"{error['msg'].removeprefix('Value error, ')}, came {abbreviate(error['input'])}"


def describe_unknown_field(name: Any) -> str:
    """The detail of the error for an unknown field."""
    return f"{str(name)[:SHOWN]!r} is not a field of this document; correct the name or remove the field"


def abbreviate(value: Any) -> str:
    """A value as short JSON, for errors. MessagePack allows keys that JSON cannot write."""
    try:
        return json.dumps(_cut(value, _SHOWN_DEPTH), default=str)[:SHOWN]
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that JSON cannot write"


def _cut(value: Any, depth: int) -> Any:
    """The beginning of a value."""
    if isinstance(value, str | bytes):
        return value[:SHOWN]
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return "..."
    if isinstance(value, list):
        return [_cut(item, depth - 1) for item in value[:_SHOWN_ITEMS]]
    return {_cut(key, 0): _cut(inner, depth - 1) for key, inner in islice(value.items(), _SHOWN_ITEMS)}


def _metric_dicts(
    names: Sequence[str], values: NDArray[np.float32], observed: NDArray[np.bool_]
) -> list[dict[str, float]]:
    return [
        {name: value for name, value, present in zip(names, row, mask, strict=True) if present}
        for row, mask in zip(_to_short_decimals(values).tolist(), observed.tolist(), strict=True)
    ]


def _to_short_decimals(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The doubles with the shortest text that read back as these float32: 0.1, not 0.10000000149011612.

    Tries decimals of 6 to 9 digits: 6 always survive float32, 9 always distinguish two values (C's FLT_DIG and
    FLT_DECIMAL_DIG). Where powers of ten are inexact in a double (below 1e-14, above 1e28), more digits may remain.
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


def change_document(change: PlannedChange) -> StoredChangeDocument:
    """The document of a planned change."""
    return StoredChangeDocument(kind=change.kind, service=change.service, reason=change.reason)


def _policy_document(one: ServicePolicy) -> dict[str, str]:
    given = {"service": one.service, "sensitivity": one.sensitivity and one.sensitivity.value, "mute": one.mute}
    return {name: value for name, value in given.items() if value is not None}
