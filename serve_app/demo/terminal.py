"""Keys from a terminal, one at a time, without waiting for a newline."""

import os
import re
import select
import signal
import termios
import tty
from types import FrameType
from typing import NoReturn, Self

# A sequence that an arrow or a function key sends is one key, or its letters would be taken for commands.
_KEY = re.compile(r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
CLOSED = "q"  # who hangs up wants to quit


class Keyboard:
    """A terminal in cbreak mode as a context manager; whatever ends it, it is left as it was.

    Ctrl-C still interrupts. Ctrl-Z does nothing: stopped in this mode, the shell would get a terminal without echo, and
    the processes of Ray would stop with us. SIGTERM leaves by the same way as an exception.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: list[str] = []

    def __enter__(self) -> Self:
        self._mode = termios.tcgetattr(self._descriptor)
        self._terminate = signal.signal(signal.SIGTERM, _leave)
        tty.setcbreak(self._descriptor, termios.TCSADRAIN)
        mode = termios.tcgetattr(self._descriptor)
        mode[6][termios.VSUSP] = os.fpathconf(self._descriptor, "PC_VDISABLE")
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, mode)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, self._mode)
        signal.signal(signal.SIGTERM, self._terminate)

    def read(self, seconds: float) -> str:
        """The next key, or nothing if none comes within that time."""
        if not self._waiting and select.select([self._descriptor], [], [], seconds)[0]:
            came = os.read(self._descriptor, 1024)
            self._waiting = _KEY.findall(came.decode(errors="ignore")) if came else [CLOSED]
        return self._waiting.pop(0) if self._waiting else ""


def _leave(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
