"""Opens the page in a graphical browser, if there is one."""

import os
import shutil
import subprocess
import sys


def open_page(url: str) -> bool:
    """Open a page in the user's browser without waiting for it.

    The browser gets no terminal, so that a text browser cannot take over ours.

    Returns:
        Whether there is a desktop with a browser.
    """
    opener = shutil.which("open" if sys.platform == "darwin" else "xdg-open")
    if opener is None or not _has_desktop():
        return False
    nowhere = subprocess.DEVNULL
    subprocess.Popen([opener, url], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    return True


def _has_desktop() -> bool:
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
