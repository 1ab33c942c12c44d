"""The store ``files``: one file for each mesh, in a folder of one node.

A write reads the file of its mesh, changes its content in memory, and replaces the whole file. A crash therefore leaves
the old content or the new one, and compare-and-set needs only a lock. In return, each snapshot writes everything that
is stored of its mesh: some MB for a mesh of 100 services. The built-in local store writes only new data.
"""

import errno
import fcntl
import logging
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import msgspec
from pydantic import Field

from serve_app.errors import CorruptState, StoreFull, StoreGone
from serve_app.settings.base import Location, SettingsGroup, check_mesh_name
from serve_app.stores.base import (
    ArchivedIncident,
    ArchiveLimit,
    ChunkKey,
    HistoryChunk,
    IncidentFilter,
    MeshSummary,
    NewSnapshot,
    StoredDocument,
    StoredMesh,
    StoredState,
    StoredVerdict,
    WholeMesh,
    WindowRow,
)
from serve_app.stores.plugin import Opening, StorePlugin
from serve_app.stores.refusals import conflict, document_conflict, first_step, require_keep, too_many_meshes

SUFFIX, HISTORY = ".mesh", ".history"
LOCK, CLOCK = "lock", "clock"
FULL = (errno.ENOSPC, errno.EDQUOT)
CHECKSUM = 4  # bytes
log = logging.getLogger(__name__)


class FilesOptions(SettingsGroup):
    """The table ``store.options``."""

    folder: Location = Field(description="folder of the files; created if it does not exist")


@dataclass(frozen=True)
class MeshFile:
    """The content of a file.

    Attributes:
        state: None if the mesh was set aside: only its archive is left.
        window: the kept snapshots, oldest first.
        incidents: the archive, in order of id.
    """

    state: StoredState | None = None
    window: tuple[WindowRow, ...] = ()
    incidents: tuple[ArchivedIncident, ...] = ()

    @property
    def position(self) -> tuple[int, int]:
        """Sequence and revision of the mesh; 0 if there is none."""
        return (self.state.sequence, self.state.revision) if self.state else (0, 0)


