"""Whether receivers accept notifications: the notifier writes a report to the store, where other processes read it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from serve_app.alerts.annotations import format_time
from serve_app.stores.state_store import StateStore

NAME = "receivers"


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """One receiver's state after its newest notification or check.

    Attributes:
        name: its address.
        failed: why it accepts nothing (:class:`~serve_app.net.http.Reply`); empty: it works, or was not tried yet.
        since: time of the first failure in a row, UTC.
        dropped: notifications that it has not accepted since the notifier started, and that are not sent again.
    """

    kind: str
    name: str
    failed: str = ""
    detail: str = ""
    since: datetime | None = None
    dropped: int = 0

    @property
    def has_problem(self) -> bool:
        """Whether to show it to people."""
        return bool(self.failed or self.dropped)

    def text(self, *, public: bool = False) -> str:
        """Return the problem in words; ``public``: without addresses and answers."""
        name = self.kind if public else f"{self.kind} {self.name}"
        since = f" since {format_time(self.since)}" if self.since else ""
        loss = f"{name} did not take {self.dropped} notification{'' if self.dropped == 1 else 's'}"
        if not self.failed:
            return f"{loss}, which the log names"
        return f"{name} takes no notifications{since}: {self.failed if public else self.detail or self.failed}"


def read_statuses(store: StateStore) -> tuple[ReceiverStatus, ...]:
    """Return the newest report; empty if there is none, or another version wrote it."""
    content = store.read_document(NAME).content
    try:
        return msgspec.json.decode(content, type=tuple[ReceiverStatus, ...]) if content else ()
    except msgspec.MsgspecError:
        return ()


def write_statuses(store: StateStore, statuses: Sequence[ReceiverStatus]) -> None:
    """Replace the report.

    Raises:
        StoreConflict: another process has replaced it meanwhile.
    """
    revision = store.read_document(NAME).revision
    store.write_document(NAME, msgspec.json.encode(statuses), revision=revision)
