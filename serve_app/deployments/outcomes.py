"""What became of a request: how gates and collectors count it."""

from enum import StrEnum

TOO_MANY_REQUESTS = 429


class Outcome(StrEnum):
    """The outcome of a request."""

    SERVED = "served"
    FAILED = "failed"  # through the service: 5xx, or an answer that broke off
    SHED = "shed"  # 429: refused because of overload
    CLIENT = "client"  # another 4xx, the client's own error
    ABANDONED = "abandoned"  # the client left before the answer


def outcome_of(status: int) -> Outcome:
    """The outcome of a request that was answered with this HTTP status."""
    if status == TOO_MANY_REQUESTS:
        return Outcome.SHED
    if status >= 500:
        return Outcome.FAILED
    return Outcome.CLIENT if status >= 400 else Outcome.SERVED
