"""Leases in the store's Redis: which of several processes collects a mesh."""

import os
import socket
import uuid

from serve_app.settings import StoreSettings
from serve_app.stores.redis_server import RedisServer, Script

NAME = "collector"


class RedisLeases:
    """:class:`~serve_app.collect.ownership.Leases` in the Redis at ``store.url``. It connects with the first call.

    A lease ends by Redis's clock alone. Each step is one script.

    Args:
        settings: of the store.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._server = RedisServer(settings)
        self._prefix = settings.key_prefix
        self._process = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"  # for people who read the key
        self._script = Script.of("lease")

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        found = self._run(mesh, note, round(1000 * seconds))
        return None if found is None else found.partition(b"\n")[2]

    def end(self, mesh: str) -> None:
        self._run(mesh, b"", 0)

    def _run(self, mesh: str, note: bytes, milliseconds: int) -> bytes | None:
        key, arguments = f"{self._prefix}:{{{mesh}}}:{NAME}", (self._process, note, milliseconds)
        found: bytes | None = self._server.call(
            lambda client: self._script.run(client, [key], arguments), is_write=True
        )
        return found
