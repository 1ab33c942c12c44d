"""Compares pushes to the service of this checkout and of another commit, request by request.

    python -m benchmarks.bench_commits COMMIT [--services 60 500] [--formats json arrow] [--seconds 40]
        [--json FILE]

Both services run at the same time with the packages of this environment. One client sends each snapshot to both, in
alternating order, so both have the same conditions: on shared processors, two runs one after the other differ by more
than most changes do. Each service evicts the other's caches, so both are slower than a service that runs alone.

Asserted: every push is answered 200, and both give the same sequence. Meshes of 500 services have 3,000 calls, meshes
of 2,000 services have 20,000.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import httpx
import numpy as np

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.codec import ARROW, JSON, encode_snapshot

ROOT = Path(__file__).parents[1]
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
FORMATS = {"json": JSON, "arrow": ARROW}
DIFFERENT = 20  # different snapshots, sent repeatedly
SERVER = """
import sys, tempfile
from serve_app.app import start, stop
from serve_app.settings import Settings
with tempfile.TemporaryDirectory() as folder:
    url = start(Settings(serve={"port": 0}, store={"path": folder}, scorer={"device": "cpu"}))
    try:
        print("url", url, flush=True)
        sys.stdin.read()
    finally:
        stop()
"""


@contextmanager
def check_out(commit: str) -> Iterator[Path]:
    """Check out a commit in a temporary worktree, with compiled ops if this checkout has them.

    Git does not keep them, and without them a service is several times slower.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            if any((ROOT / "kernels").glob("lib*.so")):
                build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
                subprocess.run(build, cwd=tree, check=True)
                assert any((tree / "kernels").glob("lib*.so")), f"{commit}: the ops were not built; see above"
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


@contextmanager
def run_service(tree: Path) -> Iterator[str]:
    """Run the service of a checkout and yield its URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        found = next((line for line in process.stdout if line.startswith("url ")), None)
        assert found, f"{tree}: the service did not start"
        yield found.split()[1]
    finally:
        process.stdin.close()
        process.wait(120)


def calls_per_service(services: int) -> float:
    """As in ``bench_serve``: 500 services make 3,000 calls, 2,000 make 20,000."""
    return 3.0 if services < 500 else 6.0 if services < 2000 else 10.0


def compare(urls: list[str], services: int, form: str, seconds: float) -> np.ndarray:
    """Return durations of pushes in s, a row for each service, without the first quarter."""
    simulator = Simulator(
        MeshSpec(services=services, calls_per_service=calls_per_service(services), seed=1), snapshots=DIFFERENT
    )
    snapshots, media_type = list(simulator.snapshots()), FORMATS[form]
    durations: list[list[float]] = [[] for _ in urls]
    route = f"/v1/meshes/{form}{services}/snapshots"
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=url, timeout=60)) for url in urls]
        ends, sequence = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            at = BEGINNING + timedelta(seconds=15 * sequence)
            body = encode_snapshot(replace(snapshots[sequence % DIFFERENT], observed_at=at), media_type)
            sequence += 1
            for i in range(len(clients)):
                k = (i + sequence) % len(clients)
                began = time.perf_counter()
                response = clients[k].post(route, content=body, headers={"content-type": media_type})
                durations[k].append(time.perf_counter() - began)
                assert response.status_code == 200, response.text
                assert response.json()["sequence"] == sequence
    return np.array(durations)[:, len(durations[0]) // 4 :]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--services", type=int, nargs="+", default=[60, 500])
    parser.add_argument("--formats", choices=FORMATS, nargs="+", default=["json"])
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    lines = []
    with check_out(chosen.commit) as tree, run_service(tree) as other, run_service(ROOT) as this:
        for services, form in product(chosen.services, chosen.formats):
            before, now = compare([other, this], services, form, chosen.seconds)
            lines.append(
                {
                    "bench": "commits",
                    "commit": chosen.commit,
                    "services": services,
                    "format": form,
                    "pairs": len(now),
                    "before_p50_ms": round(1000 * float(np.median(before)), 2),
                    "now_p50_ms": round(1000 * float(np.median(now)), 2),
                    "p50_ratio": round(float(np.median(now) / np.median(before)), 4),
                    "median_difference_ms": round(1000 * float(np.median(now - before)), 2),
                }
            )
            print(json.dumps(lines[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
