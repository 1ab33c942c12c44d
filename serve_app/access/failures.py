"""How often an address failed to sign in, in bounded memory."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from serve_app.errors import TooManyFailedLogins

MOST_FAILURES = 10  # of one address in a window
WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 4096  # that are remembered; the one that was quiet for longest is forgotten
LOG_SECONDS = 1.0  # between two lines
log = logging.getLogger("ray.serve")


class FailedLogins:
    """Counts failures by address.

    Only requests with a wrong token are refused. A right token works at any time, so that an attacker cannot lock out
    others who share an address.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()  # began, failures
        self._logged = -LOG_SECONDS
        self._silent = 0  # failures without a line since the last one

    def add(self, address: str, reason: str, route: str) -> None:
        """Count one failure and log it.

        Args:
            address: of the client.
            reason: one of a small set; goes into the log and the metric.
            route: method and path; the token is not part of either.

        Raises:
            TooManyFailedLogins: the address failed too often lately. This failure is then not counted again.
        """
        now = self._clock()
        began, count = self._windows.pop(address, (now, 0))
        if now - began >= WINDOW_SECONDS:
            began, count = now, 0
        self._windows[address] = (began, min(count + 1, MOST_FAILURES))
        while len(self._windows) > MOST_ADDRESSES:
            self._windows.popitem(last=False)
        if count >= MOST_FAILURES:
            raise TooManyFailedLogins(
                f"authorization: this address sent {MOST_FAILURES} wrong tokens within {WINDOW_SECONDS:.0f} s; send a "
                "right one, or wait",
                retry_after_seconds=began + WINDOW_SECONDS - now,
                reason=reason,
            )
        self._log(now, address, reason, route)

    def _log(self, now: float, address: str, reason: str, route: str) -> None:
        if now - self._logged < LOG_SECONDS:
            self._silent += 1
            return
        more = f", and {self._silent} more since the last line" if self._silent else ""
        log.warning("failed login (%s) from %s: %s%s", reason, address, route, more)
        self._logged, self._silent = now, 0