class FilesStore:
    """A :class:`~serve_app.stores.base.StateStore` in a folder.

    Args:
        options: from the settings.
        how: limits, and who learns of a deleted mesh.
    """

    def __init__(self, options: FilesOptions, how: Opening) -> None:
        self._folder, self._how = options.folder, how
        with self._naming_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._inode = self._folder.stat().st_ino

    def check_room(self, mesh: str) -> None:
        if self._read(mesh).state is None:
            self._find_idle(mesh)

    def load(self, mesh: str) -> StoredMesh | None:
        file = self._read(mesh)
        if file.state is None:
            return None
        sequence, revision = file.position
        if not file.window:
            return StoredMesh(mesh, revision, sequence, None, "", b"")
        newest = file.window[-1]
        return StoredMesh(mesh, revision, sequence, newest.observed_at, newest.digest, newest.verdict)

    def load_state(self, mesh: str) -> StoredState | None:
        return self._read(mesh).state

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int | None = None) -> int:
        require_keep(keep)

        def change(old: MeshFile, now: int) -> MeshFile:
            sequence, stored = old.position
            if sequence != new.sequence - 1 or revision not in (None, stored):
                raise conflict(mesh, f"snapshot {new.sequence}", revision, sequence, stored)
            row = WindowRow(new.sequence, new.observed_at, new.digest, new.verdict, new.snapshot)
            incidents = drop_excess(merge(old.incidents, new.incidents), self._how.archive, new.observed_at)
            return MeshFile(advance(old.state, new, now), (*old.window, row)[-keep:], incidents)

        # The history comes first: a chunk has all rows up to its snapshot, and is written again if that fails.
        return self._write(mesh, change, lambda: self._change_history(mesh, new.history, new.dropped))

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        def change(old: MeshFile, now: int) -> MeshFile:
            sequence, stored = old.position
            if stored != revision:
                raise conflict(mesh, "a baseline", revision, sequence, stored)
            return MeshFile(StoredState(now, sequence, state, now, ()), old.window, merge(old.incidents, incidents))

        return self._write(mesh, change)

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, state_revision: int) -> bool:
        with self._locked():
            old = self._read(mesh)
            if old.state is None or old.state.state_revision != state_revision:
                return False
            begin = old.state.sequence - len(old.state.steps)
            steps = old.state.steps[sequence - begin :]
            self._put(mesh, replace(old, state=replace(old.state, state=state, state_revision=revision, steps=steps)))
            return True

    def tidy(self) -> None:
        """Every write leaves the folder tidy."""

    def verdict_at(self, mesh: str, observed_at: datetime) -> StoredVerdict | None:
        rows = (row for row in reversed(self._read(mesh).window) if row.observed_at == observed_at)
        return next((StoredVerdict(row.digest, row.verdict) for row in rows), None)

    def verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[bytes]:
        rows = self._read(mesh).window
        return [row.verdict for row in rows if since is None or row.observed_at > since][:limit]

    def window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        check_mesh_name(mesh)
        return ((row.sequence, row.snapshot) for row in self._read_window(mesh))

    def open_incidents(self, mesh: str) -> dict[str, int]:
        return {one.id: one.sequence for one in self._read(mesh).incidents if one.until is None}

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        matching = (replace(one, details=b"") for one in self._read(mesh).incidents if is_wanted(one, wanted))
        return sorted(matching, key=lambda one: (one.since, one.id), reverse=True)[: wanted.limit]

    def incident(self, mesh: str, incident: str) -> ArchivedIncident | None:
        return next((one for one in self._read(mesh).incidents if one.id == incident), None)

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        return {chunk.key: len(chunk.content) for chunk in self._read_history(mesh)}

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        wanted = set(keys)
        return {chunk.key: chunk.content for chunk in self._read_history(mesh) if chunk.key in wanted}

    def write_history(self, mesh: str, chunks: Collection[HistoryChunk]) -> None:
        with self._locked():
            self._change_history(mesh, chunks, ())

    def meshes(self) -> list[MeshSummary]:
        found = (self.load(name) for name in self._names())
        return [MeshSummary(one.mesh, one.sequence, one.observed_at, one.verdict) for one in found if one is not None]

    def set_aside(self, mesh: str, why: str, *, revision: int) -> bool:
        with self._locked():
            old = self._read(mesh)
            if old.state is None or old.state.revision != revision:
                return False
            self._put(f"{mesh}.aside", old, suffix="")
            self._put(mesh, MeshFile(incidents=old.incidents))
        log.error("%s: mesh %r was set aside and starts learning again: %s", self._folder, mesh, why)
        return True

    def delete(self, mesh: str) -> bool:
        with self._locked():
            was_stored = self._read(mesh).state is not None
            self._forget(mesh)
            return was_stored

    def read_whole(self, mesh: str) -> WholeMesh | None:
        file = self._read(mesh)
        return None if file.state is None else WholeMesh(file.state, file.window, file.incidents)

    def write_whole(self, mesh: str, whole: WholeMesh, *, replace: bool = False) -> None:
        with self._locked():
            sequence, stored = self._read(mesh).position
            if stored and not replace:
                raise conflict(mesh, "a copy", 0, sequence, stored)
            self._tick(whole.state.revision)
            self._forget(mesh)
            self._put(mesh, MeshFile(whole.state, whole.window, whole.incidents))

    def read_document(self, name: str) -> StoredDocument | None:
        path = self._document_path(name)
        with self._naming_errors():
            self._require_folder()
            content = path.read_bytes() if path.exists() else b""
        revision, _, text = content.partition(b"\n")
        return StoredDocument(int(revision), text) if content else None

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        path = self._document_path(name)
        with self._locked():
            old = self.read_document(name)
            stored = old.revision if old else 0
            if stored != revision:
                raise document_conflict(name, revision, stored)
            now = self._tick()
            if content:
                self._replace(path, b"%d\n" % now + content)
            else:
                path.unlink(missing_ok=True)
            return now

    def close(self) -> None:
        """Nothing stays open between two calls."""

    def _write(
        self, mesh: str, change: Callable[[MeshFile, int], MeshFile], before: Callable[[], None] = lambda: None
    ) -> int:
        """Change a mesh; ``before`` is called when it is certain that the change is possible. Returns the new
        revision."""
        with self._locked():
            old = self._read(mesh)
            revision = self._tick()
            new = change(old, revision)
            idle = self._find_idle(mesh) if old.state is None else None
            before()
            self._put(mesh, new)
            if idle is not None:
                self._forget(idle)
        if idle is not None and self._how.on_evicted is not None:
            self._how.on_evicted(idle)
        return revision

    def _find_idle(self, mesh: str) -> str | None:
        """The idle mesh that a new one replaces; None if there is room.

        Raises:
            TooManyMeshes: there is no room.
        """
        limit = self._how.limit
        revisions = {name: self._read(name).position[1] for name in self._names()} if limit else {}
        stored = {name: revision for name, revision in revisions.items() if revision}
        if limit is None or len(stored) < limit.max_meshes:
            return None
        if limit.evict_idle_seconds is not None and stored:
            idle = min(stored, key=lambda name: stored[name])
            if time.time() - stored[idle] / 1e6 >= limit.evict_idle_seconds:
                return idle
        raise too_many_meshes(mesh, limit)

    def _tick(self, least: int = 0) -> int:
        """The revision of a write: the time in µs, but later than every revision before, also of deleted meshes."""
        path = self._folder / CLOCK
        before = int(path.read_text()) if path.exists() else 0
        now = max(time.time_ns() // 1000, before + 1, least)
        self._replace(path, str(now).encode())
        return now

    def _names(self) -> list[str]:
        with self._naming_errors():
            return sorted(path.name.removesuffix(SUFFIX) for path in self._folder.iterdir() if path.suffix == SUFFIX)

    def _path(self, mesh: str) -> Path:
        return self._folder / f"{check_mesh_name(mesh)}{SUFFIX}"

    def _document_path(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe='')}.document"

    def _read_window(self, mesh: str) -> Iterator[WindowRow]:
        """The window at the time of the first ``next``."""
        yield from self._read(mesh).window

    def _read(self, mesh: str) -> MeshFile:
        path = self._path(mesh)
        with self._naming_errors():
            self._require_folder()
            content = path.read_bytes() if path.exists() else b""
        if not content:
            return MeshFile()
        try:
            return msgspec.msgpack.decode(unseal(content), type=MeshFile)
        except ValueError as error:  # msgspec's errors are
            path.replace(path.with_suffix(".damaged"))
            raise CorruptState(
                f"{path}: expected a stored mesh, got {error}; it was renamed, and the mesh starts learning again with "
                "its next snapshot",
                mesh=mesh,
            ) from error

    def _forget(self, mesh: str) -> None:
        """Delete the files of a mesh."""
        self._path(mesh).unlink(missing_ok=True)
        self._path(mesh).with_suffix(HISTORY).unlink(missing_ok=True)

    def _read_history(self, mesh: str) -> tuple[HistoryChunk, ...]:
        path = self._path(mesh).with_suffix(HISTORY)
        with self._naming_errors():
            self._require_folder()
            content = path.read_bytes() if path.exists() else b""
        try:
            return msgspec.msgpack.decode(unseal(content), type=tuple[HistoryChunk, ...]) if content else ()
        except ValueError as error:
            log.error("%s: expected a history, got %s; it is left out", path, error)
            return ()

    def _change_history(self, mesh: str, chunks: Collection[HistoryChunk], dropped: Collection[ChunkKey]) -> None:
        if chunks or dropped:
            kept = {chunk.key: chunk for chunk in (*self._read_history(mesh), *chunks) if chunk.key not in dropped}
            content = msgspec.msgpack.encode(tuple(kept[key] for key in sorted(kept)))
            self._replace(self._path(mesh).with_suffix(HISTORY), seal(content))

    def _put(self, name: str, file: MeshFile, suffix: str = SUFFIX) -> None:
        self._replace(self._folder / f"{name}{suffix}", seal(msgspec.msgpack.encode(file)))

    def _replace(self, path: Path, content: bytes) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(content)
        new.replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, of all threads and processes. A writer that is killed leaves no lock."""
        with self._naming_errors():
            self._require_folder()
            with (self._folder / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def _require_folder(self) -> None:
        """Raise an error if another folder has taken the place of the one that was opened."""
        if self._folder.stat().st_ino != self._inode:
            raise FileNotFoundError(errno.ENOENT, "the folder was replaced", str(self._folder))

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in FULL:
                raise StoreFull(f"{self._folder}: expected space on the disk, got none; free some") from error
            raise StoreGone(
                f"{self._folder}: expected a folder to read and write, got {error}; correct store.options.folder, or "
                "restart the service"
            ) from error


def seal(content: bytes) -> bytes:
    """Return the content of a file with its checksum."""
    return zlib.crc32(content).to_bytes(CHECKSUM, "big") + content


def unseal(sealed: bytes) -> bytes:
    """Return the content of a file; raises ``ValueError`` if it is damaged."""
    content = sealed[CHECKSUM:]
    if seal(content) != sealed:
        raise ValueError("another checksum")
    return content


def advance(state: StoredState | None, new: NewSnapshot, revision: int) -> StoredState:
    """Return the state of a mesh after another snapshot."""
    if not new.is_step:
        return StoredState(revision, new.sequence, new.state, revision, ())
    if state is None:
        raise first_step()
    return replace(state, revision=revision, sequence=new.sequence, steps=(*state.steps, new.state))


def merge(old: Iterable[ArchivedIncident], new: Iterable[ArchivedIncident]) -> tuple[ArchivedIncident, ...]:
    """Return an archive with new incidents, each in place of the one with its id."""
    by_id = {one.id: one for one in (*old, *new)}
    return tuple(by_id[name] for name in sorted(by_id))


def drop_excess(
    incidents: tuple[ArchivedIncident, ...], limit: ArchiveLimit | None, now: datetime
) -> tuple[ArchivedIncident, ...]:
    """Return the incidents that an archive keeps at this time."""
    if limit is None:
        return incidents
    kept = [one for one in incidents if one.until is None or one.until >= now - limit.keep]
    excess = sum(map(size, kept)) - limit.max_bytes
    for one in sorted(kept, key=lambda one: (one.until is None, one.severity, one.since)):
        if excess <= 0:
            break
        kept.remove(one)
        excess -= size(one)
    return tuple(kept)


def size(incident: ArchivedIncident) -> int:
    """Return the bytes of an incident that count for the limit."""
    return len(incident.document) + len(incident.details)


def is_wanted(incident: ArchivedIncident, wanted: IncidentFilter) -> bool:
    """Return whether an incident matches."""
    return (
        (wanted.since is None or incident.until is None or incident.until > wanted.since)
        and (wanted.until is None or incident.since < wanted.until)
        and set(wanted.services) <= set(incident.services)
        and (wanted.suspects is None or bool(set(wanted.suspects) & set(incident.suspects)))
        and wanted.kind in (None, incident.kind)
        and wanted.severity in (None, incident.severity)
        and (wanted.before is None or (incident.since, incident.id) < wanted.before)
    )


FILES = StorePlugin(options=FilesOptions, open=FilesStore)
