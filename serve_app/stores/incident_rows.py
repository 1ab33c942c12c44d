"""The archive of incidents as rows, and what its limits drop.

An incident has three rows: ``incident/ID`` with its document, ``details/ID``, and ``index/ID`` with the rest, which
lists and limits need. While it is open, ``open/ID`` has the sequence with which it was written. The checksum of the
document covers the index, so that a damaged incident is left out of every answer.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from serve_app.errors import CorruptState
from serve_app.stores.base import ArchivedIncident, ArchiveLimit
from serve_app.stores.primitives import Row
from serve_app.stores.seal import seal, unseal

INCIDENT, DETAILS, INDEX, OPEN = "incident/", "details/", "index/", "open/"
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_read = msgspec.json.Decoder(ArchivedIncident).decode
log = logging.getLogger(__name__)


def incident_rows(mesh: str, one: ArchivedIncident) -> list[Row]:
    """The rows of an incident."""
    size = len(one.document) + len(one.details)
    index = msgspec.json.encode(replace(one, document=b"", details=b"", size=size))
    rows = [
        (INCIDENT + one.id, seal(one.document, mesh, INCIDENT + one.id, index)),
        (DETAILS + one.id, seal(one.details, mesh, DETAILS + one.id, one.sequence)),
        (INDEX + one.id, index),
    ]
    return rows if one.until is not None else [*rows, (OPEN + one.id, b"%d" % one.sequence)]


def dropped_keys(incident: str) -> list[str]:
    """The keys of the rows of an incident."""
    return [kind + incident for kind in (INCIDENT, DETAILS, INDEX, OPEN)]


def read_incident(mesh: str, index: Row, document: Row, details: Row | None = None) -> ArchivedIncident | None:
    """The incident of its rows, without details if they are None; None if it is damaged."""
    try:
        one = _read(index[1])
        content = unseal(document[1], mesh, INCIDENT + one.id, index[1])
        inside = b"" if details is None else unseal(details[1], mesh, DETAILS + one.id, one.sequence)
    except (CorruptState, msgspec.MsgspecError) as error:
        name = index[0].removeprefix(INDEX)
        log.error("archive of mesh %r: incident %r is damaged and left out: %s", mesh, name, error)
        return None
    return replace(one, document=content, details=inside)


def read_index(rows: Iterable[Row]) -> dict[str, ArchivedIncident]:
    """All incidents by id, without documents and details. A damaged row counts as an incident that ended long ago, so
    that it goes."""
    found = {}
    for key, value in rows:
        name = key.removeprefix(INDEX)
        try:
            found[name] = _read(value)
        except msgspec.MsgspecError:
            found[name] = ArchivedIncident(name, _LONG_AGO, _LONG_AGO, 0, 0, "", (), (), b"", size=len(value))
    return found


def excess(archive: Mapping[str, ArchivedIncident], limit: ArchiveLimit, now: datetime) -> list[str]:
    """The incidents that an archive drops at a time: those that ended too long ago, then those beyond its bytes."""
    dropped = [one.id for one in archive.values() if one.until is not None and one.until < now - limit.keep]
    kept = [one for one in archive.values() if one.until is None or one.until >= now - limit.keep]
    beyond = sum(one.size for one in kept) - limit.max_bytes
    for one in sorted(kept, key=lambda one: (one.until is None, one.severity, one.since, one.id)):
        if beyond <= 0:
            break
        dropped.append(one.id)
        beyond -= one.size
    return dropped
