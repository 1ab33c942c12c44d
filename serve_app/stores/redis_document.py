"""A value in a Redis that has one writer: the last process that claimed it."""

import uuid

from serve_app.errors import StoreConflict, StoreGone
from serve_app.settings import StoreSettings
from serve_app.stores.redis_scripts import load_scripts
from serve_app.stores.redis_server import RedisServer

_WRITTEN, _OTHER_WRITER = 1, 0


class RedisDocument:
    """A value in the Redis of ``store.url``. It connects with the first call.

    Args:
        settings: of the store.
        name: of the value.
    """

    def __init__(self, settings: StoreSettings, name: str) -> None:
        self._server = RedisServer(settings)
        self._key = f"{settings.key_prefix}:{{STORE}}:{name}"
        self._writer = uuid.uuid4().hex
        self._scripts = load_scripts()

    @property
    def name(self) -> str:
        """URL and key."""
        return f"{self._server.name}, key {self._key}"

    def claim(self) -> bytes:
        """Become its only writer, and return the value; empty: there is none. Errors as of ``RedisServer.call``."""
        return bytes(self._run("claim"))

    def write(self, value: bytes) -> None:
        """Replace the value.

        Raises:
            StoreConflict: another process has claimed it since.
            StoreGone: the Redis was emptied or replaced.
            ServeError: as of ``RedisServer.call``.
        """
        self._write("value", value)

    def set_aside(self, value: bytes) -> None:
        """Store a value that cannot be used, for people to look at; the last one is kept. Errors as of
        :meth:`write`."""
        self._write("aside", value)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _write(self, field: str, value: bytes) -> None:
        outcome = self._run("write_document", field, value)
        if outcome == _WRITTEN:
            return
        if outcome == _OTHER_WRITER:
            raise StoreConflict(
                f"{self.name}: expected to be its writer, came another process that has taken over; nothing was changed"
            )
        raise StoreGone(
            f"{self.name}: expected the value that this process claimed, came none; the Redis was emptied or replaced; "
            "restore its data, or restart the service to continue without it"
        )

    def _run(self, script: str, *arguments: str | bytes) -> bytes | int:
        run = self._scripts[script].run
        answer: bytes | int = self._server.call(
            lambda client: run(client, [self._key], (self._writer, *arguments)), is_write=True
        )
        return answer
