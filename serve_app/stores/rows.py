"""A mesh's rows in a store: their keys, times, and checksums, which cover the key, too.

Keys sort like the numbers in them.

| key | value |
|---|---|
| ``head`` | revision and sequence of the mesh, and a name of its last write |
| ``full`` | sequence and revision of the state in full |
| ``state`` | the state in full, sealed |
| ``step/SEQUENCE`` | the state's steps since then, sealed |
| ``verdict/TIME/SEQUENCE/DIGEST`` | verdicts of the window, sealed |
| ``snapshot/SEQUENCE`` | snapshots of the window, sealed |
| ``incident/ID``, ``details/ID`` | documents and details of archived incidents, sealed |
| ``index/ID`` | the other fields of an archived incident, for lists and limits |
| ``open/ID`` | only of an open incident: the sequence with which it was written, sealed |
| ``chunk/STEP/START/PART``, ``size/STEP/START/PART`` | files of the history, and their sizes in bytes, sealed |
| ``aside/...`` | rows of a mesh that was set aside, and the reason |

The checksum of an incident's document covers its index, so that a damaged incident is left out of every answer.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from serve_app.errors import CorruptState
from serve_app.stores.records import ArchivedIncident, ChunkKey, Retention
from serve_app.stores.row_store import HEAD, Row
from serve_app.stores.seal import seal, unseal

LAYOUT = 8  # of a store's rows; it rises when a row is added, removed or changes its form
LAYOUT_ROW = "layout"  # of the space SERVICE
FULL, STATE, STEP, VERDICT, SNAPSHOT = "full", "state", "step/", "verdict/", "snapshot/"
ARCHIVE = INCIDENT, DETAILS, INDEX, OPEN = "incident/", "details/", "index/", "open/"
CHUNK, SIZE, ASIDE = "chunk/", "size/", "aside/"
LIVE = (HEAD, FULL, STATE, STEP, VERDICT, SNAPSHOT)  # set aside if damaged; the archive and the history stay
KINDS = (*LIVE, *ARCHIVE, CHUNK, SIZE)
ONE_STEP = timedelta(microseconds=1)  # between two times
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)  # of the times in keys, which are never negative
_read_index_row = msgspec.json.Decoder(ArchivedIncident).decode
log = logging.getLogger(__name__)


def microseconds(instant: datetime) -> int:
    """Return a time as µs since 1970."""
    return (instant - _EPOCH) // ONE_STEP


def time_of(number: int) -> datetime:
    """Inverse of :func:`microseconds`."""
    return _EPOCH + timedelta(microseconds=number)


def time_key(instant: datetime) -> str:
    """Return a time as a part of a key."""
    return f"{(instant - _BEGINNING) // ONE_STEP:018}"


def sequence_key(kind: str, sequence: int) -> str:
    return f"{kind}{sequence:012}"


def number_of(key: str) -> int:
    """Return the sequence in the key of a step or a snapshot; raise ``CorruptState`` if it is damaged."""
    try:
        return int(key.rpartition("/")[2])
    except ValueError:
        raise CorruptState(f"stored row: expected a number in its key, got {key[:80]!r}") from None


class VerdictKey(NamedTuple):
    """A verdict's key, which identifies its snapshot."""

    observed_at: datetime
    sequence: int
    digest: str

    @property
    def text(self) -> str:
        return f"{VERDICT}{time_key(self.observed_at)}/{self.sequence:012}/{self.digest}"

    @classmethod
    def read(cls, key: str) -> "VerdictKey":
        """Inverse of :attr:`text`; raises ``CorruptState`` if it is damaged."""
        try:
            _, at, sequence, digest = key.split("/", 3)
            return cls(_BEGINNING + timedelta(microseconds=int(at)), int(sequence), digest)
        except (ValueError, OverflowError):
            raise CorruptState(f"stored verdict: expected its time and sequence, got {key[:80]!r}") from None


def chunk_key(key: ChunkKey) -> str:
    """Return a chunk's key without its kind."""
    return f"{key.step:06}/{key.start:012}/{key.part:06}"


def read_chunk_key(key: str) -> ChunkKey:
    """Inverse of :func:`chunk_key`, after the kind; raises ``CorruptState`` if it is damaged."""
    try:
        _, step, start, part = key.split("/")
        return ChunkKey(int(step), int(start), int(part))
    except ValueError:
        raise CorruptState(f"stored row: expected the key of a chunk, got {key[:80]!r}") from None


