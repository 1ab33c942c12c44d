"""Disk space that is kept back, so that a mesh can be deleted when the disk is full.

SQLite writes a change to its write-ahead log first, so that even a deletion needs room. The reserve is a file of zeros
beside the database. A deletion that finds no room removes the file, and puts it back when there is room again.
"""

import logging
import os
import time
from pathlib import Path

FILE_NAME = "reserve"
# The log of a deletion holds the pages that change, not those that become free: 0.4 MiB for a mesh of 120 snapshots,
# 0.6 MiB for one of 10,000. The same room carries the moves that shrink the file afterwards, in steps of 1 MiB.
RESERVE_BYTES = 4 * 2**20
_STEP_BYTES = 2**18
_RETRY_SECONDS = 10.0
log = logging.getLogger("ray.serve")


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
        """What is kept back now; 0 if there is no file."""
        try:
            return self._path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def release(self) -> None:
        """Give the space back to the disk."""
        self._path.unlink(missing_ok=True)

    def restore(self) -> bool:
        """Allocate the file, or as much of it as the disk has room for; False if that is not all of it.

        It goes before snapshots: without it, a full disk could not be freed by deleting a mesh.
        """
        size = self.size_bytes()
        if size >= RESERVE_BYTES:
            return True
        try:
            disk = os.statvfs(self._path.parent)
            possible = min(RESERVE_BYTES, (size + disk.f_bavail * disk.f_frsize) // _STEP_BYTES * _STEP_BYTES)
            if possible > size:
                _allocate(self._path, possible)
        except OSError as error:  # a quota, a limit of the process, or the directory is gone
            self._warn(str(error))
            return False
        if possible < RESERVE_BYTES:
            self._warn(f"expected room for {RESERVE_BYTES >> 20} MiB, came {possible / 2**20:.1f}")
            return False
        self._warned = False
        return True

    def restore_if_due(self) -> None:
        """As :meth:`restore`, but look at the disk every ten seconds at most: this is called after each write."""
        now = time.monotonic()
        if now >= self._next_try:
            self._next_try = now + _RETRY_SECONDS
            self.restore()

    def _warn(self, why: str) -> None:
        if self._warned:
            return
        self._warned = True
        log.warning(
            "state store %s: too little space could be set aside (%s); deleting a mesh may fail when the disk is full",
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
