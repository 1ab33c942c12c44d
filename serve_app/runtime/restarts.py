"""Starts ``tagae serve`` again by itself, on the same port, when the service cannot go on.

A process that has lost Ray cannot start another one: Ray's library keeps the connection to the lost one, and ends the
process in its next call. So the process replaces its program by the same command (execve(2)). It keeps its id and its
terminal, so nothing that watches it has to act. All acknowledged data is in the store.

This module does not import Ray, because the command reads it first.
"""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Self

VARIABLE = "TAGAE_RESTART"  # of the environment: port and number
MAX_PAUSE_SECONDS = 60.0  # before a start: what prevents it, such as other work on this machine, may pass
STEADY_SECONDS = 600.0  # a service that ran for so long did not fail again


@dataclass(frozen=True, slots=True)
class Restart:
    """A start of the service by itself.

    Attributes:
        port: that it listened on before.
        number: of starts since the service last ran for :data:`STEADY_SECONDS`; from 1.
    """

    port: int
    number: int

    @classmethod
    def read(cls) -> Self | None:
        """The start that this process makes; None: a person or another program made it. Takes it out of the
        environment, which the processes of the service inherit."""
        port, _, number = os.environ.pop(VARIABLE, "").partition(" ")
        return cls(int(port), int(number)) if number else None

    @property
    def pause_seconds(self) -> float:
        """How long to wait before it: 1 s, then twice as long each time. There is no last one, because a monitor must
        not leave when there is trouble."""
        return float(min(2 ** min(self.number - 1, 10), MAX_PAUSE_SECONDS))

    def wait(self) -> None:
        """Wait before it. The processes of the former program end meanwhile, and leave their exit codes."""
        time.sleep(self.pause_seconds)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def replace_program(self, environment: Mapping[str, str]) -> NoReturn:
        """Run the command of this process again, which waits first. No process may be left below this one."""
        for descriptor in map(int, os.listdir("/dev/fd")):
            if descriptor > 2 and os.path.exists(f"/dev/fd/{descriptor}"):  # one was of the listing itself
                os.set_inheritable(descriptor, False)  # not all sockets of Ray's library close themselves
        sys.stdout.flush()
        sys.stderr.flush()
        variables = {**environment, VARIABLE: f"{self.port} {self.number}"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], variables)
