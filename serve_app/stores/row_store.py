"""What a database provides to be a store: rows in order of their keys, changed in transactions.

A store has spaces: one for each mesh, named like it, and :data:`SERVICE` for what belongs to the whole service. A space
has rows; a row has a key and a value, both opaque to the database. All else is composed of these primitives once, in
:mod:`serve_app.stores.state_store`, for every database.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SERVICE = "STORE"  # a space that is no mesh: no mesh has capital letters in its name
HEAD = "head"  # the row that makes a space a mesh: one that is listed and counted
Row = tuple[str, bytes]  # key and value


@dataclass(frozen=True, slots=True)
class Range:
    """Rows from the key ``begin`` to before ``end``, in order of the bytes of their keys.

    Attributes:
        begin, end: of the keys.
        limit: maximum number of rows; -1: all.
        is_reverse: the last ones first.
    """

    begin: str
    end: str
    limit: int = -1
    is_reverse: bool = False


def under(prefix: str, *, since: str = "", limit: int = -1, is_reverse: bool = False) -> Range:
    """The rows whose keys begin with a prefix, from ``prefix + since`` on. An empty prefix: all rows."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else chr(0x10FFFF)
    return Range(prefix + since, end, limit, is_reverse)


def only(key: str) -> Range:
    """The row of this key."""
    return Range(key, key + "\x01", 1)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one space. The parts are applied in this order.

    Attributes:
        expects: how the value of each of these rows has to begin; None: there must be no such row. Otherwise nothing is
            changed.
        drops: rows to be deleted: keys, or prefixes, which end with a slash; empty: all rows.
        puts: rows to be written. No two changes may have the same first row: by it a store knows a change whose answer
            was lost, and which is sent again.
        trims: after this, only so many of the last rows with a prefix stay.
    """

    expects: Mapping[str, bytes | None] = field(default_factory=dict)
    drops: Sequence[str] = ()
    puts: Sequence[Row] = ()
    trims: Sequence[tuple[str, int]] = ()

    @property
    def begins(self) -> bool:
        """Whether it makes a mesh of a space that was none."""
        return self._puts_head and self.expects.get(HEAD, b"") is None

    @property
    def ends(self) -> bool:
        """Whether a mesh ends with it, so that it frees space."""
        return not self._puts_head and (HEAD in self.drops or "" in self.drops)

    @property
    def _puts_head(self) -> bool:
        return any(key == HEAD for key, _ in self.puts)


class NoRoom(Exception):
    """The store has as many meshes as it may have."""


class RowStore(Protocol):
    """The primitives of a store. Threads may share an instance, and processes a store.

    A store needs these six methods and nothing else: its package adds it with a
    :class:`~serve_app.stores.plugin.StorePlugin`, and proves it with ``lab.contracts.stores``. Each may block for as
    long as it must, below ``serve.deadline_seconds``.

    A push of a mesh takes one ``write`` and one ``read`` of some bytes, and a mesh that is not in memory one ``read``
    and one ``scan``. A value can have 100 MB.

    Every method raises:
        Overloaded: the store stayed busy.
        CorruptState: something cannot be read.
        StoreGone: the store's files were deleted or replaced, or its server does not answer or has lost its data.
            Acknowledged writes are in those files; no further write is acknowledged. If ``details["stored"]`` is
            ``unknown``, this write may have been stored: repeating it is safe.
        StoreFull: (by ``write``) the disk or the memory is full; nothing changed.
    """

    name: str
    """For messages: its path or URL."""

    def read(self, space: str, *ranges: Range) -> list[list[Row]]:
        """The rows of each range, all of one moment."""

    def scan(self, space: str, *ranges: Range) -> Iterator[Row]:
        """The rows of some ranges, all of the moment of the first ``next``, however long the reader takes."""

    def survey(self, wanted: Range | None = None) -> list[tuple[str, bytes, list[Row]]]:
        """All meshes in order of name: the value of :data:`HEAD`, and the rows of a range (None: no rows). The rows of
        a mesh that is written at this time may be missing.

        If anyone is notified of incidents, it is called every second without a range.
        """

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        """Apply a change in one transaction.

        Args:
            space: that is changed.
            change: to be applied.
            max_meshes: after a change that :attr:`~Change.begins` a mesh, the store must not have more.

        Returns:
            Whether it was applied: False if a row is not as expected.

        Raises:
            NoRoom: there would be more meshes.
        """

    def tidy(self) -> None:
        """Do the work that writes leave for later. The store works without it, in larger steps."""

    def close(self) -> None:
        """Release files and connections; the store cannot be used afterwards."""
