"""Keeps ``tagae serve`` running: starts the service again on the same port when its process ends by itself.

Ray's library ends a process whose Ray is lost, and such a process cannot start another Ray. So the service runs in a
child of this program. The command forks that child, and replaces itself with this program
(:mod:`serve_app.runtime.service_start`). It keeps its process id, so a process manager need not act. All acknowledged
data is in the store.

This program imports only the standard library, since it stays in memory. Its arguments are the child's process id, a
descriptor to read, a descriptor for the child to write, and the child's command. The child writes its port when it is
ready. If the first child ends before it was ready, this program ends with its exit code: the service cannot start.
"""

import os
import signal
import sys
import time
from types import FrameType

VARIABLE = "TAGAE_KEPT"  # in a child's environment: descriptor to write to, port, number of the start
FIRST_PAUSE, MAX_PAUSE = 1.0, 60.0  # s; doubled after each start that does not last
STEADY_SECONDS = 600.0  # after this time, a failure counts as the first again


class Keeper:
    """Waits for the child, and starts it again."""

    def __init__(self, child: int, reading: int, writing: int, command: list[str]) -> None:
        self._child = child  # 0: it has ended
        self._reading, self._writing, self._command = reading, writing, command
        self._port = b""  # the last ready child's
        self._is_stopping = False
        os.set_blocking(reading, False)
        os.set_inheritable(reading, False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)

    def run(self) -> int:
        """Keep the service running until it is stopped. Returns the exit code."""
        number = 0
        while True:
            start = time.monotonic()
            code = self._wait()
            self._port = self._read_port() or self._port
            if code == 0 or self._is_stopping or not self._port:
                return code
            number = 1 if time.monotonic() - start >= STEADY_SECONDS else number + 1
            time.sleep(min(FIRST_PAUSE * 2 ** min(number - 1, 10), MAX_PAUSE))
            variables = {**os.environ, VARIABLE: f"{self._writing} {int(self._port)} {number}"}
            self._child = os.posix_spawn(self._command[0], self._command, variables)

    def _wait(self) -> int:
        """Wait for the child, and return its exit code. The service's orphans are reaped, too: this process may be a
        container's first."""
        while True:
            pid, status = os.wait()
            if pid == self._child:
                self._child = 0
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code  # as in a shell after a signal

    def _read_port(self) -> bytes:
        try:
            return os.read(self._reading, 100).strip().rpartition(b"\n")[2]
        except BlockingIOError:
            return b""

    def _stop(self, number: int, _: FrameType | None) -> None:
        if not self._child:  # during a pause
            sys.exit(0)
        self._is_stopping = True
        try:
            os.kill(self._child, number)
        except ProcessLookupError:  # it has just ended
            sys.exit(0)


if __name__ == "__main__":
    pid, reads, writes, *command = sys.argv[1:]
    sys.exit(Keeper(int(pid), int(reads), int(writes), command).run())
