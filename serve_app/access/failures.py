"""Counts failed logins by address, in bounded memory."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from serve_app.errors import TooManyFailedLogins

MAX_FAILURES = 10  # per address and window
WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 4096  # the address whose last failure is oldest is forgotten first
LOG_SECONDS = 1.0  # minimum time between two log lines
log = logging.getLogger(__name__)


class FailedLogins:
    """Counts failures by address.

    Only requests with a wrong token are refused. A valid token works at any time, so that an attacker cannot lock out
    others who share an address.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()  # start, failures
        self._logged = -LOG_SECONDS
        self._unlogged = 0  # failures since the last log line

    def add(self, address: str, reason: str, route: str) -> None:
        """Count one failure and log it.

        Args:
            reason: for the log and the metric, from a small set.
            route: method and path.

        Raises:
            TooManyFailedLogins: the address failed too often recently. This failure is then not counted.
        """
        now = self._clock()
        began, count = self._windows.pop(address, (now, 0))
        if now - began >= WINDOW_SECONDS:
            began, count = now, 0
        self._windows[address] = (began, min(count + 1, MAX_FAILURES))
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)
        if count >= MAX_FAILURES:
            raise TooManyFailedLogins(
                f"authorization: this address sent {MAX_FAILURES} wrong tokens within {WINDOW_SECONDS:.0f} s; send a "
                "valid one, or wait",
                retry_after_seconds=began + WINDOW_SECONDS - now,
                reason=reason,
            )
        self._log(now, address, reason, route)

    def _log(self, now: float, address: str, reason: str, route: str) -> None:
        if now - self._logged < LOG_SECONDS:
            self._unlogged += 1
            return
        more = f", and {self._unlogged} more since the last line" if self._unlogged else ""
        log.warning("failed login (%s) from %s: %s%s", reason, address, route, more)
        self._logged, self._unlogged = now, 0
