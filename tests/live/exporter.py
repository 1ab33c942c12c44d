"""Serve a mesh's metrics as pages to scrape: Istio's, cAdvisor's and kube-state-metrics', from one snapshot.

    python -m tests.live.exporter SNAPSHOT PORT BOUND_MS...

Counters grow at the snapshot's rates, and every sample has its own time. So Prometheus computes the exported values, to
the millisecond. A service has one workload, with its name and ``-v1``, and ``PODS`` pods. As in a cluster there are
many pages, and Prometheus spreads them over the interval. A single page would be seconds late each time.
"""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from model.snapshot import NODE_METRICS, MeshSnapshot
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from tests.live.monitor import every
from tests.live.openmetrics import Observed, calls, services, share_below
from tests.live.programs import LOOPBACK, NotReady, Program, free_ports
from tests.timing import PATIENCE_SECONDS

PODS = 2
PAGES = 16
AGE = 86_400.0  # s for which counters have grown before the first scrape
LIMITS = {"cpu": 2.0, "memory": 512e6}  # of a pod: cores, bytes
RESERVED = {"cpu": 1.0, "memory": 256e6}
Series = tuple[str, float, float]  # name with labels, growth in 1/s, and first value


def start_exporter(snapshot: MeshSnapshot, bounds_ms: Sequence[float], folder: Path) -> tuple[Program, str]:
    """Start a process that exports the snapshot, and return it with its address. The caller ends it.

    Raises:
        NotReady: it does not answer.
    """
    file, port = folder / "snapshot.packed", free_ports(1)[0]
    file.write_bytes(pack_snapshot(snapshot))
    command = [
        sys.executable,
        "-m",
        "tests.live.exporter",
        str(file),
        str(port),
        *(f"{bound:g}" for bound in bounds_ms),
    ]
    program = Program("exporter", command, folder / "exporter.log")
    try:
        program.wait_for(f"http://{LOOPBACK}:{port}/", 2 * PATIENCE_SECONDS)
    except NotReady:
        program.end()
        raise
    return program, f"{LOOPBACK}:{port}"


def scrape_config(address: str, seconds: float) -> dict[str, Any]:
    pages = [
        {"targets": [address], "labels": {"__metrics_path__": f"/{page}", "page": str(page)}} for page in range(PAGES)
    ]
    return {"job_name": "mesh", **every(seconds), "static_configs": pages}


def series(snapshot: MeshSnapshot, bounds_ms: Sequence[float]) -> list[Series]:
    """Return all series of the snapshot. Values that were not observed have no series."""
    return [one for one in (*_istio(snapshot, bounds_ms), *_kubernetes(snapshot)) if not math.isnan(one[1])]


def _istio(snapshot: MeshSnapshot, bounds_ms: Sequence[float]) -> Iterator[Series]:
    bounds = [(f"{bound:g}", bound) for bound in bounds_ms] + [("+Inf", math.inf)]
    callers = [(snapshot.node_ids[source], snapshot.node_ids[called]) for source, called in snapshot.edge_index.T]
    sides = [
        (services([snapshot]), [f'reporter="destination",{_callee_labels(name)}' for name in snapshot.node_ids]),
        (calls([snapshot]), [f'reporter="source",{_caller_labels(a)},{_callee_labels(b)}' for a, b in callers]),
    ]
    for side, labels in sides:
        yield from _requests(side, labels)
        yield from _durations(side, labels, bounds)


def _caller_labels(node_id: str) -> str:
    namespace, name = node_id.split("/", 1)
    workload = f'source_workload_namespace="{namespace}",source_workload="{name}-v1"'
    return f'{workload},source_canonical_service="{name}"'


def _callee_labels(node_id: str) -> str:
    namespace, name = node_id.split("/", 1)
    workload = f'destination_workload_namespace="{namespace}",destination_workload="{name}-v1"'
    return f'{workload},destination_service_namespace="{namespace}",destination_service_name="{name}"'


def _requests(side: Observed, labels: Sequence[str]) -> Iterator[Series]:
    failed = (side.rate * np.nan_to_num(side.errors))[:, 0].tolist()
    for names, rate, failing in zip(labels, side.rate[:, 0].tolist(), failed, strict=True):
        yield f'istio_requests_total{{{names},response_code="200"}}', rate - failing, 0.0
        if failing > 0:  # a status code has no series before its first answer
            yield f'istio_requests_total{{{names},response_code="503"}}', failing, 0.0


