"""The audit log: who changed what, when and from where, and who signed in.

It is kept as documents of the store, so every store has it, and every replica writes it with compare-and-set. A segment
is a document of JSON lines, oldest first, of at most ``SEGMENT_BYTES``; the document ``HEAD`` has the numbers of the
first and the last segment.

A change has its record before it is made; its status is added afterwards. So each change that a client knows of has its
record, and a record without a status is of a change that may have happened.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta

from serve_app.access.documents import Documents, change_document

HEAD = "audit/head"
SEGMENT_BYTES = 64 * 1024  # each record rewrites a segment
MAX_SEGMENTS_READ = 64  # for one answer
MAX_TEXT = 200  # characters of a name in a record: names come from others
MAX_NAMES = 20
MAX_TOPICS = 1000  # of counts that wait


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One change, one sign-in or sign-out, or a number of pushes or refused requests of the same hour.

    Attributes:
        id: random.
        at: UTC; of a count, the beginning of its hour.
        user: name of the token or of the user; empty: unknown.
        subject: of the user at the OpenID provider, who may be able to change the name.
        way: how the user was identified: token, oidc, proxy or anonymous; empty: not at all.
        action: name of the operation, such as ``add_mute``; or ``sign_in``, ``sign_out``, ``push``, ``refused``.
        route: method and path, with the names of parameters.
        mesh: empty: none.
        names: of what was changed, such as ids and services.
        address: of the client, behind trusted proxies too; empty in counts of pushes.
        request: id of the request.
        status: HTTP status of the answer; None: not known, so the change may have been made.
        count: of pushes or refused requests.
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
    count: int = 1

    @property
    def topic(self) -> tuple[object, ...]:
        """What a count is about: counts of the same topic are added up."""
        return (self.at, self.user, self.subject, self.way, self.action, self.mesh, self.address, self.status)

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
        limit: maximum number.
        before: position of the last record that was listed before, see :class:`AuditPage`.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    mesh: str | None = None
    action: str | None = None
    limit: int = 100
    before: tuple[int, int] | None = None

    def matches(self, record: AuditRecord) -> bool:
        """Whether a record is to be listed."""
        texts = ((self.user, record.user), (self.mesh, record.mesh), (self.action, record.action))
        is_in_time = (self.since is None or record.at >= self.since) and (self.until is None or record.at < self.until)
        return is_in_time and all(wanted is None or wanted == found for wanted, found in texts)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A part of a list of records, newest first. ``end``: where the rest begins; None: this was all."""

    records: tuple[AuditRecord, ...]
    end: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class AuditLimit:
    """How much is kept: records of at most this age, in at most so many bytes."""

    keep: timedelta
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _Segments:
    first: int = 1
    last: int = 1


