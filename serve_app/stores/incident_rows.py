"""An incident of the archive as a row, with names as text and times in µs since 1970.

The checksums cover the whole row, so that a damaged row is left out of every answer.
"""

import logging
from collections.abc import Iterable
from typing import Any

from serve_app.errors import CorruptState
from serve_app.stores.base import ArchivedIncident
from serve_app.stores.rows import microseconds, time_of
from serve_app.stores.seal import seal, unseal

log = logging.getLogger(__name__)


def incident_row(mesh: str, one: ArchivedIncident) -> tuple[Any, ...]:
    """The row of an incident: its mesh, eight columns, the bytes that it takes, and its document and details,
    sealed."""
    since, until = microseconds(one.since), None if one.until is None else microseconds(one.until)
    suspects, services = join_names(one.suspects), join_names(one.services)
    columns = (one.id, since, until, one.sequence, one.severity, one.kind, suspects, services)
    document = seal(one.document, "incident", mesh, *columns)
    details = seal(one.details, "details", mesh, one.id, one.sequence)
    size = (
        len(document) + len(details) + sum(len(text.encode()) for text in (mesh, one.id, one.kind, suspects, services))
    )
    return (mesh, *columns, size, document, details)


def read_row(
    mesh: str,
    name: str,
    since: int,
    until: int | None,
    sequence: int,
    severity: int,
    kind: str,
    suspects: str,
    services: str,
    document: bytes,
    details: bytes | None = None,
) -> ArchivedIncident | None:
    """Inverse of :func:`incident_row`, without details if they are None; None if the row is damaged."""
    columns = (name, since, until, sequence, severity, kind, suspects, services)
    try:
        unsealed = unseal(document, "incident", mesh, *columns)
        inside = b"" if details is None else unseal(details, "details", mesh, name, sequence)
    except CorruptState as error:
        log.error("archive of mesh %r: incident %r is damaged and left out: %s", mesh, name, error)
        return None
    began = time_of(since)
    ended = None if until is None else time_of(until)
    return ArchivedIncident(
        name, began, ended, sequence, severity, kind, _split_names(suspects), _split_names(services), unsealed, inside
    )


def join_names(names: Iterable[str]) -> str:
    """Names with a line break before and after each, so that a whole name can be found in the text."""
    return "".join(f"\n{name}" for name in names) + "\n"


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")[1:-1])
