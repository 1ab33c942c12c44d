"""The rows that a store keeps of a mesh: their keys, times, and checksums, which cover the key of the row too.

Keys are texts that sort like the numbers in them.

| key | value |
|---|---|
| ``head`` | revision and sequence of the mesh, and a name of its last write |
| ``full`` | sequence and revision of the state in full |
| ``state`` | the state in full, sealed |
| ``step/SEQUENCE`` | steps of the state since, sealed |
| ``verdict/TIME/SEQUENCE/DIGEST`` | verdicts of the window, sealed |
| ``snapshot/SEQUENCE`` | snapshots of the window, sealed |
| ``incident/ID``, ``details/ID`` | documents and details of archived incidents, sealed |
| ``index/ID`` | all else of an archived incident, which lists and limits need |
| ``open/ID`` | of an incident that is open: the sequence with which it was written, sealed |
| ``chunk/STEP/START/PART``, ``size/STEP/START/PART`` | files of the history, and their bytes, sealed |
| ``aside/...`` | rows of a mesh that was set aside, and why |

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

LAYOUT = 8  # of all rows of a store; it rises when a row is added, removed or has another form
LAYOUT_ROW = "layout"  # of the space SERVICE
FULL, STATE, STEP, VERDICT, SNAPSHOT = "full", "state", "step/", "verdict/", "snapshot/"
ARCHIVE = INCIDENT, DETAILS, INDEX, OPEN = "incident/", "details/", "index/", "open/"
CHUNK, SIZE, ASIDE = "chunk/", "size/", "aside/"
LIVE = (HEAD, FULL, STATE, STEP, VERDICT, SNAPSHOT)  # of a mesh that learns; the archive and the history outlive it
KINDS = (*LIVE, *ARCHIVE, CHUNK, SIZE)
ONE_STEP = timedelta(microseconds=1)  # between two times
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)  # of the times in keys, which are never negative
_read_index_row = msgspec.json.Decoder(ArchivedIncident).decode
log = logging.getLogger(__name__)


def microseconds(instant: datetime) -> int:
    """A time as a number: µs since 1970."""
    return (instant - _EPOCH) // ONE_STEP


def time_of(stored: int) -> datetime:
    """Inverse of :func:`microseconds`."""
    return _EPOCH + timedelta(microseconds=stored)


def time_key(instant: datetime) -> str:
    """A time as a part of a key."""
    return f"{(instant - _BEGINNING) // ONE_STEP:018}"


def sequence_key(kind: str, sequence: int) -> str:
    return f"{kind}{sequence:012}"


def number_of(key: str) -> int:
    """The sequence in the key of a step or a snapshot; raises ``CorruptState`` if it is damaged."""
    try:
        return int(key.rpartition("/")[2])
    except ValueError:
        raise CorruptState(f"stored row: expected a number in its key, got {key[:80]!r}") from None


class VerdictKey(NamedTuple):
    """What the key of a verdict says about its snapshot."""

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
    """The key of a chunk of the history, without its kind."""
    return f"{key.step:06}/{key.start:012}/{key.part:06}"


def read_chunk_key(key: str) -> ChunkKey:
    """Inverse of :func:`chunk_key`, after the kind; raises ``CorruptState`` if it is damaged."""
    try:
        _, step, start, part = key.split("/")
        return ChunkKey(int(step), int(start), int(part))
    except ValueError:
        raise CorruptState(f"stored row: expected the key of a chunk, got {key[:80]!r}") from None


def check_layout(store: str, stored: bytes) -> bool:
    """Whether a store has the layout of this version: False if it is new, or its layout is damaged.

    Raises:
        CorruptState: another version wrote it.
    """
    if stored.isdigit() and int(stored) != LAYOUT:
        raise CorruptState(
            f"state store {store}: expected layout {LAYOUT}, got {int(stored)}; another version of tagae wrote it, and "
            "nothing was changed; use that version, or set store.path or store.key_prefix to an empty store"
        )
    return stored.isdigit()


def sealed(mesh: str, key: str, content: bytes, *more: object) -> Row:
    """A row whose checksum covers its mesh and its key, and ``more``."""
    return key, seal(content, mesh, key, *more)


def unsealed(mesh: str, row: Row, *more: object) -> bytes:
    """Inverse of :func:`sealed`; raises ``CorruptState`` if the row is damaged."""
    return unseal(row[1], mesh, row[0], *more)


def sealed_number(mesh: str, key: str, number: int) -> Row:
    return sealed(mesh, key, b"%d" % number)


def unsealed_number(mesh: str, row: Row) -> int:
    """Inverse of :func:`sealed_number`; 0 if the row is damaged. What it counts is written again soon."""
    try:
        return int(unsealed(mesh, row))
    except CorruptState as error:
        log.error("mesh %r: %s; it counts as 0", mesh, error)
        return 0


def check_window(mesh: str, what: str, newest: int, numbers: list[int]) -> None:
    """Check that the rows of a window follow each other up to the newest one; 0: none was counted.

    Raises:
        CorruptState: one is missing or superfluous.
    """
    if numbers != list(range(newest + 1 - len(numbers), newest + 1)) or bool(numbers) is not bool(newest):
        raise CorruptState(
            f"stored {what} of {mesh}: expected consecutive ones to {newest}, got {len(numbers)} to {numbers[-1:]}"
        )


def incident_rows(mesh: str, one: ArchivedIncident) -> list[Row]:
    size = len(one.document) + len(one.details)
    index = msgspec.json.encode(replace(one, document=b"", details=b"", size=size))
    rows = [
        sealed(mesh, INCIDENT + one.id, one.document, index),
        sealed(mesh, DETAILS + one.id, one.details, one.sequence),
        (INDEX + one.id, index),
    ]
    return rows if one.until is not None else [*rows, sealed_number(mesh, OPEN + one.id, one.sequence)]


def dropped_keys(incident: str) -> list[str]:
    return [kind + incident for kind in ARCHIVE]


def read_incident(mesh: str, index: Row, document: Row, details: Row | None = None) -> ArchivedIncident | None:
    """The incident of its rows, without details if they are None; None if it is damaged."""
    try:
        one = _read_index_row(index[1])
        content = unsealed(mesh, document, index[1])
        inside = b"" if details is None else unsealed(mesh, details, one.sequence)
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
            one = _read_index_row(value)
        except msgspec.MsgspecError:
            one = None
        if one is None or one.id != name:
            one = ArchivedIncident(name, _EPOCH, _EPOCH, 0, 0, "", (), (), b"", size=len(value))
        found[name] = one
    return found


def excess(archive: Mapping[str, ArchivedIncident], limit: Retention, now: datetime) -> list[str]:
    """Incidents to prune: those past retention, then the least severe and oldest until the archive fits
    ``max_bytes``."""
    dropped = [one.id for one in archive.values() if one.until is not None and one.until < now - limit.keep]
    kept = [one for one in archive.values() if one.until is None or one.until >= now - limit.keep]
    beyond = sum(one.size for one in kept) - limit.max_bytes
    for one in sorted(kept, key=lambda one: (one.until is None, one.severity, one.since, one.id)):
        if beyond <= 0:
            break
        dropped.append(one.id)
        beyond -= one.size
    return dropped
