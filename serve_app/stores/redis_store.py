"""A state store in a Redis or Valkey, which sessions on several nodes can share.

Each write is one Lua script on the server, so that compare-and-set and all changes are one step. The keys of a mesh
have its name in braces: in a Redis Cluster they are on one node. README.md lists them.

Lost answers: each write has a name of its own, which the script stores with the new revision. If a connection breaks,
the outcome is unknown, and the write is sent again under the same name. The server answers again if it was stored. If
another writer was faster, the answer is ``StoreConflict``, and the session loads the mesh.

Lost data: the store has an id. A process remembers it. When a mesh is missing, the process compares the id, and raises
``StoreGone`` if the server was emptied or replaced. It would otherwise start every mesh from the beginning.

The number of meshes is limited in a second step, because the list of meshes is on another node of a Cluster: a name is
reserved first. Reservations that no write followed are dropped when the store is full.
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any, cast

from serve_app.errors import CorruptState, StoreGone
from serve_app.settings import StoreSettings
from serve_app.settings.base import check_mesh_name
from serve_app.stores import rows
from serve_app.stores.base import (
    ArchivedIncident,
    ArchiveLimit,
    ChunkKey,
    HistoryChunk,
    IncidentFilter,
    MeshLimit,
    NewSnapshot,
    StoredDocument,
    StoredState,
    WholeMesh,
)
from serve_app.stores.redis_rows import (
    pack_chunk_key,
    pack_history,
    pack_incidents,
    pack_verdict,
    seal_state,
    unpack_chunk_key,
    unpack_incident,
    unpack_verdict,
    unpack_whole,
    unseal_state,
)
from serve_app.stores.redis_scripts import load_scripts
from serve_app.stores.redis_server import Client, RedisServer
from serve_app.stores.refusals import conflict, document_conflict, first_step, require_keep, too_many_meshes
from serve_app.stores.rows import microseconds
from serve_app.stores.sealed_store import SealedStore

KEYS = (  # of a mesh, in the order of the scripts
    *("position", "state", "steps", "snapshots", "verdicts", "times"),
    *("incidents", "details", "open", "ends", "sizes"),
    *("last", "aside", "aside-snapshots", "aside-verdicts", "history", "history-sizes"),
)
_STORE = "STORE"  # no mesh has capital letters in its name
LEAST_VERSION = (6, 2)  # of Redis; every Valkey is newer
_RESERVED_SECONDS = 300.0  # longer than any write
_RETRY_SECONDS = 5.0
_DONE, _OTHER_STORE = 1, -1
log = logging.getLogger(__name__)


class RedisStore(SealedStore[bytes, list[Any], list[Any]]):
    """A :class:`~serve_app.stores.base.StateStore` in the Redis at ``store.url``. It connects with the first call.

    Args:
        settings: of the store.
        limit: how many meshes it may hold; None: any number.
        archive: what the archive of each mesh keeps; None: everything.
        on_evicted: called with the name of a mesh that was deleted to make room for another, in the writing thread.
            Unlike in a local store, this happens before the write. If that fails, the idle mesh is deleted all the
            same.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        limit: MeshLimit | None = None,
        archive: ArchiveLimit | None = None,
        on_evicted: Callable[[str], None] | None = None,
    ) -> None:
        self._server = RedisServer(settings)
        super().__init__(self._server.name, limit, archive, on_evicted)
        self._prefix = settings.key_prefix
        self._expire_ms = "" if settings.expire_seconds is None else round(settings.expire_seconds * 1e3)
        self._id: bytes | None = None
        self._is_lost = False
        self._scripts = load_scripts()

    def close(self) -> None:
        self._server.close()

    def check_room(self, mesh: str) -> None:
        check_mesh_name(mesh)
        if self._limit is not None and not self._ask("load", mesh):
            count = self._command("HLEN", self._store_keys()[1])
            if count >= self._limit.max_meshes:
                self._find_idle(mesh, self._limit)

    def append(self, mesh: str, new: NewSnapshot, *, keep: int, revision: int | None = None) -> int:
        require_keep(keep)
        check_mesh_name(mesh)
        sequence, at = new.sequence, microseconds(new.observed_at)
        is_new = sequence == 1 and not revision and not self._ask("load", mesh)
        if is_new and new.is_step:
            raise first_step()
        if is_new:
            self._reserve(mesh)
        writer = _name_write()
        verdict = pack_verdict(mesh, sequence, at, new.digest, new.verdict)
        limits: tuple[int | str, ...] = ("", "")
        if self._archive is not None:
            limits = (at - round(self._archive.keep.total_seconds() * 1e6), self._archive.max_bytes)
        answer = self._write(
            "append",
            mesh,
            writer,
            sequence,
            "" if revision is None else revision,
            keep,
            self._expire_ms,
            int(new.is_step),
            rows.seal_step(mesh, sequence, new.state) if new.is_step else seal_state(mesh, writer, sequence, new.state),
            rows.seal_snapshot(mesh, sequence, new.snapshot),
            verdict,
            at,
            *limits,
            *pack_incidents(mesh, new.incidents),
            *pack_history(mesh, new.history, new.dropped),
        )
        return self._finish(mesh, f"snapshot {sequence}", revision, answer, is_new=is_new)

    def replace(self, mesh: str, state: bytes, *, revision: int, incidents: tuple[ArchivedIncident, ...] = ()) -> int:
        check_mesh_name(mesh)
        found = self._ask("load", mesh)
        is_new = not revision and not found
        if is_new:
            self._reserve(mesh)
        writer, sequence = _name_write(), int(found[0]) if found else 0
        sealed = seal_state(mesh, writer, sequence, state)
        packed = pack_incidents(mesh, incidents)
        answer = self._write("replace", mesh, writer, revision, self._expire_ms, sealed, *packed)
        return self._finish(mesh, "a baseline", revision, answer, is_new=is_new)

    def compact(self, mesh: str, state: bytes, *, sequence: int, revision: int, state_revision: int) -> bool:
        check_mesh_name(mesh)
        writer = _name_write()
        sealed = seal_state(mesh, writer, sequence, state)
        return bool(self._write("compact", mesh, writer, sequence, revision, state_revision, sealed) == _DONE)

    def tidy(self) -> None:
        """Nothing: the server writes its log itself."""

    def open_incidents(self, mesh: str) -> dict[str, int]:
        check_mesh_name(mesh)
        key = self._keys(mesh)[KEYS.index("open")]
        found: dict[bytes, bytes] = self._command("HGETALL", key)
        return {name.decode(): int(sequence) for name, sequence in found.items()}

    def incidents(self, mesh: str, wanted: IncidentFilter) -> list[ArchivedIncident]:
        check_mesh_name(mesh)
        key = self._keys(mesh)[KEYS.index("incidents")]
        packed: list[bytes] = self._command("HVALS", key)
        read = (unpack_incident(mesh, one) for one in packed)
        found = [one for one in read if one is not None and _matches(one, wanted)]
        found.sort(key=lambda one: (one.since, one.id), reverse=True)
        return found[: wanted.limit]

    def incident(self, mesh: str, incident: str) -> ArchivedIncident | None:
        check_mesh_name(mesh)
        (row, details) = self._ask("incident", mesh, incident)
        return None if row is None else unpack_incident(mesh, row, details)

    def history_sizes(self, mesh: str) -> dict[ChunkKey, int]:
        check_mesh_name(mesh)
        found: dict[bytes, bytes] = self._command("HGETALL", self._keys(mesh)[KEYS.index("history-sizes")])
        return {unpack_chunk_key(name): int(size) for name, size in sorted(found.items())}

    def history(self, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
        check_mesh_name(mesh)
        if not keys:
            return {}
        name = self._keys(mesh)[KEYS.index("history")]
        sealed: list[bytes | None] = self._command("HMGET", name, *map(pack_chunk_key, keys))
        pairs = zip(keys, sealed, strict=True)
        found = ((key, rows.read_chunk(mesh, key, one)) for key, one in pairs if one is not None)
        return {key: content for key, content in found if content is not None}

    def write_history(self, mesh: str, chunks: Collection[HistoryChunk]) -> None:
        check_mesh_name(mesh)
        self._write("write_history", mesh, *pack_history(mesh, chunks, ()))

    def delete(self, mesh: str) -> bool:
        check_mesh_name(mesh)
        return self._remove("delete", mesh, "")

    def write_whole(self, mesh: str, whole: WholeMesh, *, replace: bool = False) -> None:
        check_mesh_name(mesh)
        self._reserve(mesh, is_limited=False)
        writer, state = _name_write(), whole.state
        begin = state.sequence - len(state.steps)
        steps = [
            part
            for number, step in enumerate(state.steps, begin + 1)
            for part in (number, rows.seal_step(mesh, number, step))
        ]
        window: list[Any] = []
        for one in whole.window:
            at = microseconds(one.observed_at)
            verdict = pack_verdict(mesh, one.sequence, at, one.digest, one.verdict)
            snapshot = rows.seal_snapshot(mesh, one.sequence, one.snapshot)
            window += one.sequence, at, verdict, snapshot
        answer = self._write(
            "write_whole",
            mesh,
            writer,
            int(replace),
            self._expire_ms,
            state.sequence,
            state.revision,
            whole.window[0].sequence if whole.window else 1,
            begin,
            state.state_revision,
            seal_state(mesh, writer, begin, state.state),
            len(state.steps),
            *steps,
            len(whole.window),
            *window,
            *pack_incidents(mesh, whole.incidents),
        )
        self._finish(mesh, "a copy", 0, answer, is_new=True)

    def read_document(self, name: str) -> StoredDocument | None:
        revision, writer, content = self._command("HMGET", self._document_key(name), "revision", "writer", "content")
        if revision is None:
            self._check_identity()
            return None
        try:
            return StoredDocument(int(revision), rows.unseal_document(name, writer.decode(), content))
        except CorruptState as error:
            self._command("DEL", self._document_key(name))
            log.error("state store %s: %s; the document was deleted", self.name, error)
            return None

    def write_document(self, name: str, content: bytes, *, revision: int) -> int:
        writer = _name_write()
        sealed = rows.seal_document(name, writer, content) if content else b""
        run, key = self._scripts["write_document"].run, self._document_key(name)
        self._check_known()
        outcome, stored = self._server.call(
            lambda client: run(client, [key], (writer, revision, sealed)), is_write=True
        )
        if outcome != _DONE:
            self._check_identity()
            raise document_conflict(name, revision, int(stored))
        return int(stored)

    def _document_key(self, name: str) -> str:
        return f"{self._prefix}:{{{_STORE}}}:document:{name}"

    def _fetch_newest(self, mesh: str) -> tuple[int, int, bytes] | None:
        found = self._ask_about("load", mesh)
        return found and (int(found[1]), int(found[0]), found[2])

    def _fetch_all_newest(self) -> list[tuple[str, int, bytes]]:
        names = [name.decode() for name in sorted(self._entries())]
        newest = zip(names, self._read_newest(names), strict=True)
        return [(name, sequence, verdict) for name, (sequence, verdict) in newest if sequence is not None]

    def _read_newest(self, names: list[str]) -> list[tuple[int | None, bytes]]:
        """Sequence and newest verdict of meshes, in two round trips; None for a mesh that is not stored."""

        def ask(client: Client) -> list[tuple[int | None, bytes]]:
            with client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hget(self._keys(name)[0], "sequence")
                found = pipeline.execute()
                for name, sequence in zip(names, found, strict=True):
                    pipeline.hget(self._keys(name)[KEYS.index("verdicts")], sequence or "0")
                verdicts = pipeline.execute()
            return [
                (None if sequence is None else int(sequence), verdict or b"")
                for sequence, verdict in zip(found, verdicts, strict=True)
            ]

        return self._server.call(ask) if names else []

    def _fetch_verdicts(self, mesh: str, since: datetime | None, limit: int) -> list[tuple[int, bytes]]:
        return self._select_verdicts(mesh, "-inf" if since is None else f"({microseconds(since)}", "+inf", limit)

    def _fetch_verdicts_of(self, mesh: str, observed_at: datetime) -> list[tuple[int, bytes]]:
        at = microseconds(observed_at)  # beyond the year 2255, the server rounds times
        return self._select_verdicts(mesh, at, at, -1)

    def _select_verdicts(self, mesh: str, begin: str | int, end: str | int, limit: int) -> list[tuple[int, bytes]]:
        found = self._ask_about("verdicts", mesh, begin, end, limit) or []
        return [(int(number), row) for number, row in zip(found[::2], found[1::2], strict=True)]

    def _fetch_window(self, mesh: str) -> Iterator[tuple[int, bytes]]:
        # One answer is one consistent view, however long the reader takes.
        kept: dict[bytes, bytes] = self._command("HGETALL", self._keys(mesh)[KEYS.index("snapshots")])
        if not kept:
            self._check_identity()
        for number in sorted(map(int, kept)):
            yield number, kept.pop(b"%d" % number)

    def _fetch_state(self, mesh: str) -> list[Any] | None:
        found: list[Any] | None = self._ask_about("load_state", mesh)
        return found

    def _fetch_whole(self, mesh: str) -> list[Any] | None:
        found: list[Any] | None = self._ask_about("read_whole", mesh)
        return found

    def _unseal_verdict(self, mesh: str, sequence: int, sealed: bytes) -> tuple[datetime, str, bytes]:
        return unpack_verdict(mesh, sequence, sealed)

    def _unseal_state(self, mesh: str, found: list[Any]) -> StoredState:
        return unseal_state(mesh, *found)

    def _unseal_whole(self, mesh: str, found: list[Any]) -> WholeMesh:
        return unpack_whole(mesh, *found)

    def _move_aside(self, mesh: str, why: str, revision: int) -> bool:
        return self._remove("set_aside", mesh, revision, why)

    def _move_aside_if_damaged(self, mesh: str, why: str) -> bool:
        found = self._ask("read_whole", mesh)
        if not found:
            return False
        try:
            unpack_whole(mesh, *found)
        except CorruptState:
            return self._move_aside(mesh, why, int(found[1]))
        return False

    def _remove(self, script: str, mesh: str, *arguments: Any) -> bool:
        """Run a script that ends a mesh, and take the mesh off the list. Returns False if the script refuses."""
        entry = self._command("HGET", self._store_keys()[1], mesh)
        if self._write(script, mesh, _name_write(), *arguments) != _DONE:
            self._check_identity()
            return False
        if entry is not None:
            self._release(mesh, entry)
        return True

    def _finish(self, mesh: str, what: str, revision: int | None, answer: list[Any], *, is_new: bool) -> int:
        """The new revision, or the error of a refused write."""
        outcome, *details = answer
        if outcome == _DONE:
            if is_new:  # the entry may have been dropped if this process was paused for long
                self._reserve(mesh, is_limited=False)
            return int(details[0])
        self._check_identity()
        stored_sequence, stored_revision = map(int, details)
        if revision and 0 < stored_revision < revision:
            log.error(
                "state store %s: mesh %r is at revision %d, but %d was acknowledged: Redis has lost writes, as "
                "after a power failure or a failover; the mesh continues from what is left",
                self.name, mesh, stored_revision, revision,
            )  # fmt: skip
        raise conflict(mesh, what, revision, stored_sequence, stored_revision)

    def _reserve(self, mesh: str, *, is_limited: bool = True) -> None:
        """Enter a mesh in the list of meshes; an idle one may have to make room."""
        limit = self._limit if is_limited else None
        most = "" if limit is None else limit.max_meshes
        while True:
            self._check_known()
            outcome = self._write_index("reserve", mesh, _name_write(), most, self._id)
            if outcome == _DONE:
                return
            if outcome == _OTHER_STORE or limit is None:
                self._check_identity()
                continue
            idle = self._find_idle(mesh, limit)
            if idle is not None and self._remove("delete", *idle):
                self._report_evicted(idle[0])

    def _find_idle(self, mesh: str, limit: MeshLimit) -> tuple[str, int] | None:
        """The idle mesh that a new one may replace, with its revision; None if there is room now.

        Raises:
            TooManyMeshes: the store is full, and no mesh has been idle for long enough.
        """
        entries = self._entries()
        names = [name.decode() for name in entries]

        def ask(client: Client) -> list[bytes | None]:
            with client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hget(self._keys(name)[0], "revision")
                return list(pipeline.execute())

        found = dict(zip(names, self._server.call(ask), strict=True))
        unused = [name for name in names if found[name] is None and _is_old(entries[name.encode()])]
        for name in unused:
            self._release(name, entries[name.encode()])
        if unused:
            return None
        revisions = {name: int(revision) for name, revision in found.items() if revision is not None}
        if limit.evict_idle_seconds is not None and revisions:  # a revision is the time of its write, µs
            name = min(revisions, key=lambda one: revisions[one])
            if time.time() - revisions[name] / 1e6 >= limit.evict_idle_seconds:
                return name, revisions[name]
        raise too_many_meshes(mesh, limit)

    def _entries(self) -> dict[bytes, bytes]:
        """The list of meshes: names, each with the time and the writer of its reservation."""
        found: dict[bytes, bytes] = self._command("HGETALL", self._store_keys()[1])
        if not found:
            self._check_identity()
        return found

    def _release(self, mesh: str, entry: bytes) -> None:
        self._write_index("release", mesh, entry)

    def _check_known(self) -> None:
        """Remember the id of the store before the first call."""
        if self._id is None:
            self._check_identity()

    def _check_identity(self) -> None:
        """Check that the server has the data that this process has seen.

        Raises:
            StoreGone: it was emptied or replaced.
        """
        made = uuid.uuid4().hex.encode() if self._id is None else b""
        found = self._write_index("identify", made)
        if self._id is None:
            self._id = found
        if found == self._id:
            if self._is_lost:
                self._is_lost = False
                log.warning("state store %s: its data is back and in use again", self.name)
            return
        error = StoreGone(
            f"state store {self.name}: expected the data of store {self._id.decode()}, got "
            f"{f'the data of store {found.decode()}' if found else 'none'}; Redis was emptied or replaced, and "
            "nothing can be read or stored; restore its data, or restart the service to continue without it",
            retry_after_seconds=_RETRY_SECONDS,
        )
        if not self._is_lost:
            self._is_lost = True
            log.error("%s", error)
        raise error

    def _ask(self, script: str, mesh: str, *arguments: Any) -> Any:
        self._check_known()
        return self._server.call(lambda client: self._scripts[script].run(client, self._keys(mesh), arguments))

    def _ask_about(self, script: str, mesh: str, *arguments: Any) -> Any:
        """As :meth:`_ask`; None if nothing is stored, and the store is the one that this process has seen."""
        found = self._ask(script, mesh, *arguments)
        if not found:
            self._check_identity()
        return found or None

    def _command(self, *words: str) -> Any:
        self._check_known()
        return self._server.call(lambda client: cast(Any, client).execute_command(*words))

    def _write(self, script: str, mesh: str, *arguments: Any) -> Any:
        self._check_known()
        run = self._scripts[script].run
        return self._server.call(lambda client: run(client, self._keys(mesh), arguments), is_write=True)

    def _write_index(self, script: str, *arguments: Any) -> Any:
        run = self._scripts[script].run
        return self._server.call(lambda client: run(client, self._store_keys(), arguments), is_write=True)

    def _keys(self, mesh: str) -> list[str]:
        return [f"{self._prefix}:{{{mesh}}}:{name}" for name in KEYS]

    def _store_keys(self) -> list[str]:
        return [f"{self._prefix}:{{{_STORE}}}:{name}" for name in ("id", "meshes")]


def _name_write() -> str:
    """A name of a write that no other has."""
    return uuid.uuid4().hex


def _is_old(entry: bytes) -> bool:
    """Whether a mesh was reserved so long ago that its first write must have failed."""
    return time.time() - int(entry.split()[0]) > _RESERVED_SECONDS


def _matches(one: ArchivedIncident, wanted: IncidentFilter) -> bool:
    return (
        (wanted.since is None or one.until is None or one.until > wanted.since)
        and (wanted.until is None or one.since < wanted.until)
        and set(wanted.services) <= set(one.services)
        and (wanted.suspects is None or not set(wanted.suspects).isdisjoint(one.suspects))
        and wanted.kind in (None, one.kind)
        and wanted.severity in (None, one.severity)
        and (wanted.before is None or (one.since, one.id) < wanted.before)
    )
