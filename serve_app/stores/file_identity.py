"""Checks that a store's open files are still at their paths, and remembers the last run that used a directory.

A process can keep writing to a deleted file; the data is lost when the process ends. Without this check, a store whose
files were deleted would acknowledge snapshots that are lost with the next restart. The check compares device and inode
of each path and of the open file. It costs three calls of ``os.stat``, about 4 µs.
"""

import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = ("", "-wal", "-shm")  # database, write-ahead log, and the log's index, which processes share
MARKER_NAME = "last-run"
_MARKER_TEXT = (
    "The last run of TAGAE that had a state store in this directory. If the store's files disappear during a run,\n"
    "this file keeps replicas of the same run from creating an empty store in their place. Restart the service to\n"
    "start with an empty store.\n"
)
FileId = tuple[int, int]  # device, inode


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Identities of a database's files, in the order of ``SUFFIXES``; None for a missing file."""

    ids: tuple[FileId | None, ...]

    @property
    def database(self) -> FileId | None:
        """Identity of the database itself."""
        return self.ids[0]

    def describe_changes(self, now: "StoreFiles", name: str) -> str:
        """Text that lists the missing and the replaced files. ``name`` is the name of the database file."""
        return ", ".join(
            f"{name}{suffix} {'is missing' if found is None else 'is another file'}"
            for suffix, opened, found in zip(SUFFIXES, self.ids, now.ids, strict=True)
            if opened != found
        )


def find_files(path: str) -> StoreFiles:
    """The files that are at the paths of a database now."""
    return StoreFiles(tuple(_file_id(path + suffix) for suffix in SUFFIXES))


def _file_id(path: str) -> FileId | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def read_last_run(directory: Path) -> str | None:
    """Name of the last run that had a store in ``directory``; None if unknown."""
    try:
        return (directory / MARKER_NAME).read_text(encoding="utf-8").partition("\n")[0]
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_last_run(directory: Path, run: str) -> None:
    """Write the name of a run to ``directory``.

    Raises:
        OSError: the directory is missing or the disk is full.
    """
    (directory / MARKER_NAME).write_text(f"{run}\n\n{_MARKER_TEXT}", encoding="utf-8")
