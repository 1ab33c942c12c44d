"""A store's rows, and the leases of collectors, in a Redis or Valkey that several nodes can share.

A space is two keys with its name in braces, so that they are on one node of a Redis Cluster: a hash with the rows, and
a sorted set with their keys in order. Each call is one Lua script on the server, an atomic step for all clients.

Lost answers: if a connection breaks, the outcome of a write is unknown, and the write is sent again. If the server
finds the write's first row, which is unique, it answers that the write was applied.

Lost data: the store has an id, which each process remembers. When something is missing, the process compares the id,
and raises ``StoreGone`` if the server was emptied or replaced. Every mesh would otherwise start from the beginning.

The list of meshes is in the service's space, perhaps on another node of a Cluster. A mesh is entered before its first
write, and counts only once it has a head. The limit on meshes is checked before that, so sessions that create meshes at
the same time may exceed it by one each.
"""

import logging
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from threading import Lock
from typing import Any

from serve_app.errors import StoreGone
from serve_app.settings import StoreSettings
from serve_app.stores.redis.server import Client, RedisServer, Script
from serve_app.stores.row_store import HEAD, SERVICE, Change, NoRoom, Range, Row, only, under

MIN_VERSION = (6, 2)  # of Redis; every Valkey is newer
_ID, _MESH = "id", "mesh/"  # rows of SERVICE: the store's id, and its meshes, each with a unique value
_RETRY_SECONDS = 5.0
_DONE = 1
log = logging.getLogger(__name__)


