"""The audit log: who changed what, when and from where, and who signed in.

It is in the store, so all replicas share it. A record is a row of the service's space: a sealed line of JSON, whose key
begins with its time.

A change is recorded before it is made; its status is added afterwards. So each change that a client knows of has a
record, and a record without a status belongs to a change that may have happened.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from serve_app.api.schemas.audit import AuditDocument, AuditRecordDocument
from serve_app.errors import CorruptState
from serve_app.stores.records import Retention
from serve_app.stores.row_store import SERVICE, Change, Range, Row, under
from serve_app.stores.rows import sealed, unsealed

if TYPE_CHECKING:  # the ingress needs no torch
    from serve_app.stores.state_store import StateStore

PREFIX = "log/audit/"
PAGE = 1000  # records that are read at once
MAX_READ = 20 * PAGE  # for one answer
TIDY_SECONDS = 3600.0  # between two searches of a process for records to delete
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records to list; None: any.

    Attributes:
        since, until: ``since`` is included, ``until`` is not.
        before: ``next`` of the previous page: key of its last record.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    mesh: str | None = None
    action: str | None = None
    limit: int = 100
    before: str | None = None

    def matches(self, record: AuditRecordDocument) -> bool:
        return (
            (self.since is None or record.at >= self.since)
            and (self.until is None or record.at < self.until)
            and self.user in (None, record.user)
            and self.mesh in (None, record.mesh)
            and self.action in (None, record.action)
        )


@dataclass(slots=True)
class AuditLog:
    """The audit log of a store; ``now`` returns UTC."""

    store: "StateStore"
    limit: Retention
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _tidied_at: float = field(default_factory=time.monotonic)

    def append(self, record: AuditRecordDocument) -> None:
        """Add a record. Repeating the call adds nothing."""
        key = PREFIX + key_of(record)
        self.store.database.write(SERVICE, Change({key: None}, puts=[_row(key, record)]))
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
            self._tidied_at = time.monotonic()
            self.tidy()

    def finish(self, record: AuditRecordDocument) -> None:
        """Replace a record when its outcome is known."""
        self.store.database.write(SERVICE, Change(puts=[_row(PREFIX + key_of(record), record)]))

    def page(self, query: AuditFilter) -> AuditDocument:
        """Return the newest matching records, without damaged ones. A page may be short or empty before the list
        ends."""
        oldest, records = _time_key(self.now() - self.limit.keep), list[AuditRecordDocument]()
        for count, (key, row) in enumerate(self._entries(query.before), 1):
            if key < oldest:
                break
            record = _read(row)
            if record is not None and query.matches(record):
                records.append(record)
            if len(records) == query.limit or count == MAX_READ:
                return AuditDocument(records=records, next=key)
        return AuditDocument(records=records, next=None)

    def tidy(self) -> None:
        """Delete records that are too old or exceed the log's size limit."""
        self._drop_before(_time_key(self.now() - self.limit.keep))
        size = 0
        for key, row in self._entries():
            size += len(row[1])
            if size > self.limit.max_bytes:
                self._drop_before(key + "~")
                return

    def _entries(self, before: str | None = None) -> Iterator[tuple[str, Row]]:
        """Yield the key and row of each record, newest first, from before the key ``before``."""
        while page := self._read(before):
            for row in page:
                before = row[0].removeprefix(PREFIX)
                yield before, row

    def _drop_before(self, key: str) -> None:
        while page := self._read(key):
            self.store.database.write(SERVICE, Change(drops=[record_key for record_key, _ in page]))

    def _read(self, before: str | None) -> list[Row]:
        end = under(PREFIX).end if before is None else PREFIX + before
        (page,) = self.store.database.read(SERVICE, Range(PREFIX, end, PAGE, is_reverse=True))
        return page


def key_of(record: AuditRecordDocument) -> str:
    """Return a record's key. Keys are in order of time."""
    return f"{_time_key(record.at)}-{record.id}"


def line_of(record: AuditRecordDocument) -> str:
    """Return one line of JSON in ASCII: names come from users, and control characters could forge lines."""
    return json.dumps(record.model_dump(mode="json"), separators=(",", ":"))


def _row(key: str, record: AuditRecordDocument) -> Row:
    """Return a record's row. It is unique, as ``Change`` requires of a first row."""
    return sealed(SERVICE, key, f"{line_of(record)}\n{uuid.uuid4().hex}".encode())


def _time_key(at: datetime) -> str:
    return f"{max(0, round(at.timestamp() * 1e6)):018}"


def _read(row: Row) -> AuditRecordDocument | None:
    """Return the record of a row; None if it is damaged."""
    try:
        document = json.loads(unsealed(SERVICE, row).rpartition(b"\n")[0])
        fields = {name: document[name] for name in AuditRecordDocument.model_fields}  # a later version may have more
        return AuditRecordDocument.model_validate(fields)
    except (CorruptState, KeyError, ValueError) as error:
        log.error("audit log: record %s is damaged and left out: %s", row[0].removeprefix(PREFIX), error)
        return None
