"""A small file system, which a test can fill."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a small file system on a new folder; skips the test where that is not possible."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder.mkdir()
    made = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder], capture_output=True)
    if made.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # processes that were killed may still be ending