@dataclass(slots=True)
class AuditLog:
    """The audit log of a store.

    Args:
        documents: of the store.
        limit: how much is kept; the oldest records are deleted first.
        now: UTC.

    Every method raises:
        ServeError: the store cannot be used.
    """

    documents: Documents
    limit: AuditLimit
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def append(self, record: AuditRecord) -> int:
        """Add a record; returns the number of its segment, for :meth:`finish`. Repeating the call adds nothing."""
        line = record.line().encode() + b"\n"
        name = f'{{"id":"{record.id}",'.encode()  # the beginning of its line
        while True:
            number = self._head().last

            def add(content: bytes) -> tuple[bytes | None, bool]:
                if content.startswith(name) or b"\n" + name in content:
                    return None, True
                is_full = bool(content) and len(content) + len(line) > SEGMENT_BYTES
                return (None, False) if is_full else (content + line, True)

            if change_document(self.documents, _name(number), add):
                return number
            self._begin_segment(number + 1)

    def finish(self, record: AuditRecord, segment: int) -> None:
        """Replace a record that was added to a segment, when its outcome is known."""

        def put(content: bytes) -> tuple[bytes | None, None]:
            records = [record if one.id == record.id else one for one in _read(content)]
            return _write(records) if records else None, None

        change_document(self.documents, _name(segment), put)

    def count(self, counts: Iterable[AuditRecord]) -> None:
        """Add counts to the counts of the same topic in the newest segment, or as new records."""
        for added in counts:

            def add(content: bytes, added: AuditRecord = added) -> tuple[bytes | None, bool]:
                records = list(_read(content))
                for i, one in enumerate(records):
                    if one.topic == added.topic:
                        records[i] = replace(one, count=one.count + added.count)
                        return _write(records), True
                return None, False

            if not change_document(self.documents, _name(self._head().last), add):
                self.append(added)

    def page(self, wanted: AuditFilter) -> AuditPage:
        """The newest records that match. A page may be short, and even empty, before the list ends."""
        head, oldest = self._head(), self.now() - self.limit.keep
        last, below = wanted.before or (head.last, -1)
        found: list[AuditRecord] = []
        for number in range(min(last, head.last), max(head.first, last - MAX_SEGMENTS_READ + 1) - 1, -1):
            kept = self.documents.read_document(_name(number))
            records = list(_read(kept.content)) if kept else []
            places = range(len(records) if number != last or below < 0 else min(below, len(records)))
            for place in reversed(places):
                record = records[place]
                if record.at >= oldest and wanted.matches(record):
                    found.append(record)
                    if len(found) == wanted.limit:
                        return AuditPage(tuple(found), (number, place))
        end = last - MAX_SEGMENTS_READ
        return AuditPage(tuple(found), (end, -1) if end >= head.first else None)

    def tidy(self) -> None:
        """Delete the segments whose records are all too old."""
        head = self._head()
        for number in range(head.first, head.last):
            kept = self.documents.read_document(_name(number))
            newest = max((record.at for record in _read(kept.content)), default=None) if kept else None
            if newest is not None and newest >= self.now() - self.limit.keep:
                return
            self._drop(number)

    def _head(self) -> _Segments:
        kept = self.documents.read_document(HEAD)
        return _Segments(**json.loads(kept.content)) if kept else _Segments()

    def _begin_segment(self, number: int) -> None:
        """Begin a segment, unless another process has, and drop those for which there is no more room."""

        def begin(content: bytes) -> tuple[bytes | None, _Segments]:
            head = _Segments(**json.loads(content)) if content else _Segments()
            if head.last >= number:
                return None, head
            after = replace(head, last=number)
            return json.dumps(asdict(after)).encode(), after

        head = change_document(self.documents, HEAD, begin)
        most = max(2, self.limit.max_bytes // SEGMENT_BYTES)
        for old in range(head.first, head.last - most + 1):
            self._drop(old)

    def _drop(self, number: int) -> None:
        def advance(content: bytes) -> tuple[bytes | None, None]:
            head = _Segments(**json.loads(content)) if content else _Segments()
            return (
                (json.dumps(asdict(replace(head, first=number + 1))).encode(), None)
                if head.first <= number
                else (
                    None,
                    None,
                )
            )

        change_document(self.documents, HEAD, advance)
        change_document(self.documents, _name(number), lambda content: (b"" if content else None, None))


class AuditCounts:
    """Counts that wait to be written, by topic."""

    def __init__(self) -> None:
        self._records: dict[tuple[object, ...], AuditRecord] = {}

    def add(self, *records: AuditRecord) -> None:
        """Add records. If there are too many topics, further ones are added up without user and address."""
        for record in records:
            if record.topic not in self._records and len(self._records) >= MAX_TOPICS:
                record = replace(record, user="", subject="", way="", address="", mesh="")
            known = self._records.get(record.topic)
            self._records[record.topic] = replace(known, count=known.count + record.count) if known else record

    def take(self) -> tuple[AuditRecord, ...]:
        """Take all records out."""
        records, self._records = tuple(self._records.values()), {}
        return records

    def __len__(self) -> int:
        return len(self._records)


def short(text: str) -> str:
    """A name as it goes into a record."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _name(segment: int) -> str:
    return f"audit/{segment:09}"


def _read(content: bytes) -> Iterator[AuditRecord]:
    names = {one.name for one in fields(AuditRecord)}
    for line in content.splitlines():
        document = {name: value for name, value in json.loads(line).items() if name in names}  # of a later version, too
        document |= {"at": datetime.fromisoformat(document["at"]), "names": tuple(document["names"])}
        yield AuditRecord(**document)


def _write(records: Iterable[AuditRecord]) -> bytes:
    return b"".join(record.line().encode() + b"\n" for record in records)
