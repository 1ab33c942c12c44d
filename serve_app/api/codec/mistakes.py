"""Mistakes in a document: where, and what is wrong. Both formats report them with the same texts and JSON pointers."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from serve_app.api.schemas.base import Document
from serve_app.errors import DocumentTooLarge, InvalidDocument, MalformedDocument

ERRORS_LISTED = 20  # a client needs only the first few of many mistakes
MAX_FIELDS = 32  # in one row; more cannot be typing errors
SHOWN = 80  # characters of a value in an error
ROWS_EXPECTED = (
    "expected a list of rows, got an object; columns are not read: send rows, as SnapshotDocument in /openapi.json "
    "describes them"
)
_SHOWN_ITEMS, _SHOWN_DEPTH = 4, 2
Model = TypeVar("Model", bound=Document)


class NeedsFullCheck(Exception):
    """The typed path found a mistake: :mod:`serve_app.api.codec.validation` must find its place."""


Mistake = tuple[str, str]  # JSON pointer and detail


def error_at(pointer: str, detail: str) -> InvalidDocument:
    return errors_at([(pointer, detail)])


def errors_at(mistakes: Iterable[Mistake]) -> InvalidDocument:
    """The error for several mistakes, with places in its message; it lists the first ones."""
    mistakes = list(mistakes)
    (pointer, detail), more = mistakes[0], f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return _error(f"{pointer or 'document'}: {detail}{more}", mistakes[:ERRORS_LISTED])


def sentence_errors(mistakes: Sequence[Mistake]) -> InvalidDocument:
    """The error for mistakes whose details are whole sentences with their place; its message is the first one."""
    return _error(mistakes[0][1], mistakes)


def _error(message: str, mistakes: Sequence[Mistake]) -> InvalidDocument:
    errors = [{"pointer": pointer, "detail": detail} for pointer, detail in mistakes]
    return InvalidDocument(message, pointer=mistakes[0][0], errors=errors)


def refuse_names(names: Iterable[tuple[str, str]], known_names: Set[str], problem: str) -> None:
    """Raise ``InvalidDocument`` for unknown names, given with their pointers; ``problem`` says what they are not."""
    mistakes = [
        (pointer, f"{pointer}: {name[:SHOWN]!r} {problem}") for pointer, name in names if name not in known_names
    ]
    if mistakes:
        raise sentence_errors(mistakes)


@contextmanager
def prefix_pointers(prefix: str) -> Iterator[None]:
    """Put a prefix before the pointers of mistakes in one of several documents."""
    try:
        yield
    except (InvalidDocument, DocumentTooLarge) as error:
        if isinstance(error, MalformedDocument):
            raise
        errors = [{**mistake, "pointer": prefix + mistake["pointer"]} for mistake in error.details.get("errors", ())]
        pointer = prefix + error.details.get("pointer", "")
        raise type(error)(f"{prefix}: {error.message}", pointer=pointer, errors=errors) from None


def validate_document(document: Any, model: type[Model]) -> Model:
    """Validate a document against its model. Only the first of very many unknown fields are listed.

    Raises:
        InvalidDocument: lists the mistakes and their places.
    """
    is_wide = isinstance(document, Mapping) and len(document) > MAX_FIELDS
    if is_wide and (unknown := unknown_fields(document, model.model_fields)):
        raise errors_at(unknown)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise errors_at(describe_errors(error)) from None


def describe_errors(error: ValidationError, place: tuple[str, ...] = (), first_row: int = 0) -> list[Mistake]:
    """Pointer and detail of each pydantic error. Row numbers begin at ``first_row`` of ``place``."""
    details = error.errors(include_url=False, include_context=False)
    if not place:
        return [(json_pointer(detail["loc"]), _detail(detail)) for detail in details]
    return [
        (json_pointer((*place, first_row + int(detail["loc"][0]), *detail["loc"][1:])), _detail(detail))
        for detail in details
    ]


def _detail(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return describe_unknown_field(error["loc"][-1])
    if error["type"] == "missing":
        return describe_missing_field(error["loc"][-1])
    return f"{error['msg'].removeprefix('Value error, ')}, got {abbreviate(error['input'])}"


def unknown_fields(document: Mapping[Any, Any], fields: Iterable[str]) -> list[Mistake]:
    """The first unknown fields of a document: pointer and detail."""
    unknown = (name for name in document if name not in fields)
    return [(json_pointer((name,)), describe_unknown_field(name)) for name in islice(unknown, ERRORS_LISTED)]


def describe_unknown_field(name: Any) -> str:
    return f"{str(name)[:SHOWN]!r} is not a field of this document; correct the name or remove the field"


def describe_missing_field(name: Any) -> str:
    return f"{name!r} is required and was not given"


def json_pointer(place: Sequence[Any]) -> str:
    """JSON pointer, RFC 6901. Characters that UTF-8 cannot encode are escaped."""
    parts = (str(part)[:SHOWN].encode("utf-8", "backslashreplace").decode() for part in place)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def abbreviate(value: Any) -> str:
    """A value as short JSON, for errors."""
    return json.dumps(_cut(value, _SHOWN_DEPTH), default=str)[:SHOWN]


def _cut(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value[:SHOWN]
    if not isinstance(value, list | dict):
        return value
    if not depth:
        return "..."
    if isinstance(value, list):
        return [_cut(item, depth - 1) for item in value[:_SHOWN_ITEMS]]
    return {_cut(key, 0): _cut(inner, depth - 1) for key, inner in islice(value.items(), _SHOWN_ITEMS)}