def check_layout(store: str, layout: bytes) -> bool:
    """Return whether a store has the layout of this version: False if it is new, or its layout is damaged.

    Raises:
        CorruptState: another version wrote it.
    """
    if layout.isdigit() and int(layout) != LAYOUT:
        raise CorruptState(
            f"state store {store}: expected layout {LAYOUT}, got {int(layout)}; another version of tagae wrote it, and "
            "nothing was changed; use that version, or set store.path or store.key_prefix to an empty store"
        )
    return layout.isdigit()


def sealed(mesh: str, key: str, content: bytes, *more: object) -> Row:
    """Return a row whose checksum covers its mesh, its key, and ``more``."""
    return key, seal(content, mesh, key, *more)


def unsealed(mesh: str, row: Row, *more: object) -> bytes:
    """Inverse of :func:`sealed`; raises ``CorruptState`` if the row is damaged."""
    return unseal(row[1], mesh, row[0], *more)


def sealed_number(mesh: str, key: str, number: int) -> Row:
    return sealed(mesh, key, b"%d" % number)


def unsealed_number(mesh: str, row: Row) -> int:
    """Inverse of :func:`sealed_number`; 0 if the row is damaged, since it is soon written again."""
    try:
        return int(unsealed(mesh, row))
    except CorruptState as error:
        log.error("mesh %r: %s; it counts as 0", mesh, error)
        return 0


def check_window(mesh: str, kind: str, newest: int, numbers: list[int]) -> None:
    """Check that a window's rows have consecutive numbers up to ``newest``; 0: none was counted.

    Raises:
        CorruptState: one is missing or superfluous.
    """
    if numbers != list(range(newest + 1 - len(numbers), newest + 1)) or bool(numbers) is not bool(newest):
        raise CorruptState(
            f"stored {kind} of {mesh}: expected consecutive ones to {newest}, got {len(numbers)} to {numbers[-1:]}"
        )


def incident_rows(mesh: str, incident: ArchivedIncident) -> list[Row]:
    size = len(incident.document) + len(incident.details)
    index = msgspec.json.encode(replace(incident, document=b"", details=b"", size=size))
    rows = [
        sealed(mesh, INCIDENT + incident.id, incident.document, index),
        sealed(mesh, DETAILS + incident.id, incident.details, incident.sequence),
        (INDEX + incident.id, index),
    ]
    return rows if incident.until is not None else [*rows, sealed_number(mesh, OPEN + incident.id, incident.sequence)]


def read_incident(mesh: str, index: Row, document: Row, details: Row | None = None) -> ArchivedIncident | None:
    """Return the incident in these rows, without details if they are None; None if it is damaged."""
    try:
        incident = _read_index_row(index[1])
        content = unsealed(mesh, document, index[1])
        detail_bytes = b"" if details is None else unsealed(mesh, details, incident.sequence)
    except (CorruptState, msgspec.MsgspecError) as error:
        name = index[0].removeprefix(INDEX)
        log.error("archive of mesh %r: incident %r is damaged and left out: %s", mesh, name, error)
        return None
    return replace(incident, document=content, details=detail_bytes)


def read_index(rows: Iterable[Row]) -> dict[str, ArchivedIncident]:
    """Return all incidents by id, without documents and details. A damaged row counts as an incident that ended long
    ago, so that it is deleted."""
    incidents = {}
    for key, value in rows:
        name = key.removeprefix(INDEX)
        try:
            incident = _read_index_row(value)
        except msgspec.MsgspecError:
            incident = None
        if incident is None or incident.id != name:
            incident = ArchivedIncident(name, _EPOCH, _EPOCH, 0, 0, "", (), (), b"", size=len(value))
        incidents[name] = incident
    return incidents


def excess(archive: Mapping[str, ArchivedIncident], limit: Retention, now: datetime) -> list[str]:
    """Return the incidents to delete: those past retention, then the least severe and oldest until the archive fits
    ``max_bytes``."""
    oldest = now - limit.keep
    deletions = [incident.id for incident in archive.values() if incident.until is not None and incident.until < oldest]
    remaining = [incident for incident in archive.values() if incident.until is None or incident.until >= oldest]
    size = sum(incident.size for incident in remaining)
    for incident in sorted(remaining, key=_rank):
        if size <= limit.max_bytes:
            break
        deletions.append(incident.id)
        size -= incident.size
    return deletions


def _rank(incident: ArchivedIncident) -> tuple[bool, int, datetime, str]:
    return incident.until is None, incident.severity, incident.since, incident.id
