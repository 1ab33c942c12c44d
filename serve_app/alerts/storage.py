"""The notification state as a document in the state store. Its only writer is the last process that has read it."""

import logging
import uuid

import msgspec

from serve_app.alerts.alert import AlertState
from serve_app.errors import StoreConflict, StoreFull
from serve_app.stores.state_store import StateStore

NAME = "notifications"
log = logging.getLogger(__name__)


class AlertStorage:
    """The notification state in a store. All methods raise the store's errors.

    A notifier that Serve starts again, on this node or another, continues where the lost one stopped. If the lost one
    still runs, without a connection to Ray, its next write fails and it sends nothing more.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._owner = uuid.uuid4().hex.encode()  # the document's first line: its writer
        self._revision = 0  # of the document, as last read or written here

    @property
    def name(self) -> str:
        return f"{self._store.name}, document {NAME}"

    def read(self) -> AlertState:
        """Read the stored state, and become its writer. It is empty if there is none, or another version wrote it."""
        content = self._claim()
        try:
            return AlertState() if content is None else msgspec.json.decode(content, type=AlertState)
        except msgspec.MsgspecError as error:
            log.error(
                "%s: expected the state of this version, got %s; the next verdict sends open incidents again",
                self.name,
                error,
            )
            return AlertState()

    def write(self, state: AlertState) -> None:
        """Replace the stored state.

        Raises:
            StoreConflict: another process has taken over. Send nothing more.
        """
        content = msgspec.json.encode(state)
        try:
            self._write(content)
        except StoreConflict as error:
            document = self._store.read_document(NAME)
            if not document.content.startswith(self._owner):
                raise StoreConflict(
                    f"{self.name}: expected to be its writer, got another process that has taken over; nothing was "
                    "changed"
                ) from error
            self._revision = document.revision  # this process wrote it earlier, but the answer was lost
            self._write(content)

    def revision(self) -> int:
        """Return the stored revision, which the writer changes at least every minute; 0: there is no state."""
        return self._store.read_document(NAME).revision

    def _claim(self) -> bytes | None:
        """Write the document again, so that its former writer no longer can, and return the stored state; None if there
        is none."""
        while True:
            document = self._store.read_document(NAME)
            state = document.content.partition(b"\n")[2] if document.revision else None
            self._revision = document.revision
            try:
                self._write(msgspec.json.encode(AlertState()) if state is None else state)
            except StoreConflict:
                continue
            except StoreFull as error:  # stops no alert; this process writes once there is space
                log.error("notifications cannot be saved, but are still sent: %s", error)
            return state

    def _write(self, state: bytes) -> None:
        self._revision = self._store.write_document(NAME, self._owner + b"\n" + state, revision=self._revision)