class RedisRows:
    """A :class:`~serve_app.stores.row_store.RowStore` in the Redis at ``store.url``; the first call connects."""

    def __init__(self, settings: StoreSettings) -> None:
        self._server = RedisServer(settings)
        self.name = self._server.name
        self._prefix = settings.key_prefix
        self._id: bytes | None = None
        self._is_lost = False
        self._first_call = Lock()
        self._read, self._write = Script.of("read"), Script.of("write")

    def close(self) -> None:
        self._server.close()

    def tidy(self) -> None:
        """Nothing: the server writes its log itself."""

    def read(self, space: str, *ranges: Range) -> list[list[Row]]:
        self._check_known()
        is_mesh, *results = self._select(space, *ranges)
        if not is_mesh and not any(results):
            self._check_identity()
        return [
            [(key.decode("utf-8", "replace"), value) for key, value in zip(rows[::2], rows[1::2], strict=True)]
            for rows in results
        ]

    def scan(self, space: str, *ranges: Range) -> Iterator[Row]:
        # One answer is one consistent view, however long the reader takes.
        yield from chain.from_iterable(self.read(space, *ranges))

    def survey(self, wanted: Range | None = None) -> list[tuple[str, bytes, list[Row]]]:
        names = [key.removeprefix(_MESH) for (key, _) in self.read(SERVICE, under(_MESH))[0]]

        def ask(client: Client) -> list[tuple[str, bytes, list[Row]]]:
            """Three round trips: scripts cannot be sent together in a Cluster."""
            keys: list[list[bytes]] = [[] for _ in names]
            if wanted is not None:
                with client.pipeline(transaction=False) as pipeline:
                    command, bounds = "ZRANGEBYLEX", (f"[{wanted.begin}", f"({wanted.end}")
                    if wanted.is_reverse:
                        command, bounds = "ZREVRANGEBYLEX", bounds[::-1]
                    for name in names:
                        key = self._keys(name)[1]
                        pipeline.execute_command(command, key, *bounds, "LIMIT", 0, wanted.limit)
                    keys = pipeline.execute()
            with client.pipeline(transaction=False) as pipeline:
                for name, fields in zip(names, keys, strict=True):
                    pipeline.hmget(self._keys(name)[0], [HEAD, *fields])
                values = pipeline.execute()
            return [
                (
                    name,
                    head,
                    [(key.decode(), value) for key, value in zip(fields, contents, strict=True) if value is not None],
                )
                for name, fields, (head, *contents) in zip(names, keys, values, strict=True)
                if head is not None
            ]

        return self._server.call(ask) if names else []

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        self._check_known()
        if space == SERVICE:
            return self._apply_known(change)
        if change.begins:
            meshes = [] if max_meshes is None else [name for name, _, _ in self.survey()]
            if max_meshes is not None and len(meshes) >= max_meshes and space not in meshes:
                raise NoRoom
            self._enter(space)
        entry = self._entry(space) if change.ends else None
        is_done = bool(self._apply(space, change) == _DONE)
        if not is_done:
            self._check_identity()
        elif change.begins:  # another process may have deleted the mesh with its entry in between
            self._enter(space)
        elif entry is not None:
            self._release(space, entry)
        return is_done

    def _enter(self, mesh: str) -> None:
        self._apply_known(Change(puts=[(_MESH + mesh, uuid.uuid4().hex.encode())]))

    def _entry(self, mesh: str) -> bytes | None:
        (rows,) = self.read(SERVICE, only(_MESH + mesh))
        return rows[0][1] if rows else None

    def _release(self, mesh: str, entry: bytes) -> None:
        """Remove a mesh from the list unless it was created again and has another entry."""
        self._apply(SERVICE, Change({_MESH + mesh: entry}, drops=[_MESH + mesh]))

    def _apply_known(self, change: Change) -> bool:
        """Apply a change to the service's space if the store is the one that this process knows."""
        outcome = self._apply(SERVICE, replace(change, expects={_ID: self._id, **change.expects}))
        if outcome != _DONE:
            self._check_identity()
        return bool(outcome == _DONE)

    def _apply(self, space: str, change: Change) -> Any:
        expects = [
            part for key, begin in change.expects.items() for part in (key, "" if begin is None else "1", begin or b"")
        ]
        puts = [part for row in change.puts for part in row]
        trims = [part for trim in change.trims for part in trim]
        arguments = [
            int(change.ends),
            *(part for section in (expects, change.drops, puts, trims) for part in (len(section), *section)),
        ]
        keys = self._keys(space)
        return self._server.call(lambda client: self._write.run(client, keys, arguments), is_write=True)

    def _select(self, space: str, *ranges: Range) -> Any:
        arguments = [
            part
            for item in ranges
            for part in (item.begin, "" if item == only(item.begin) else item.end, item.limit, int(item.is_reverse))
        ]
        return self._server.call(lambda client: self._read.run(client, self._keys(space), arguments))

    def _check_known(self) -> None:
        """Remember the store's id before the first call, and write one to an empty store. Other threads wait
        meanwhile."""
        if self._id is not None:
            return
        with self._first_call:
            if self._id is None:
                store_id = self._read_id()
                if store_id is None:
                    self._apply(SERVICE, Change({_ID: None}, puts=[(_ID, uuid.uuid4().hex.encode())]))
                    store_id = self._read_id()
                self._id = store_id

    def _check_identity(self) -> None:
        """Check that the server has the data that this process knows.

        Raises:
            StoreGone: it was emptied or replaced.
        """
        store_id = self._read_id()
        if store_id == self._id:
            if self._is_lost:
                self._is_lost = False
                log.warning("state store %s: its data is back and in use again", self.name)
            return
        error = StoreGone(
            f"state store {self.name}: expected the data of store {(self._id or b'').decode()}, got "
            f"{f'the data of store {store_id.decode()}' if store_id else 'none'}; Redis was emptied or replaced, and "
            "nothing can be read or stored; restore its data, or restart the service to continue without it",
            retry_after_seconds=_RETRY_SECONDS,
        )
        if not self._is_lost:
            self._is_lost = True
            log.error("%s", error)
        raise error

    def _read_id(self) -> bytes | None:
        _, row = self._select(SERVICE, only(_ID))
        return row[1] if row else None

    def _keys(self, space: str) -> list[str]:
        return [f"{self._prefix}:{{{space}}}:{name}" for name in ("rows", "keys")]


class RedisLeases:
    """:class:`~serve_app.collect.ownership.Leases` in the Redis at ``store.url``. The first call connects.

    A lease ends by Redis's clock alone. Each step is one script.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._server, self._prefix = RedisServer(settings), settings.key_prefix
        self._process = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"  # for people who read the key
        self._script = Script.of("lease")

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        answer = self._run(mesh, note, round(1000 * seconds))
        return None if answer is None else answer.partition(b"\n")[2]

    def end(self, mesh: str) -> None:
        self._run(mesh, b"", 0)

    def _run(self, mesh: str, note: bytes, milliseconds: int) -> bytes | None:
        key, arguments = f"{self._prefix}:{{{mesh}}}:collector", (self._process, note, milliseconds)
        answer: bytes | None = self._server.call(
            lambda client: self._script.run(client, [key], arguments), is_write=True
        )
        return answer
