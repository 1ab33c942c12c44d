"""The full check of a snapshot's document, which finds every mistake.

Bodies with a mistake end here in either format, so that the same mistake has the same text and JSON pointer in both.
Rows are checked in blocks, and the check stops at ``ERRORS_LISTED`` mistakes: the memory that it needs does not depend
on the number of mistakes.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from serve_app.api.codec.documents import ENDS
from serve_app.api.codec.limits import Limits
from serve_app.api.codec.mistakes import (
    ERRORS_LISTED,
    MAX_FIELDS,
    ROWS_EXPECTED,
    SHOWN,
    Mistake,
    abbreviate,
    describe_errors,
    describe_missing_field,
    error_at,
    errors_at,
    json_pointer,
    sentence_errors,
    unknown_fields,
)
from serve_app.api.schemas.base import Document, Instant, Version
from serve_app.api.schemas.snapshot import (
    CallDocument,
    ChangeDocument,
    PolicyDocument,
    ServiceDocument,
    SnapshotDocument,
)
from serve_app.errors import AheadOfClock


class _Head(Document):
    """The fields of a snapshot that are not lists."""

    version: Version = 1
    observed_at: Instant


INSTANT: TypeAdapter[datetime] = TypeAdapter(Instant)
ROWS: dict[str, TypeAdapter[list[Any]]] = {
    "services": TypeAdapter(list[ServiceDocument]),
    "calls": TypeAdapter(list[CallDocument]),
    "changes": TypeAdapter(list[ChangeDocument]),
    "policies": TypeAdapter(list[PolicyDocument]),
}
ROWS_AT_ONCE = 256  # in a block


def require_not_ahead(observed_at: datetime, now: datetime, max_seconds: float) -> None:
    """Refuse a time in the future: all later snapshots would be stale.

    Raises:
        AheadOfClock: ``observed_at`` is more than ``max_seconds`` after ``now``.
    """
    if (observed_at - now) / timedelta(seconds=1) > max_seconds:
        raise AheadOfClock(
            f"observed_at: {observed_at.isoformat()} is more than {max_seconds:g} s ahead of the service's clock, "
            f"{now.astimezone(UTC).isoformat(timespec='seconds')}; correct the clock or the time "
            "zone, or raise limits.max_ahead_seconds",
            pointer="/observed_at",
        )


def check_document(document: Any, limits: Limits) -> None:
    """Report the mistakes in a parsed document, up to ``ERRORS_LISTED``. The snapshot itself checks values and names.

    Raises:
        InvalidDocument: its content is wrong; ``details`` hold ``pointer`` and ``errors``.
        DocumentTooLarge: more services, calls, changes or policies than ``limits`` allow.
    """
    if not isinstance(document, Mapping):
        raise error_at("", f"expected an object with the fields of a snapshot, got {abbreviate(document)}")
    lists = {name: document.get(name, ()) for name in ROWS}
    limits.check(**{name: len(rows) for name, rows in lists.items() if isinstance(rows, list)})
    mistakes: list[Mistake] = []
    try:
        _Head.model_validate({name: document[name] for name in _Head.model_fields if name in document})
    except ValidationError as error:
        mistakes += describe_errors(error)
    if "services" not in document:
        mistakes.append(("/services", describe_missing_field("services")))
    ids: set[str] = set()
    ends: list[tuple[str, str]] = []
    for name, rows in lists.items():
        for block in _validate_blocks(name, rows, mistakes):
            if mistakes:  # the document is refused anyway
                continue
            if name == "services":
                ids.update(f"{row['namespace']}/{row['name']}" for row in block)
            elif name == "calls":
                ends += [(row["source"], row["destination"]) for row in block]
    mistakes += unknown_fields(document, SnapshotDocument.model_fields)
    if mistakes:
        raise errors_at(mistakes)
    problem = f"is not among the services ({len(ids)} given); add it or remove the call"
    unknown = [
        (f"/calls/{row}/{end}", f"call {row}: {end} {name[:SHOWN]!r} {problem}")
        for row, call in enumerate(ends)
        if not ids.issuperset(call)
        for end, name in zip(ENDS, call, strict=True)
        if name not in ids
    ]
    if unknown:
        raise sentence_errors(unknown[:ERRORS_LISTED])


def _validate_blocks(name: str, rows: Any, mistakes: list[Mistake]) -> Iterable[list[Any]]:
    """Yield a list's validated rows in blocks, until there are enough mistakes."""
    if isinstance(rows, Mapping):
        mistakes.append((f"/{name}", ROWS_EXPECTED))
        return
    if not isinstance(rows, list | tuple):
        mistakes.append((f"/{name}", f"Input should be a valid list, got {abbreviate(rows)}"))
        return
    for start in range(0, len(rows), ROWS_AT_ONCE):
        if len(mistakes) >= ERRORS_LISTED:
            return
        block = rows[start : start + ROWS_AT_ONCE]
        wide = [(i, place, count) for i, row in enumerate(block) for place, count in _find_wide(row)]
        if wide:
            mistakes += [
                (json_pointer((name, start + i, *place)), f"{count} fields are too many: the limit is {MAX_FIELDS}")
                for i, place, count in wide
            ]
            return
        try:
            yield ROWS[name].validate_python(block)
        except ValidationError as error:
            mistakes += describe_errors(error, (name,), start)


def _find_wide(row: Any) -> Iterable[tuple[tuple[str, ...], int]]:
    """A row's objects with too many fields to check one by one: place and number of fields."""
    if isinstance(row, Mapping):
        for place, fields in (((), row), *(((name,), row.get(name)) for name in ("metrics", "signals"))):
            if isinstance(fields, Mapping) and len(fields) > MAX_FIELDS:
                yield place, len(fields)
