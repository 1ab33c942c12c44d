"""The rows that a store keeps of a mesh: their times, and their checksums, which cover the key of the row too."""

import logging
from datetime import UTC, datetime, timedelta

from serve_app.errors import CorruptState
from serve_app.stores.base import ChunkKey
from serve_app.stores.seal import seal, unseal

log = logging.getLogger(__name__)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(instant: datetime) -> int:
    """The stored form of a time: µs since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def time_of(stored: int) -> datetime:
    """Inverse of :func:`microseconds`."""
    return _EPOCH + timedelta(microseconds=stored)


def seal_state(mesh: str, revision: int, sequence: int, state: bytes) -> bytes:
    """The value of the column ``state`` of ``states``."""
    return seal(state, "state", mesh, revision, sequence)


def unseal_state(mesh: str, revision: int, sequence: int, sealed: bytes) -> bytes:
    """Inverse of :func:`seal_state`; raises ``CorruptState`` if the row is damaged."""
    return unseal(sealed, "state", mesh, revision, sequence)


def seal_step(mesh: str, sequence: int, step: bytes) -> bytes:
    """The value of the column ``step`` of ``steps``."""
    return seal(step, "step", mesh, sequence)


def unseal_step(mesh: str, sequence: int, sealed: bytes) -> bytes:
    """Inverse of :func:`seal_step`; raises ``CorruptState`` if the row is damaged."""
    return unseal(sealed, "step", mesh, sequence)


def seal_verdict(mesh: str, sequence: int, observed_at: int, digest: str, verdict: bytes) -> bytes:
    """The value of the column ``verdict`` of ``snapshots``; the checksum covers the time, µs, and the digest too."""
    return seal(verdict, "verdict", mesh, sequence, observed_at, digest)


def unseal_verdict(mesh: str, sequence: int, observed_at: int, digest: str, sealed: bytes) -> bytes:
    """Inverse of :func:`seal_verdict`; raises ``CorruptState`` if the row is damaged."""
    return unseal(sealed, "verdict", mesh, sequence, observed_at, digest)


def seal_snapshot(mesh: str, sequence: int, snapshot: bytes) -> bytes:
    """The value of the column ``snapshot`` of ``snapshots``."""
    return seal(snapshot, "snapshot", mesh, sequence)


def unseal_snapshot(mesh: str, sequence: int, sealed: bytes) -> bytes:
    """Inverse of :func:`seal_snapshot`; raises ``CorruptState`` if the row is damaged."""
    return unseal(sealed, "snapshot", mesh, sequence)


def seal_document(name: str, write: object, content: bytes) -> bytes:
    """The stored form of a document; ``write`` is its revision, or the name of its write."""
    return seal(content, "document", name, write)


def unseal_document(name: str, write: object, sealed: bytes) -> bytes:
    """Inverse of :func:`seal_document`; raises ``CorruptState`` if it is damaged."""
    return unseal(sealed, "document", name, write)


def seal_chunk(mesh: str, key: ChunkKey, content: bytes) -> bytes:
    """The stored form of a chunk of the history."""
    return seal(content, "history", mesh, key.step, key.start, key.part)


def read_chunk(mesh: str, key: ChunkKey, sealed: bytes) -> bytes | None:
    """Inverse of :func:`seal_chunk`; None, and a line in the log, if the chunk is damaged."""
    try:
        return unseal(sealed, "history", mesh, key.step, key.start, key.part)
    except CorruptState as error:
        log.error("history of mesh %r: a chunk is damaged and left out: %s", mesh, error)
        return None


def check_steps(mesh: str, begin: int, end: int, numbers: list[int]) -> None:
    """Check that steps lead from the state in full, after ``begin`` snapshots, to the newest one, after ``end``.

    Raises:
        CorruptState: a step is missing or superfluous.
    """
    if numbers != list(range(begin + 1, end + 1)):
        raise CorruptState(f"stored state {mesh}: expected steps from {begin + 1} to {end}, got {numbers}")


def check_window(mesh: str, newest: int, numbers: list[int]) -> None:
    """Check that the kept snapshots follow each other up to the newest one; 0: none was counted.

    Raises:
        CorruptState: one is missing or superfluous.
    """
    if (numbers[-1] if numbers else 0) != newest:
        raise CorruptState(f"stored snapshots {mesh}: expected {newest} as the newest, got {numbers[-1:]}")
    if numbers != list(range(newest + 1 - len(numbers), newest + 1)):
        raise CorruptState(f"stored snapshots {mesh}: expected consecutive ones, got {numbers}")
