"""The state of notifications as a document of the store. It has one writer: the last process that has read it."""

import logging

from serve_app.alerts.alert import AlertState
from serve_app.alerts.payloads import decode_state, encode_state
from serve_app.errors import CorruptState, StoreConflict
from serve_app.stores.state_store import StateStore

NAME, ASIDE = "notifications", "notifications-aside"
log = logging.getLogger(__name__)


class AlertDocuments:
    """An :class:`~serve_app.alerts.storage.AlertStorage` in a store that several nodes share.

    So a notifier that Serve starts on another node continues where the lost one was. If the lost one still runs,
    without a connection to Ray, its next write fails and it sends nothing more.

    Args:
        store: with the document.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._revision = 0  # of the document as this process has read or written it

    @property
    def name(self) -> str:
        """The store and the name of the document."""
        return f"{self._store.name}, document {NAME}"

    def read(self) -> AlertState:
        content = self._claim()
        try:
            return decode_state(content)
        except CorruptState as error:
            before = self._store.read_document(ASIDE)
            self._store.write_document(ASIDE, content, revision=before.revision if before else 0)
            log.error("%s; set aside in %s; the next verdict sends open incidents again", error, self.name)
            return AlertState()

    def write(self, state: AlertState) -> None:
        try:
            self._revision = self._store.write_document(NAME, encode_state(state), revision=self._revision)
        except StoreConflict as error:
            raise StoreConflict(
                f"{self.name}: expected to be its writer, got another process that has taken over; nothing was changed"
            ) from error

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        self._store.close()

    def _claim(self) -> bytes:
        """Write the document again, so that the process that wrote it before cannot any more. Returns its content."""
        while True:
            kept = self._store.read_document(NAME)
            content = kept.content if kept else encode_state(AlertState())
            try:
                self._revision = self._store.write_document(NAME, content, revision=kept.revision if kept else 0)
            except StoreConflict:
                continue
            return content
