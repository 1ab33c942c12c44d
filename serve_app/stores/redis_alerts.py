"""The state of notifications in the store's Redis. It has one writer: the last process that has read it."""

import logging
import uuid
from typing import Any

from serve_app.alerts.alert import AlertState
from serve_app.alerts.payloads import decode_state, encode_state
from serve_app.errors import CorruptState, StoreConflict, StoreGone
from serve_app.settings import StoreSettings
from serve_app.stores.redis_scripts import load_scripts
from serve_app.stores.redis_server import RedisServer

NAME = "notifications"
_WRITTEN, _OTHER_WRITER = 1, 0
log = logging.getLogger(__name__)


class RedisAlertStorage:
    """An :class:`~serve_app.alerts.storage.AlertStorage` in the Redis at ``store.url``. It connects with the first
    call.

    So a notifier that Serve starts on another node continues where the lost one was. If the lost one still runs,
    without a connection to Ray, its next write fails and it sends nothing more.

    Args:
        settings: of the store.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._server = RedisServer(settings)
        self._key = f"{settings.key_prefix}:{{STORE}}:{NAME}"
        self._writer = uuid.uuid4().hex
        self._scripts = load_scripts()

    @property
    def name(self) -> str:
        """URL and key."""
        return f"{self._server.name}, key {self._key}"

    def read(self) -> AlertState:
        content = self._run("claim_alerts")
        try:
            return decode_state(content) if content else AlertState()
        except CorruptState as error:
            self._write("aside", content)
            log.error("%s; set aside in %s; the next verdict sends open incidents again", error, self.name)
            return AlertState()

    def write(self, state: AlertState) -> None:
        self._write("value", encode_state(state))

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._server.close()

    def _write(self, field: str, value: bytes) -> None:
        outcome = self._run("write_alerts", field, value)
        if outcome == _WRITTEN:
            return
        if outcome == _OTHER_WRITER:
            raise StoreConflict(
                f"{self.name}: expected to be its writer, got another process that has taken over; nothing was changed"
            )
        raise StoreGone(
            f"{self.name}: expected the state that this process has read, got none; Redis was emptied or "
            "replaced; restore its data, or restart the service to continue without it"
        )

    def _run(self, script: str, *arguments: str | bytes) -> Any:
        run = self._scripts[script].run
        return self._server.call(lambda client: run(client, [self._key], (self._writer, *arguments)), is_write=True)
