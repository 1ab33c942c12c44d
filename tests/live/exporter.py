"""Serve a mesh's metrics as pages to scrape: Istio's, cAdvisor's and kube-state-metrics', from one snapshot.

    python -m tests.live.exporter SNAPSHOT PORT BOUND_MS...

Counters grow at the snapshot's rates, and every sample has its own time. So Prometheus computes the exported values, to
the millisecond. As in a cluster there are many pages, and Prometheus spreads them over the interval. A single page
would be seconds late each time.
"""

import math
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.api.codec import pack_snapshot, unpack_snapshot
from tests.live.kubernetes_series import families
from tests.live.monitor import every
from tests.live.openmetrics import calls, duration_rates, request_rates, services
from tests.live.programs import LOOPBACK, NotReady, Program, free_ports
from tests.serve_app.collect.prometheus.cluster import Cluster
from tests.timing import PATIENCE_SECONDS

PAGES = 16
AGE = 86_400.0  # s for which counters have grown before the first scrape
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
    sides = [services([snapshot]), calls([snapshot])]
    found: list[Series] = []
    for names, rates in (*request_rates(sides), *duration_rates(sides, bounds_ms)):
        found += [(name, rate, 0.0) for name, rate in zip(names, rates[:, 0].tolist(), strict=True)]
    for family, labels, values in families([snapshot], [Cluster().after(snapshot)]):
        for label, value in zip(labels, values[:, 0].tolist(), strict=True):
            name = f"{family}{{{label}}}"
            found.append((name, value, 0.0) if family.endswith("_total") else (name, 0.0, value))
    return [one for one in found if not math.isnan(one[1] + one[2])]


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
