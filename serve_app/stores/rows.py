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
| ``incident/ID``, ``details/ID`` | the archive, see ``incident_rows.py`` |
| ``index/ID``, ``open/ID`` | what finds archived incidents; open ones with the sequence of their last write |
| ``chunk/STEP/START/PART``, ``size/STEP/START/PART`` | files of the history, sealed, and their bytes |
| ``aside/...`` | rows of a mesh that was set aside, and why |
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from serve_app.errors import CorruptState
from serve_app.stores.base import ChunkKey
from serve_app.stores.primitives import HEAD, Row
from serve_app.stores.seal import seal, unseal

FULL, STATE, STEP, VERDICT, SNAPSHOT = "full", "state", "step/", "verdict/", "snapshot/"
CHUNK, SIZE, ASIDE = "chunk/", "size/", "aside/"
LIVE = (HEAD, FULL, STATE, STEP, VERDICT, SNAPSHOT)  # of a mesh that learns; the archive and the history outlive it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)  # of the times in keys, which are never negative


def microseconds(instant: datetime) -> int:
    """A time as a number: µs since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def time_of(stored: int) -> datetime:
    """Inverse of :func:`microseconds`."""
    return _EPOCH + timedelta(microseconds=stored)


def time_key(instant: datetime) -> str:
    """A time as a part of a key."""
    return f"{(instant - _BEGINNING) // timedelta(microseconds=1):018}"


def step_key(sequence: int) -> str:
    """The key of a step."""
    return f"{STEP}{sequence:012}"


def snapshot_key(sequence: int) -> str:
    """The key of a snapshot."""
    return f"{SNAPSHOT}{sequence:012}"


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
        """The key."""
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
    """Inverse of :func:`chunk_key`; the kind may come before it."""
    return ChunkKey(*map(int, key.split("/")[-3:]))


def sealed(mesh: str, key: str, content: bytes, *more: object) -> Row:
    """A row whose checksum covers its mesh and its key, and ``more``."""
    return key, seal(content, mesh, key, *more)


def unsealed(mesh: str, row: Row, *more: object) -> bytes:
    """Inverse of :func:`sealed`; raises ``CorruptState`` if the row is damaged."""
    return unseal(row[1], mesh, row[0], *more)


def check_steps(mesh: str, begin: int, end: int, numbers: list[int]) -> None:
    """Check that steps lead from the state in full, after ``begin`` snapshots, to the newest one, after ``end``.

    Raises:
        CorruptState: a step is missing or superfluous.
    """
    if numbers != list(range(begin + 1, end + 1)):
        raise CorruptState(f"stored state {mesh}: expected steps from {begin + 1} to {end}, got {numbers}")


def check_window(mesh: str, what: str, newest: int, numbers: list[int]) -> None:
    """Check that the rows of a window follow each other up to the newest one; 0: none was counted.

    Raises:
        CorruptState: one is missing or superfluous.
    """
    if numbers != list(range(newest + 1 - len(numbers), newest + 1)) or bool(numbers) is not bool(newest):
        raise CorruptState(
            f"stored {what} of {mesh}: expected consecutive ones to {newest}, got {len(numbers)} to {numbers[-1:]}"
        )
