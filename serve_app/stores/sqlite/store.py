"""A store's rows in a directory, for several processes of one node.

It does not work on a network file system: SQLite's write-ahead log needs shared memory. ``file.py`` handles the file:
durability, damage, a full disk, files that disappear.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from serve_app.settings import StoreSettings
from serve_app.stores.plugin import StorePlugin
from serve_app.stores.row_store import HEAD, Change, NoRoom, Range, Row
from serve_app.stores.sqlite.file import SqliteFile

_FEW_RANGES = 16  # read while other calls wait


class SqliteRows:
    """A :class:`~serve_app.stores.row_store.RowStore` in ``directory``, which is created if it does not exist.

    Args:
        directory: on a disk of this node.
        run: name of the service's run, the same in all its processes. If one of them had the store's files open and
            they are missing, no empty store is created in their place. None: one is created.
        busy_timeout_seconds: how long a call waits for another process's write before it raises ``Overloaded``.

    Raises:
        CorruptState: the file cannot be read or created because of its permissions or the disk.
        StoreFull: no space on the disk.
        StoreGone: this run had a store here, and its files are gone.
    """

    def __init__(self, directory: Path, *, run: str | None = None, busy_timeout_seconds: float = 2.0) -> None:
        self.file = SqliteFile(directory, run=run, busy_timeout_seconds=busy_timeout_seconds)
        self.name = str(self.file.path)

    def close(self) -> None:
        self.file.close()

    def read(self, space: str, *ranges: Range) -> list[list[Row]]:
        reading = self.file.read() if len(ranges) <= _FEW_RANGES else self.file.read_at_leisure()
        with reading as db:
            if len(ranges) == 1:
                return [list(_select(db, space, ranges[0]))]
            db.execute("BEGIN")
            with db:
                return [list(_select(db, space, item)) for item in ranges]

    def scan(self, space: str, *ranges: Range) -> Iterator[Row]:
        with self.file.read_at_leisure() as db:
            db.execute("BEGIN")
            for item in ranges:
                yield from _select(db, space, item)

    def survey(self, wanted: Range | None = None) -> list[tuple[str, bytes, list[Row]]]:
        with self.file.read() as db:
            db.execute("BEGIN")
            with db:
                heads = db.execute(f"SELECT space, value FROM rows WHERE key = '{HEAD}' ORDER BY space").fetchall()
                return [
                    (space, _bytes(head), [] if wanted is None else list(_select(db, space, wanted)))
                    for space, head in heads
                ]

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        def apply(db: sqlite3.Connection) -> bool:
            return _apply(db, space, change, max_meshes)

        return self.file.write(apply, frees_space=change.ends)

    def tidy(self) -> None:
        self.file.tidy()


def _select(db: sqlite3.Connection, space: str, selection: Range) -> Iterator[Row]:
    result = db.execute(
        "SELECT key, value FROM rows WHERE space = ? AND key >= ? AND key < ? "
        f"ORDER BY key{' DESC' if selection.is_reverse else ''} LIMIT ?",
        (space, selection.begin, selection.end, selection.limit),
    )
    return ((key, _bytes(value)) for key, value in result)


def _bytes(value: object) -> bytes:
    """Return a value, or nothing if damage has changed its type."""
    return value if isinstance(value, bytes) else b""


def _apply(db: sqlite3.Connection, space: str, change: Change, max_meshes: int | None) -> bool:
    """Apply a change within a transaction. Returns False and changes nothing if a row is not as expected."""
    for key, begin in change.expects.items():
        row = db.execute("SELECT value FROM rows WHERE space = ? AND key = ?", (space, key)).fetchone()
        if (row is None) is not (begin is None) or (row and not _bytes(row[0]).startswith(begin or b"")):
            return False
    if change.begins and max_meshes is not None:
        (meshes,) = db.execute(f"SELECT count(*) FROM rows WHERE key = '{HEAD}'").fetchone()
        if meshes >= max_meshes:
            raise NoRoom
    for key in change.drops:
        if not key:
            db.execute("DELETE FROM rows WHERE space = ?", (space,))
        elif key.endswith("/"):
            db.execute("DELETE FROM rows WHERE space = ? AND key >= ? AND key < ?", (space, key, key[:-1] + "0"))
        else:
            db.execute("DELETE FROM rows WHERE space = ? AND key = ?", (space, key))
    db.executemany(
        "INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT (space, key) DO UPDATE SET value = excluded.value",
        [(space, key, value) for key, value in change.puts],
    )
    for prefix, keep in change.trims:
        bounds = space, prefix, prefix[:-1] + "0"
        db.execute(
            "DELETE FROM rows WHERE space = ? AND key >= ? AND key < ? AND key <= (SELECT key FROM rows "
            "WHERE space = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT 1 OFFSET ?)",
            (*bounds, *bounds, keep),
        )
    return True


def _open(settings: StoreSettings, run: str | None) -> SqliteRows:
    return SqliteRows(settings.path, run=run)


LOCAL = StorePlugin(options=StoreSettings, open=_open)
