"""Autoscaling by the requests that a replica works on.

Serve's own count has every request. Open pages wait for verdicts at the ingress and at the sessions, so many pages
would look like much load.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

REQUESTS = "requests"  # name of the metric that replicas report
IN_USE = "in_use"  # likewise, of replicas that start on demand
UPSCALE_SECONDS = 10.0  # how long the load must be higher, before there are more replicas


class RequestLoad:
    """Counts the requests that a replica works on. Use it from one event loop.

    Args:
        clock: s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._request_seconds = 0.0  # since the last report
        self._counted_at = self._reported_at = clock()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Count a request during the block."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._count > 0

    def report(self) -> dict[str, float]:
        """The average number of requests since the last report, as ``record_autoscaling_stats`` returns it."""
        self._add(0)
        now = self._counted_at
        seconds, self._reported_at = now - self._reported_at, now
        total, self._request_seconds = self._request_seconds, 0.0
        return {REQUESTS: total / seconds if seconds > 0 else float(self._count)}

    def _add(self, requests: int) -> None:
        now = self._clock()
        self._request_seconds += self._count * (now - self._counted_at)
        self._count, self._counted_at = self._count + requests, now


def choose_replicas(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """The number of replicas that the load needs: a policy of Serve, which applies limits and delays to it."""
    loads = (context.aggregated_metrics or {}).get(REQUESTS, {})
    if not loads:  # no replica has reported yet
        return float(context.target_num_replicas), {}
    return sum(loads.values()) / context.config.target_ongoing_requests, {}


def follow_requests(
    fewest: int,
    most: int,
    target_requests: float,
    downscale_seconds: float,
    *,
    reports_load: bool = True,
) -> AutoscalingConfig:
    """Autoscaling of a deployment by the requests that it works on.

    Args:
        fewest, most: replicas; at least one and at most ``most``.
        target_requests: for each replica, on average.
        downscale_seconds: how long the load must be lower.
        reports_load: whether its class reports a :class:`RequestLoad` with ``record_autoscaling_stats``. Otherwise
            Serve's own count decides.
    """
    policy = {"policy": AutoscalingPolicy(policy_function=choose_replicas)} if reports_load else {}
    return AutoscalingConfig(
        min_replicas=min(fewest, most),
        max_replicas=most,
        target_ongoing_requests=target_requests,
        upscale_delay_s=UPSCALE_SECONDS,
        downscale_delay_s=downscale_seconds,
        **policy,
    )


class LastUse:
    """Notes when a replica that was started on demand was last used.

    Args:
        idle_seconds: after which it counts as unused.
        clock: s.
    """

    def __init__(self, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds, self._clock = idle_seconds, clock
        self._used_at = clock()  # it was started because someone waits

    def note(self) -> None:
        """Note that it is used now."""
        self._used_at = self._clock()

    def report(self) -> dict[str, float]:
        """Whether it is in use, as ``record_autoscaling_stats`` returns it."""
        return {IN_USE: float(self._clock() - self._used_at < self._idle_seconds)}


def keep_while_used(context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
    """All replicas while one is in use, else none: a policy of Serve, which starts the first one on demand itself."""
    uses = (context.aggregated_metrics or {}).get(IN_USE, {})
    if not uses:  # no replica has reported yet
        return float(context.target_num_replicas), {}
    return float(context.capacity_adjusted_max_replicas) if any(uses.values()) else 0.0, {}


def start_on_demand(replicas: int) -> AutoscalingConfig:
    """No replica until the first request, then all of them while their class reports :class:`LastUse` with
    ``record_autoscaling_stats``."""
    return AutoscalingConfig(
        min_replicas=0,
        max_replicas=replicas,
        upscale_delay_s=0.0,
        downscale_delay_s=0.0,
        policy=AutoscalingPolicy(policy_function=keep_while_used),
    )
