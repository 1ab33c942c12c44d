"""Computes how long to wait before a failed request is sent again."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: the wait doubles with each failure in a row, up to a limit.

    The jitter shortens a wait by up to half, so that clients that failed together do not retry together.
    """

    first_seconds: float = 1.0  # before jitter
    max_seconds: float = 60.0

    def seconds(self, failures: int, retry_after_seconds: float = 0.0) -> float:
        """Return the wait, s.

        Args:
            failures: failures in a row, 1 or more.
            retry_after_seconds: minimum wait that the server asked for, capped at ``max_seconds``.
        """
        wait = self.first_seconds * 2.0 ** min(failures - 1, 30)
        min_wait = min(retry_after_seconds, self.max_seconds)
        return max(min_wait, min(wait, self.max_seconds) * random.uniform(0.5, 1.0))


def parse_retry_after(header: str) -> float:
    """Read a ``Retry-After`` header (RFC 9110) in seconds or as a date; 0 if it is neither."""
    if header.isascii() and header.isdigit() and len(header) < 10:
        return float(header)
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
