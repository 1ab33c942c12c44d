"""The demo in a real terminal: keys arrive, the screen follows its size, and the terminal is left as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from serve_app.demo.show import WARM_UP
from serve_app.demo.terminal import Keyboard


def test_keys_come_one_by_one_and_sequences_as_one() -> None:
    master, slave = pty.openpty()
    with Keyboard(slave) as keyboard:
        assert keyboard.read(0.0) == ""
        os.write(master, b"l\x1b[AD\x1bOP\x1b[1;5C\t")
        keys = [keyboard.read(5.0) for _ in range(6)]
    assert keys == ["l", "\x1b[A", "D", "\x1bOP", "\x1b[1;5C", "\t"]
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize("ends", [None, RuntimeError, KeyboardInterrupt])
def test_the_terminal_is_left_as_it_was(ends: type[BaseException] | None) -> None:
    master, slave = pty.openpty()
    mode, terminate = termios.tcgetattr(slave), signal.getsignal(signal.SIGTERM)
    with pytest.raises(ends) if ends else nullcontext(), Keyboard(slave):
        assert not termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO)
        assert termios.tcgetattr(slave)[3] & termios.ISIG
        if ends:
            raise ends
    assert termios.tcgetattr(slave) == mode
    assert signal.getsignal(signal.SIGTERM) == terminate
    os.close(master)
    os.close(slave)


# all of it

IN_ITS_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass
class Window:
    """A terminal with a program in it, as a person sees it: the newest whole screen, as text."""

    master: int
    seconds: float
    output: bytes = b""
    began: float = field(default_factory=time.monotonic)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def screens(self) -> Iterator[list[str]]:
        """Every screen from now on, until the time is up."""
        while time.monotonic() < self.began + self.seconds:
            if not select.select([self.master], [], [], 1.0)[0]:
                continue
            try:
                self.output += os.read(self.master, 1 << 16)
            except OSError:  # the other side is closed
                return
            *_, drawn, _ = [b"", *self.output.split(b"\x1b[H")]
            yield re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode(errors="replace")).splitlines()

    def drain(self) -> None:
        """Read what the program wrote last."""
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 1 << 16)

    def wait(self, what: Callable[[list[str]], bool]) -> list[str]:
        """The first screen of which that is true."""
        for screen in self.screens():
            if what(screen):
                return screen
        raise AssertionError(self.output[-4000:].decode(errors="replace"))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_demo_in_a_terminal(tmp_path: Path) -> None:
    """A fault by key, its culprit on the screen, a resize in between, and out by q."""
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    window = Window(master, 200.0)
    window.resize(100, 30)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = [str(Path(sys.executable).with_name("tagae")), "demo", "--no-browser", "--speed", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_ITS_TERMINAL, *command],
        cwd=tmp_path,
        env={**environment, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        window.wait(lambda screen: any("the story tells itself" in line for line in screen))
        window.press("a")
        window.wait(lambda screen: f"snapshot {WARM_UP + 5}" in "".join(screen[:1]))
        window.press("e")
        chosen = window.wait(lambda screen: any("e error burst at" in line and "of 20" in line for line in screen))
        culprit = re.search(r"e error burst at (\S+),", "\n".join(chosen))
        assert culprit is not None
        window.resize(60, 18)
        small = window.wait(lambda screen: len(screen) == 18)
        assert max(map(len, small)) <= 60
        named = window.wait(lambda screen: screen[1].startswith(f" ANOMALOUS  {culprit[1]}: "))
        assert len(named) == 18
        window.press("q")
        for _ in window.screens():
            if process.poll() is not None or b"MetaModel" in window.output:
                break
        assert process.wait(timeout=60) == 0
        window.drain()
        assert termios.tcgetattr(slave) == before
        assert window.output.count(b"\x1b[?1049h") == window.output.count(b"\x1b[?1049l") == 1
        assert window.output.rfind(b"\x1b[?25h") > window.output.rfind(b"\x1b[?25l")
        assert not list(tmp_path.iterdir())
    finally:
        process.kill()
        process.wait(timeout=30)
        os.close(master)
        os.close(slave)
