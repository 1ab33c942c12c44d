"""The page in a browser with windows, where there is one."""

import os
import shutil
import subprocess
import sys


def opened(url: str) -> bool:
    """Open a page in the browser of whoever sits here, without waiting; whether there is one.

    It gets no terminal: a text browser that takes the place of one with windows would fight with us for ours.
    """
    opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if opener is None or not _has_windows():
        return False
    nowhere = subprocess.DEVNULL
    subprocess.Popen([opener, url], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    return True


def _has_windows() -> bool:
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
