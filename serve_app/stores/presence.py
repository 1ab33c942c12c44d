"""Whether the files that a store has open are still at their paths, and which run had a store in a directory last.

A process keeps a deleted file open, and writes to it succeed: they are lost when the process ends. Without this check a
store whose files were deleted would acknowledge snapshots that are lost with the next restart. The check compares
device and inode of each path with those that were opened. It costs three ``os.stat``, about 4 µs.
"""

import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = ("", "-wal", "-shm")  # the database, its write-ahead log, and the index of the log that processes share
MARKER_NAME = "last-run"
_MARKER_TEXT = (
    "The last run of TAGAE that had a state store in this directory. If the store's files disappear during a run,\n"
    "this file keeps replicas of the same run from making an empty store in their place. Restart the service to start\n"
    "anew.\n"
)
FileId = tuple[int, int]  # device, inode


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Identities of a database's files, in the order of ``SUFFIXES``; None for a file that is not there."""

    ids: tuple[FileId | None, ...]

    @property
    def database(self) -> FileId | None:
        """Identity of the database itself."""
        return self.ids[0]

    def describe_changes(self, now: "StoreFiles", name: str) -> str:
        """Which files are missing now, and which were replaced; in words. ``name`` is that of the database file."""
        return ", ".join(
            f"{name}{suffix} {'is missing' if found is None else 'is another file'}"
            for suffix, opened, found in zip(SUFFIXES, self.ids, now.ids, strict=True)
            if opened != found
        )


def find_files(path: str) -> StoreFiles:
    """What is at the paths of the database ``path`` now."""
    return StoreFiles(tuple(_file_id(path + suffix) for suffix in SUFFIXES))


def _file_id(path: str) -> FileId | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def read_last_run(directory: Path) -> str | None:
    """Name of the last run that had a store in ``directory``; None if it is not known."""
    try:
        return (directory / MARKER_NAME).read_text(encoding="utf-8").partition("\n")[0]
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_last_run(directory: Path, run: str) -> None:
    """Keep the name of a run in ``directory``.

    Raises:
        OSError: it cannot be written, since the directory is gone or the disk is full.
    """
    (directory / MARKER_NAME).write_text(f"{run}\n\n{_MARKER_TEXT}", encoding="utf-8")
