"""Reserved disk space, so that a mesh can be deleted when the disk is full.

SQLite writes a change to its write-ahead log first, so even a deletion needs space. The reserve is a file of zeros
next to the database. A deletion that finds no space removes the file, and creates it again when there is space.
"""

import logging
import os
import time
from pathlib import Path

FILE_NAME = "reserve"
# The log of a deletion holds the pages that change, not those that become free: 0.4 MiB for a mesh of 120 snapshots,
# 0.6 MiB for one of 10,000. Shrinking the file afterwards needs the same space, in steps of 1 MiB.
RESERVE_BYTES = 4 * 2**20
_STEP_BYTES = 2**18
_RETRY_SECONDS = 10.0
log = logging.getLogger(__name__)


class Reserve:
    """The reserve of one store directory. Several processes may share it.

    Args:
        directory: of the store.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._next_try = 0.0  # time.monotonic()
        self._warned = False

    def size_bytes(self) -> int:
        """Size of the file; 0 if there is none."""
        try:
            return self._path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def release(self) -> None:
        """Delete the file to free its space."""
        self._path.unlink(missing_ok=True)

    def restore(self) -> bool:
        """Allocate the file, as large as the disk allows. Returns False if it is smaller than it should be.

        It has priority over snapshots: without it, deleting a mesh could not free a full disk.
        """
        size = self.size_bytes()
        if size >= RESERVE_BYTES:
            return True
        try:
            disk = os.statvfs(self._path.parent)
            possible = min(RESERVE_BYTES, (size + disk.f_bavail * disk.f_frsize) // _STEP_BYTES * _STEP_BYTES)
            if possible > size:
                _allocate(self._path, possible)
        except OSError as error:  # a quota, a limit of the process, or a missing directory
            self._warn(str(error))
            return False
        if possible < RESERVE_BYTES:
            self._warn(f"expected space for {RESERVE_BYTES >> 20} MiB, got {possible / 2**20:.1f} MiB")
            return False
        self._warned = False
        return True

    def restore_if_due(self) -> None:
        """Call :meth:`restore`, but at most every ten seconds. Meant to be called after each write."""
        now = time.monotonic()
        if now >= self._next_try:
            self._next_try = now + _RETRY_SECONDS
            self.restore()

    def _warn(self, why: str) -> None:
        if self._warned:
            return
        self._warned = True
        log.warning(
            "state store %s: could not reserve enough disk space (%s); deleting a mesh may fail when the disk is full",
            self._path.parent,
            why,
        )


def _allocate(path: Path, size_bytes: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:  # macOS
            os.write(descriptor, bytes(size_bytes))
    finally:
        os.close(descriptor)
