"""Metrics that can be queried for services and calls."""

from typing import Literal

# Requests and failures, 1/s; latency as buckets by `le` or as quantiles, s; active connections, or requests in flight
# if connections are not counted; used share of CPU and memory; requests that callers cancelled, 1/s; requests longer
# than the rate window, 1/s: while there are any, `in_flight` is unknown.
Role = Literal[
    "requests",
    "failures",
    "cancelled",
    "buckets",
    "p50",
    "p99",
    "connections",
    "in_flight",
    "long_requests",
    "cpu",
    "memory",
]

SHARES: dict[Literal["p50", "p99"], float] = {"p50": 0.5, "p99": 0.99}  # share of faster requests
