"""The store ``files``: one file for each mesh, in a folder of one node.

A write reads the file of its mesh, changes its rows in memory, and replaces the whole file. A crash therefore leaves
the old content or the new one, and compare-and-set needs only a lock. In return, each snapshot writes everything that
is stored of its mesh: some MB for a mesh of 100 services, and its history. The built-in local store writes only new
data.
"""

import errno
import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pydantic import Field

from serve_app.errors import CorruptState, StoreFull, StoreGone
from serve_app.settings.base import Location, SettingsGroup
from serve_app.stores.plugin import StorePlugin
from serve_app.stores.row_store import HEAD, Change, NoRoom, Range, Row

SUFFIX, LOCK = ".mesh", "lock"
FULL = (errno.ENOSPC, errno.EDQUOT)
CHECKSUM = 4  # bytes
Rows = dict[str, bytes]


class FilesOptions(SettingsGroup):
    """The table ``store.options``."""

    folder: Location = Field(description="folder of the files; created if it does not exist")


class FilesStore:
    """A :class:`~serve_app.stores.row_store.RowStore` in a folder.

    Args:
        options: from the settings.
        run: name of the run of the service; not needed here.
    """

    def __init__(self, options: FilesOptions, run: str | None = None) -> None:
        self._folder = options.folder
        self.name = str(self._folder)
        with self._naming_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._inode = self._folder.stat().st_ino

    def read(self, space: str, *ranges: Range) -> list[list[Row]]:
        rows = self._load(space)
        return [select(rows, one) for one in ranges]

    def scan(self, space: str, *ranges: Range) -> Iterator[Row]:
        for found in self.read(space, *ranges):
            yield from found

    def survey(self, wanted: Range | None = None) -> list[tuple[str, bytes, list[Row]]]:
        loaded = ((name, self._load(name)) for name in self._names())
        return [
            (name, rows[HEAD], [] if wanted is None else select(rows, wanted)) for name, rows in loaded if HEAD in rows
        ]

    def write(self, space: str, change: Change, *, max_meshes: int | None = None) -> bool:
        with self._locked():
            rows = self._load(space)
            for key, begin in change.expects.items():
                value = rows.get(key)
                if (value is None) is not (begin is None) or (value and not value.startswith(begin or b"")):
                    return False
            if change.begins and max_meshes is not None and len(self.survey()) >= max_meshes:
                raise NoRoom
            self._store(space, apply(rows, change))
            return True

    def tidy(self) -> None:
        """Nothing: a write leaves no work for later."""

    def close(self) -> None:
        """Nothing stays open between two calls."""

    def _names(self) -> list[str]:
        with self._naming_errors():
            return sorted(path.name.removesuffix(SUFFIX) for path in self._folder.iterdir() if path.suffix == SUFFIX)

    def _load(self, space: str) -> Rows:
        path = self._folder / f"{space}{SUFFIX}"
        with self._naming_errors():
            self._require_folder()
            content = path.read_bytes() if path.exists() else b""
        if not content:
            return {}
        try:
            return msgspec.msgpack.decode(unseal(content), type=Rows)
        except ValueError as error:  # msgspec's errors are
            path.replace(path.with_suffix(".damaged"))
            raise CorruptState(
                f"{path}: expected the rows of a mesh, got {error}; it was renamed, and the mesh starts learning again "
                "with its next snapshot",
                mesh=space,
            ) from error

    def _store(self, space: str, rows: Rows) -> None:
        path = self._folder / f"{space}{SUFFIX}"
        if not rows:
            path.unlink(missing_ok=True)
            return
        new = path.with_suffix(".new")
        new.write_bytes(seal(msgspec.msgpack.encode(rows)))
        new.replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, of all threads and processes. A writer that is killed leaves no lock."""
        with self._naming_errors():
            self._require_folder()
            with (self._folder / LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield

    def _require_folder(self) -> None:
        """Raise an error if another folder has taken the place of the one that was opened."""
        if self._folder.stat().st_ino != self._inode:
            raise FileNotFoundError(errno.ENOENT, "the folder was replaced", str(self._folder))

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in FULL:
                raise StoreFull(f"{self._folder}: expected space on the disk, got none; free some") from error
            raise StoreGone(
                f"{self._folder}: expected a folder to read and write, got {error}; correct store.options.folder, or "
                "restart the service"
            ) from error


def select(rows: Rows, wanted: Range) -> list[Row]:
    """Return the rows of a range in order."""
    found = sorted((item for item in rows.items() if wanted.begin <= item[0] < wanted.end), reverse=wanted.is_reverse)
    return found if wanted.limit < 0 else found[: wanted.limit]


def apply(rows: Rows, change: Change) -> Rows:
    """Return the rows after a change."""

    def is_dropped(key: str) -> bool:
        return any(key.startswith(drop) if drop == "" or drop[-1] == "/" else key == drop for drop in change.drops)

    kept = {key: value for key, value in rows.items() if not is_dropped(key)} | dict(change.puts)
    for prefix, keep in change.trims:
        for key in sorted(key for key in kept if key.startswith(prefix))[:-keep]:
            del kept[key]
    return kept


def seal(content: bytes) -> bytes:
    """Return the content of a file with its checksum."""
    return zlib.crc32(content).to_bytes(CHECKSUM, "big") + content


def unseal(sealed: bytes) -> bytes:
    """Return the content of a file; raises ``ValueError`` if it is damaged."""
    content = sealed[CHECKSUM:]
    if seal(content) != sealed:
        raise ValueError("another checksum")
    return content


FILES = StorePlugin(options=FilesOptions, open=FilesStore)
