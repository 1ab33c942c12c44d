"""What can be asked of services and of calls."""

from typing import Literal

# Requests and failures, 1/s; buckets of latency by `le`, or its quantiles, s; connections in use, or requests in
# flight, which stand for them where nobody counts connections; shares of cpu and memory in use.
Role = Literal["requests", "failures", "buckets", "p50", "p99", "connections", "in_flight", "cpu", "memory"]

SHARES: dict[Literal["p50", "p99"], float] = {"p50": 0.5, "p99": 0.99}  # of the requests, that were faster
