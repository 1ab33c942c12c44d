"""Reports how far the start of the replicas is, which is the longest part of a start."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

PERIOD_SECONDS = 1.0
RUNNING = "RUNNING"  # state of a replica that answers


@contextmanager
def report_replicas(report: Callable[[str], None]) -> Iterator[None]:
    """Report in words how many replicas run whenever that changes, and once more at the end of the block."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(report, ended), name="watch replicas", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _watch(report: Callable[[str], None], ended: threading.Event) -> None:
    before, is_last = (0, 0), False
    while not is_last:
        is_last = ended.wait(PERIOD_SECONDS)
        with suppress(RayError, RayServeException):  # Serve may not know them yet
            now = _count()
            if now != before and now[0]:
                report(f"{now[0]} of {now[1]} replicas run")
            before = now


def _count() -> tuple[int, int]:
    """The replicas that run, and all of them."""
    states: Counter[str] = Counter()
    for application in serve.status().applications.values():
        for deployment in application.deployments.values():
            states.update({str(state): count for state, count in deployment.replica_states.items()})
    return states[RUNNING], states.total()
