"""A source of your own: snapshots from the access log of a gateway, pushed to TAGAE.

    tail -n +1 -F access.jsonl | python examples/access_log.py --mesh shop

Each line of the log is one request, as JSON: ``time`` (Unix time, s), ``service`` and ``caller`` (``namespace/name``;
no caller: from outside), ``status``, ``seconds``. Lines are in order of time. :class:`AccessLog` is a
:class:`~serve_app.collect.base.SnapshotSource`, so it works wherever a source does. Replace it with your own.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.api.client import Client

NOT_OBSERVED = math.nan


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the log."""

    time: float
    service: str
    caller: str | None
    status: int
    seconds: float


class AccessLog:
    """Snapshots from the lines of a log.

    Args:
        lines: in order of time; the iterator may wait for new ones.
        interval_seconds: time between two snapshots. Requests of one interval make one snapshot.
    """

    def __init__(self, lines: Iterable[str], interval_seconds: float = 15.0) -> None:
        self._lines = lines
        self._interval = interval_seconds

    @property
    def interval_seconds(self) -> float:
        """Time between two snapshots, s."""
        return self._interval

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield a snapshot when the first line after its interval arrives. The last, incomplete interval has none."""
        current, requests = None, []
        for request in (Request(**{"caller": None, **json.loads(line)}) for line in self._lines):
            interval = int(request.time // self._interval)
            if current is not None and interval > current:
                yield self._snapshot((current + 1) * self._interval, requests)
                requests = []
            current = interval
            requests.append(request)

    def _snapshot(self, ends: float, requests: Sequence[Request]) -> MeshSnapshot:
        """The snapshot of one interval. A service that only calls others is in it, without metrics of its own."""
        served: dict[str, list[Request]] = defaultdict(list)
        calls: dict[tuple[str, str], list[Request]] = defaultdict(list)
        for request in requests:
            served[request.service].append(request)
            if request.caller is not None:
                calls[request.caller, request.service].append(request)
        names = sorted({*served, *(caller for caller, _ in calls)})
        position = {name: index for index, name in enumerate(names)}
        ends_of_calls = [[position[end] for end in call] for call in calls]
        return MeshSnapshot.create(
            node_ids=names,
            edge_index=np.array(ends_of_calls, np.int64).reshape(-1, 2).T,
            node_features=np.array([self._row(served[name], NODE_METRICS, "request_rate") for name in names]),
            edge_features=np.array(
                [self._row(found, EDGE_METRICS, "requests_per_second") for found in calls.values()]
            ).reshape(-1, len(EDGE_METRICS)),
            observed_at=datetime.fromtimestamp(ends, UTC),
        )

    def _row(self, requests: Sequence[Request], metrics: Sequence[str], rate: str) -> list[float]:
        """The metrics of some requests in the order of ``metrics``; NaN where the log has no value."""
        if not requests:
            return [NOT_OBSERVED] * len(metrics)
        seconds = [request.seconds for request in requests]
        values = {
            rate: len(requests) / self._interval,
            "error_rate": sum(request.status >= 500 for request in requests) / len(requests),
            "p50_latency": float(np.percentile(seconds, 50)),
            "p99_latency": float(np.percentile(seconds, 99)),
        }
        return [values.get(metric, NOT_OBSERVED) for metric in metrics]


def main() -> None:
    """Push a snapshot for each interval of the log on standard input."""
    parser = argparse.ArgumentParser(description="Push snapshots made from an access log to TAGAE.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--mesh", default="shop")
    parser.add_argument("--interval-seconds", type=float, default=15.0)
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args()
    token = args.token_file.read_text().strip() if args.token_file else None
    with Client(args.url, token=token) as client:
        for snapshot in AccessLog(sys.stdin, args.interval_seconds).snapshots():
            verdict = client.push(args.mesh, snapshot)
            print(verdict.observed_at.isoformat(), verdict.status, len(snapshot.node_ids), "services", flush=True)


if __name__ == "__main__":
    main()
