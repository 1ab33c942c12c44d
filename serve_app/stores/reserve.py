"""Reserved disk space, so that a mesh can be deleted when the disk is full.

SQLite writes a change to its write-ahead log first, so even a deletion needs space. The reserve is a file of zeros
next to the database. A deletion that finds no space removes the file, and creates it again when there is space.
"""

import logging
import os
from pathlib import Path

FILE_NAME = "reserve"
# The log of a deletion holds the pages that change, not those that become free: 0.4 MiB for a mesh of 120 snapshots,
# 0.6 MiB for one of 10,000. Shrinking the file afterwards needs the same space, in steps of 1 MiB.
RESERVE_BYTES = 4 * 2**20
log = logging.getLogger(__name__)


class Reserve:
    """The reserve of one store directory. Several processes may share it.

    Args:
        directory: of the store.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._warned = False

    def release(self) -> bool:
        """Delete the file to free its space. Returns whether there was one."""
        try:
            self._path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def restore(self) -> None:
        """Allocate the file if it is not there. Call it after each write: it has priority over snapshots, because
        without it, deleting a mesh could not free a full disk."""
        if self._path.exists():
            return
        unfinished = self._path.with_suffix(".part")
        try:
            _allocate(unfinished)
            unfinished.replace(self._path)
        except OSError as error:  # a full disk, a quota, a limit of the process, or a missing directory
            unfinished.unlink(missing_ok=True)
            if not self._warned:
                log.warning(
                    "state store %s: could not reserve %d MiB on the disk (%s); deleting a mesh may fail when the disk "
                    "is full",
                    self._path.parent,
                    RESERVE_BYTES >> 20,
                    error,
                )
        self._warned = not self._path.exists()


def _allocate(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        else:  # macOS
            os.write(descriptor, bytes(RESERVE_BYTES))
    finally:
        os.close(descriptor)
