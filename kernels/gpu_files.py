"""The files of a GPU's driver, which can be looked for without torch."""

from pathlib import Path


def is_here() -> bool:
    """Return whether a GPU's driver has made its files on this machine, even if torch cannot use it."""
    return any(Path("/dev").glob("nvidia[0-9]*"))
