"""Starts and stops the service for a command. SIGINT and SIGTERM end its process within seconds."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NoReturn

from serve_app.runtime.environment import remove_token
from serve_app.runtime.supervisor import adopt_orphans, kill_all_below

END_SECONDS = 8.0  # time from a signal to a forced end


class Lifetime:
    """The time from the start of the service to the end of the process. A signal sets ``ended``.

    In a process with Ray, ``KeyboardInterrupt`` is not enough. Ray calls may hang or turn the interrupt into another
    error. Once the raylet is gone, Ray's library ends this process in its next call, with the exit code 1.

    Args:
        stop: stops it; False if it had to be killed.
        folders: removed after a forced end, when the caller's cleanup does not run.
        exit_status: exit code for a forced end after a signal.
    """

    def __init__(
        self,
        start: Callable[[], str],
        stop: Callable[[], bool],
        folders: Sequence[Path] = (),
        exit_status: int = 0,
    ) -> None:
        self.ended = threading.Event()
        self._start, self._stop, self._folders, self._exit_status = start, stop, folders, exit_status
        # Ray's processes end with the thread that started them (PR_SET_PDEATHSIG), so it must live as long as they do.
        self._ray_thread = ThreadPoolExecutor(1, "Ray")

    def start(self) -> str:
        """Start the service and return its URL. A signal meanwhile ends this process. Raises the errors of
        ``start``."""
        adopt_orphans()
        starting = self._ray_thread.submit(self._start)
        while not starting.done():
            self._end_on_signals()  # repeatedly, since Ray installs its own handlers while it starts
            wait([starting], 0.1)
            if self.ended.is_set():
                self.end_by_force(self._exit_status)
        url = starting.result()
        self._end_on_signals()
        return url

    def stop(self, status: int = 0) -> None:
        """Stop the service. If it has to be killed, end this process with the exit code ``status``."""
        if not self._ray_thread.submit(self._stop).result():
            self.end_by_force(status)
        self._ray_thread.shutdown()

    def end_by_force(self, status: int) -> NoReturn:
        """Kill this process and its descendants. Acknowledged data is stored."""
        kill_all_below()
        remove_token()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        os._exit(status)

    def _end_on_signals(self) -> None:
        """Make SIGINT and SIGTERM set ``ended``. The process is killed soon after, since Ray calls may hang."""

        def end(*_: object) -> None:
            if not self.ended.is_set():
                self.ended.set()
                timer = threading.Timer(END_SECONDS, self.end_by_force, [self._exit_status])
                timer.daemon = True
                timer.start()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
