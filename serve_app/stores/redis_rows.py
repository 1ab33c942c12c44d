"""The rows of a mesh in Redis, as bytes and as arguments of scripts."""

import json
import logging
import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from serve_app.errors import CorruptState
from serve_app.stores import rows
from serve_app.stores.base import ArchivedIncident, ChunkKey, HistoryChunk, StoredState, WholeMesh, WindowRow
from serve_app.stores.incident_rows import incident_row, read_row
from serve_app.stores.rows import time_of
from serve_app.stores.seal import seal, unseal

log = logging.getLogger(__name__)


def seal_state(mesh: str, writer: str, sequence: int, state: bytes) -> bytes:
    """A state in full. It is sealed with the name of its write, since its revision is drawn on the server."""
    return seal(state, "state", mesh, writer, sequence)


def unseal_state(
    mesh: str, sequence: bytes, revision: bytes, full: list[bytes | None], steps: list[bytes]
) -> StoredState:
    """The state of these rows.

    Raises:
        CorruptState: a row is damaged or missing.
    """
    state_revision, begin, writer, sealed = full
    if state_revision is None or begin is None or writer is None or sealed is None:
        raise CorruptState(f"stored state {mesh}: expected it in full, got none")
    state = unseal(sealed, "state", mesh, writer.decode("utf-8", "replace"), _number(begin))
    found = dict(sorted(zip(map(_number, steps[::2]), steps[1::2], strict=True)))
    rows.check_steps(mesh, _number(begin), int(sequence), list(found))
    unsealed = tuple(rows.unseal_step(mesh, number, step) for number, step in found.items())
    return StoredState(int(revision), int(sequence), state, _number(state_revision), unsealed)


def _number(text: bytes) -> int:
    if not text.isdigit():
        raise CorruptState(f"stored number: expected digits, got {text[:40]!r}")
    return int(text)


def pack_verdict(mesh: str, sequence: int, at: int, digest: str, verdict: bytes) -> bytes:
    """The row of a verdict: a line with the time, µs, and the digest, then the verdict, sealed."""
    return f"{at} {digest}\n".encode() + rows.seal_verdict(mesh, sequence, at, digest, verdict)


def unpack_verdict(mesh: str, sequence: int, row: bytes) -> tuple[datetime, str, bytes]:
    """Inverse of :func:`pack_verdict`: time, digest and verdict.

    Raises:
        CorruptState: the row is damaged.
    """
    head, _, sealed = row.partition(b"\n")
    time_text, _, digest = head.decode("utf-8", "replace").partition(" ")
    if not re.fullmatch(r"-?\d{1,18}", time_text):
        raise CorruptState(f"stored verdict {mesh} {sequence}: expected its time and digest, got {head[:40]!r}")
    at = int(time_text)
    return time_of(at), digest, rows.unseal_verdict(mesh, sequence, at, digest, sealed)


def unpack_whole(
    mesh: str,
    sequence: bytes,
    revision: bytes,
    full: list[bytes | None],
    steps: list[bytes],
    snapshots: list[bytes],
    verdicts: list[bytes],
    incidents: list[bytes],
    details: list[bytes],
) -> WholeMesh:
    """The mesh of these rows, which the server returns as lists of keys and values.

    Raises:
        CorruptState: a row is damaged or missing.
    """
    state = unseal_state(mesh, sequence, revision, full, steps)
    sealed = dict(zip(map(_number, snapshots[::2]), snapshots[1::2], strict=True))
    judged = dict(zip(map(_number, verdicts[::2]), verdicts[1::2], strict=True))
    numbers = sorted(sealed)
    rows.check_window(mesh, state.sequence, numbers)
    if judged.keys() != sealed.keys():
        raise CorruptState(
            f"stored verdicts {mesh}: expected one for each of {len(numbers)} snapshots, got {len(judged)}"
        )
    window = tuple(
        WindowRow(number, *unpack_verdict(mesh, number, judged[number]), rows.unseal_snapshot(mesh, number, snapshot))
        for number, snapshot in sorted(sealed.items())
    )
    inside = dict(zip(details[::2], details[1::2], strict=True))
    pairs = sorted(zip(incidents[::2], incidents[1::2], strict=True))
    archived = (unpack_incident(mesh, row, inside.get(name, b"")) for name, row in pairs)
    return WholeMesh(state, window, tuple(one for one in archived if one is not None))


def pack_incidents(mesh: str, incidents: Iterable[ArchivedIncident]) -> list[Any]:
    """Incidents as arguments of a script."""
    packed: list[Any] = []
    for one in incidents:
        _, name, since, until, sequence, severity, kind, suspects, services, size, document, details = incident_row(
            mesh, one
        )
        columns = json.dumps([name, since, until, sequence, severity, kind, suspects, services]).encode()
        order = f"{int(until is None)} {severity} {since} {size}"  # open ones go last, then by severity and time
        packed += name, columns + b"\n" + document, details, sequence, "" if until is None else until, order
    return [len(packed) // 6, *packed]


def unpack_incident(mesh: str, row: bytes, details: bytes | None = None) -> ArchivedIncident | None:
    """The incident of a row; None if it is damaged."""
    columns, _, document = row.partition(b"\n")
    try:
        fields: list[Any] = [*json.loads(columns), document, details]
        return read_row(mesh, *fields)
    except (ValueError, TypeError) as error:
        log.error("archive of mesh %r: a row is damaged and left out: %s", mesh, error)
        return None


def pack_history(mesh: str, chunks: Collection[HistoryChunk], dropped: Collection[ChunkKey]) -> list[Any]:
    """Chunks to write and chunks to delete, as arguments of a script."""
    written: list[Any] = []
    for chunk in chunks:
        content = rows.seal_chunk(mesh, chunk.key, chunk.content)
        written += pack_chunk_key(chunk.key), content, len(content)
    return [len(chunks), *written, len(dropped), *map(pack_chunk_key, dropped)]


def pack_chunk_key(key: ChunkKey) -> str:
    """The field of a chunk."""
    return f"{key.step}:{key.start}:{key.part}"


def unpack_chunk_key(field: bytes) -> ChunkKey:
    """Inverse of :func:`pack_chunk_key`."""
    return ChunkKey(*map(int, field.split(b":")))