def _durations(side: Observed, labels: Sequence[str], bounds: Sequence[tuple[str, float]]) -> Iterator[Series]:
    metric, rates = "istio_request_duration_milliseconds", side.rate[:, 0]
    for text, bound in bounds:
        counted = (rates * share_below(side, bound)[:, 0]).tolist()
        yield from ((f'{metric}_bucket{{{n},le="{text}"}}', c, 0.0) for n, c in zip(labels, counted, strict=True))
    summed = (np.nan_to_num(side.in_use[:, 0]) * 1000).tolist()
    yield from ((f"{metric}_sum{{{n}}}", one, 0.0) for n, one in zip(labels, summed, strict=True))


def _kubernetes(snapshot: MeshSnapshot) -> Iterator[Series]:
    cpu, memory = (snapshot.node_features[:, NODE_METRICS.index(f"{r}_utilization")].tolist() for r in LIMITS)
    for node_id, used, resident in zip(snapshot.node_ids, cpu, memory, strict=True):
        namespace, name = node_id.split("/", 1)
        of = f'namespace="{namespace}"'
        yield f'kube_deployment_spec_replicas{{{of},deployment="{name}-v1"}}', 0.0, float(PODS)
        yield f'kube_deployment_metadata_generation{{{of},deployment="{name}-v1"}}', 0.0, 1.0
        owner = 'owner_kind="Deployment"'
        yield f'kube_replicaset_owner{{{of},replicaset="{name}-v1-rs",{owner},owner_name="{name}-v1"}}', 0.0, 1.0
        yield from chain.from_iterable(_pod(of, f"{name}-v1", pod, used, resident) for pod in range(PODS))
    for node in range(_nodes(snapshot)):
        for resource, most in (("cpu", 64.0), ("memory", 256e9)):
            yield f'kube_node_status_allocatable{{node="node-{node}",resource="{resource}"}}', 0.0, most


def _pod(of: str, workload: str, pod: int, cpu: float, memory: float) -> Iterator[Series]:
    of = f'{of},pod="{workload}-{pod}"'
    container = f'{of},container="main"'
    yield f'kube_pod_owner{{{of},owner_kind="ReplicaSet",owner_name="{workload}-rs"}}', 0.0, 1.0
    yield f'kube_pod_info{{{of},node="node-{pod}"}}', 0.0, 1.0
    yield f"container_cpu_usage_seconds_total{{{container}}}", cpu * LIMITS["cpu"], 0.0
    yield f"container_memory_working_set_bytes{{{container}}}", 0.0, memory * LIMITS["memory"]
    for kind, amounts in (("limits", LIMITS), ("requests", RESERVED)):
        for resource, amount in amounts.items():
            yield f'kube_pod_container_resource_{kind}{{{container},resource="{resource}"}}', 0.0, amount


def _nodes(snapshot: MeshSnapshot) -> int:
    return max(PODS, snapshot.num_nodes // 50)


class Page:
    """The text of a page at any instant."""

    def __init__(self, all_series: Sequence[Series]) -> None:
        self._began = time.time() - AGE
        # One format string for all lines: a page of a large mesh has hundreds of thousands of them.
        self._lines = "".join(name.replace("%", "%%") + " %.6f @\n" for name, _, _ in all_series)
        self._grows = np.array([grows for _, grows, _ in all_series])
        self._first = np.array([first for _, _, first in all_series])

    def at(self, now: float) -> bytes:
        """Return every series with its value and time."""
        milliseconds = round(now * 1000)
        values = self._first + self._grows * (milliseconds / 1000 - self._began)
        return (self._lines % tuple(values.tolist())).replace("@", str(milliseconds)).encode()


def main() -> None:
    file, port, *bounds = sys.argv[1:]
    all_series = series(unpack_snapshot(Path(file).read_bytes()), [float(bound) for bound in bounds])
    pages = {f"/{i}": Page(all_series[i::PAGES]) for i in range(PAGES)}

    class Request(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[self.path].at(time.time()) if self.path in pages else b"ready\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: the log is for errors."""

    ThreadingHTTPServer((LOOPBACK, int(port)), Request).serve_forever()


if __name__ == "__main__":
    main()
