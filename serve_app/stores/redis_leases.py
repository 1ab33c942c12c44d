"""Leases in the store's Redis: which of several processes collects a mesh."""

import os
import socket
import uuid
from typing import Any

from serve_app.settings import StoreSettings
from serve_app.stores.redis_scripts import load_scripts
from serve_app.stores.redis_server import RedisServer

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
        self._scripts = load_scripts()

    def hold(self, mesh: str, note: bytes, seconds: float) -> bytes | None:
        found: bytes | None = self._run("hold_lease", mesh, note, round(1000 * seconds))
        return None if found is None else found.partition(b"\n")[2]

    def end(self, mesh: str) -> None:
        self._run("end_lease", mesh)

    def _run(self, script: str, mesh: str, *arguments: bytes | int) -> Any:
        run, key = self._scripts[script].run, f"{self._prefix}:{{{mesh}}}:{NAME}"
        return self._server.call(lambda client: run(client, [key], (self._process, *arguments)), is_write=True)
