"""The primitives of a database for a store: rows in order of their keys, changed in transactions.

A store has spaces: one for each mesh, named like it, and :data:`SERVICE` for the service as a whole. A space has rows;
a row has a key and a value, both opaque to the database. :mod:`serve_app.stores.state_store` composes everything else
of these primitives, once for every database.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

SERVICE = "STORE"  # a space that is not a mesh: names of meshes have no capital letters
HEAD = "head"  # the row that makes a space a mesh, which is listed and counted
Row = tuple[str, bytes]  # key and value


@dataclass(frozen=True, slots=True)
class Range:
    """Rows from the key ``begin`` to before ``end``, in byte order of their keys.

    Attributes:
        limit: maximum number of rows; -1: all.
        is_reverse: the last ones first.
    """

    begin: str
    end: str
    limit: int = -1
    is_reverse: bool = False


def under(prefix: str, *, since: str = "", limit: int = -1, is_reverse: bool = False) -> Range:
    """Return the range of keys with a prefix, from ``prefix + since`` on. An empty prefix: all rows."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else chr(0x10FFFF)
    return Range(prefix + since, end, limit, is_reverse)


def only(key: str) -> Range:
    """Return the range of a single key."""
    return Range(key, key + "\x01", 1)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one space. The parts are applied in this order.

    Attributes:
        expects: the beginning of each of these rows' values; None: the row must not exist. If a row differs, nothing is
            changed.
        drops: rows to delete: keys, or prefixes, which end with a slash; an empty string: all rows.
        puts: rows to write. No two changes may have the same first row: by it, a store recognises a change that is sent
            again because its answer was lost.
        trims: prefixes with the number of their last rows that stay.
    """

    expects: Mapping[str, bytes | None] = field(default_factory=dict)
    drops: Sequence[str] = ()
    puts: Sequence[Row] = ()
    trims: Sequence[tuple[str, int]] = ()

    @property
    def begins(self) -> bool:
        """Whether it creates a mesh."""
        return self._puts_head and self.expects.get(HEAD, b"") is None

    @property
    def ends(self) -> bool:
        """Whether it deletes a mesh, so that it frees space."""
        return not self._puts_head and (HEAD in self.drops or "" in self.drops)

    @property
    def _puts_head(self) -> bool:
        return any(key == HEAD for key, _ in self.puts)


class NoRoom(Exception):
    """The store has as many meshes as it may have."""


class RowStore(Protocol):
    """The primitives of a store. Threads may share an instance, and processes a store.

    A store needs only these six methods: its package adds it with a :class:`~serve_app.stores.plugin.StorePlugin`, and
    tests it with ``lab.contracts.stores``. A method may block, for less than ``serve.deadline_seconds``.

    A push takes one ``write`` and one ``read`` of some bytes; if its mesh is not in memory, also one ``read`` and one
    ``scan``. A value can have 100 MB.

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
        """Return the rows of each range, all as of one moment."""

    def scan(self, space: str, *ranges: Range) -> Iterator[Row]:
        """Yield the rows of some ranges, all as of the first ``next``, however long the reader takes."""

    def survey(self, wanted: Range | None = None) -> list[tuple[str, bytes, list[Row]]]:
        """Return all meshes in order of name, with the value of :data:`HEAD` and the rows of a range (None: no rows).
        Rows of a mesh that is written meanwhile may be missing.

        With receivers of notifications, it is called every second without a range.
        """

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        """Apply a change in one transaction.

        Args:
            max_meshes: limit for a change that :attr:`~Change.begins` a mesh.

        Returns:
            Whether it was applied: False if a row is not as expected.

        Raises:
            NoRoom: there would be more meshes.
        """

    def tidy(self) -> None:
        """Do work that writes have deferred. The store works without it, in larger steps."""

    def close(self) -> None:
        """Release files and connections; the store cannot be used afterwards."""
