"""Push measurements from a CSV file to TAGAE, with nothing but Python's standard library.

    python examples/push.py examples/measurements.csv --mesh library

Rows of the same time form one snapshot. A row without ``source`` has the service's own measurements. A row with
``source`` has that caller's measurements of its calls. An empty cell means "not observed". Rows are in order of time.
"""

import argparse
import csv
import itertools
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BUSY = (408, 429, 503, 504)  # can be retried: a repeated snapshot counts once
PATIENCE_SECONDS = 60.0


def read_snapshots(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield one snapshot document for each time."""
    for observed_at, group in itertools.groupby(rows, key=lambda row: row["time"]):
        snapshot: dict[str, Any] = {"observed_at": observed_at, "services": [], "calls": []}
        for row in group:
            metrics = {name: float(row[name]) for name in ("error_rate", "p99_latency") if row[name]}
            if row["source"]:
                rate = {"requests_per_second": float(row["request_rate"])}
                snapshot["calls"].append({"source": row["source"], "destination": row["service"], **rate, **metrics})
            else:
                namespace, _, name = row["service"].partition("/")
                metrics["request_rate"] = float(row["request_rate"])
                snapshot["services"].append({"namespace": namespace, "name": name, "metrics": metrics})
        yield snapshot


def push(url: str, mesh: str, snapshot: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    """Push one snapshot and return its verdict. Retries for a minute while the service is busy or unreachable.

    Raises:
        SystemExit: the service refused the snapshot, or did not answer in time.
    """
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = json.dumps(snapshot).encode()
    request = urllib.request.Request(f"{url}/v1/meshes/{mesh}/snapshots", body, headers)
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        pause = 1.0
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                verdict: dict[str, Any] = json.load(answer)
                return verdict
        except urllib.error.HTTPError as error:
            problem = error.read().decode(errors="replace")
            if error.code not in BUSY:
                sys.exit(f"{url} refused the snapshot of {snapshot['observed_at']}: {problem}")
            pause = float(error.headers.get("Retry-After", pause))
        except OSError as error:
            problem = str(error)
        if time.monotonic() + pause > ends:
            sys.exit(f"{url}: expected an answer within {PATIENCE_SECONDS:g} s, got {problem}")
        time.sleep(pause)


def main() -> None:
    """Push a file, and print one line for each snapshot."""
    parser = argparse.ArgumentParser(description="Push measurements from a CSV file to TAGAE.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--mesh", default="library")
    parser.add_argument("--token-file", type=Path)
    args = parser.parse_args()
    token = args.token_file.read_text().strip() if args.token_file else None
    with args.file.open(newline="") as file:
        for snapshot in read_snapshots(csv.DictReader(file)):
            verdict = push(args.url, args.mesh, snapshot, token)
            print(verdict["observed_at"], verdict["status"], f"score {verdict['mesh_score']:.2f}")


if __name__ == "__main__":
    main()
