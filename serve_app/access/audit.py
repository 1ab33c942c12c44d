"""The audit log: who changed what, when and from where, and who signed in.

It is a log of the store, so every store has it, and every replica writes it. A record is an entry: a line of JSON,
whose key begins with its time.

A change has its record before it is made; its status is added afterwards. So each change that a client knows of has its
record, and a record without a status is of a change that may have happened.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Protocol

LOG = "audit"
PAGE = 1000  # entries that are read at once
MAX_READ = 20 * PAGE  # for one answer
TIDY_SECONDS = 3600.0  # between two times that a process looks for records to delete
MAX_TEXT = 200  # characters of a name in a record: names come from others
MAX_NAMES = 20


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change, or one sign-in or sign-out.

    Attributes:
        id: random.
        at: UTC.
        user: name of the token or of the user; empty: unknown.
        subject: of the user at the OpenID provider, who may be able to change the name.
        way: how the user was identified: token, oidc, proxy or anonymous; empty: not at all.
        action: name of the operation, such as ``add_mute``; or ``sign_in``, ``sign_out``.
        route: method and path, with the names of parameters.
        mesh: empty: none.
        names: of what was changed, such as ids and services.
        address: of the client, behind trusted proxies too.
        request: id of the request.
        status: HTTP status of the answer; None: not known, so the change may have been made.
    """

    id: str
    at: datetime
    user: str
    way: str
    action: str
    route: str
    mesh: str = ""
    names: tuple[str, ...] = ()
    address: str = ""
    request: str = ""
    subject: str = ""
    status: int | None = None

    @property
    def key(self) -> str:
        """Of the entry: keys are in order of time."""
        return f"{_time_key(self.at)}-{self.id}"

    def line(self) -> str:
        """One line of JSON, in ASCII: names come from others, and control characters could forge lines."""
        document = asdict(self) | {"at": self.at.isoformat(timespec="milliseconds")}
        return json.dumps(document, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records to list; None: any.

    Attributes:
        since, until: from ``since`` to before ``until``.
        user, mesh, action: exactly these.
        before: key of the last record that was read before, see :class:`AuditPage`.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    mesh: str | None = None
    action: str | None = None
    limit: int = 100
    before: str | None = None

    def matches(self, record: AuditRecord) -> bool:
        """Whether a record is to be listed."""
        texts = ((self.user, record.user), (self.mesh, record.mesh), (self.action, record.action))
        is_in_time = (self.since is None or record.at >= self.since) and (self.until is None or record.at < self.until)
        return is_in_time and all(wanted is None or wanted == found for wanted, found in texts)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A part of a list of records, newest first. ``end``: key after which the rest begins; None: this was all."""

    records: tuple[AuditRecord, ...]
    end: str | None


@dataclass(frozen=True, slots=True)
class AuditLimit:
    """How much is kept: records of at most this age, in at most so many bytes."""

    keep: timedelta
    max_bytes: int


class Entries(Protocol):
    """The part of a store that the audit log needs; :class:`~serve_app.stores.state_store.StateStore` describes it."""

    def read_log(self, name: str, *, before: str | None = None, limit: int = -1) -> list[tuple[str, bytes]]:
        """Entries, the last ones first."""

    def write_log(self, name: str, key: str, content: bytes, *, is_new: bool = False) -> bool:
        """Write an entry. Returns whether it was written."""

    def drop_from_log(self, name: str, keys: Iterable[str]) -> None:
        """Delete entries."""


@dataclass(slots=True)
class AuditLog:
    """The audit log of a store.

    Args:
        limit: how much is kept; the oldest records are deleted first.
        now: UTC.

    Every method raises:
        ServeError: the store cannot be used.
    """

    entries: Entries
    limit: AuditLimit
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _tidied_at: float = field(default_factory=time.monotonic)

    def append(self, record: AuditRecord) -> None:
        """Add a record. Repeating the call adds nothing."""
        self.entries.write_log(LOG, record.key, record.line().encode(), is_new=True)
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS:
            self._tidied_at = time.monotonic()
            self.tidy()

    def finish(self, record: AuditRecord) -> None:
        """Replace a record, when its outcome is known."""
        self.entries.write_log(LOG, record.key, record.line().encode())

    def page(self, wanted: AuditFilter) -> AuditPage:
        """The newest records that match. A page may be short, and even empty, before the list ends."""
        oldest, found = _time_key(self.now() - self.limit.keep), list[AuditRecord]()
        before = wanted.before
        for _ in range(MAX_READ // PAGE):
            entries = self.entries.read_log(LOG, before=before, limit=PAGE)
            for key, content in entries:
                if key < oldest:
                    return AuditPage(tuple(found), None)
                before, record = key, _read(content)
                if wanted.matches(record):
                    found.append(record)
                    if len(found) == wanted.limit:
                        return AuditPage(tuple(found), before)
            if len(entries) < PAGE:
                return AuditPage(tuple(found), None)
        return AuditPage(tuple(found), before)

    def tidy(self) -> None:
        """Delete the records that are too old, and those beyond the bytes of the log."""
        self._drop_before(_time_key(self.now() - self.limit.keep))
        size = 0
        for key, content in self._entries():
            size += len(content)
            if size > self.limit.max_bytes:
                self._drop_before(key + "~")
                return

    def _entries(self) -> Iterator[tuple[str, bytes]]:
        """All entries, newest first."""
        before = None
        while entries := self.entries.read_log(LOG, before=before, limit=PAGE):
            yield from entries
            before = entries[-1][0]

    def _drop_before(self, key: str) -> None:
        while old := self.entries.read_log(LOG, before=key, limit=PAGE):
            self.entries.drop_from_log(LOG, [one for one, _ in old])


def short(text: str) -> str:
    """A name as it goes into a record."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _time_key(at: datetime) -> str:
    return f"{max(0, round(at.timestamp() * 1e6)):018}"


def _read(line: bytes) -> AuditRecord:
    names = {one.name for one in fields(AuditRecord)}
    document = {name: value for name, value in json.loads(line).items() if name in names}  # of a later version, too
    document |= {"at": datetime.fromisoformat(document["at"]), "names": tuple(document["names"])}
    return AuditRecord(**document)
