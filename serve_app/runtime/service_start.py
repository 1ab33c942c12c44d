"""The part of ``tagae serve`` that runs the service: a child of :mod:`serve_app.runtime.keeper`."""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Self

from serve_app.runtime import keeper

PR_SET_PDEATHSIG = 1  # prctl(2)


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """This start of the service; by default the first, without a keeper.

    Attributes:
        descriptor: written once the service is ready; -1: nothing starts the service again.
        port: port that the service listened on before; 0: this is the first start.
        number: number of starts since the service last ran for a while.
    """

    descriptor: int = -1
    port: int = 0
    number: int = 0

    @classmethod
    def begin(cls) -> Self:
        """Continue in a child of the keeper. Call it before anything starts a thread."""
        if value := os.environ.pop(keeper.VARIABLE, ""):
            start = cls(*map(int, value.split()))
            os.set_inheritable(start.descriptor, False)
            _end_with_parent()
            return start
        reading, writing = os.pipe()
        parent = os.getpid()
        if child := os.fork():
            _become_keeper(child, reading, writing)
        os.close(reading)
        _end_with_parent()
        if os.getppid() != parent:  # the parent has just ended
            sys.exit(0)
        return cls(writing)

    def report(self, port: int) -> None:
        if self.descriptor >= 0:
            os.write(self.descriptor, f"{port}\n".encode())


def _become_keeper(child: int, reading: int, writing: int) -> NoReturn:
    for descriptor in (reading, writing):
        os.set_inheritable(descriptor, True)
    program = [sys.executable, "-I", "-S", keeper.__file__, str(child), str(reading), str(writing)]
    os.execv(sys.executable, [*program, sys.executable, *sys.orig_argv[1:]])


def _end_with_parent() -> None:
    """Make the system end this process in order when the keeper ends. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
