"""Cost of a sidecar: time to its first verdict, resident memory, and time of a pushed snapshot.

    python benchmarks/bench_sidecar.py [--snapshots 150] [--json FILE]

For each size a new `tagae sidecar` gets snapshots of a simulated mesh over its Unix socket, more than its window holds.
Prints JSON lines. CPU times cover all threads of the process. They vary less than the other times on a busy machine.
The environment sets the allocator: `make` and the image keep freed blocks (``MALLOC_TOP_PAD_`` and others), which needs
more memory and less time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import numpy as np
import psutil
from google.protobuf import json_format

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.api.codec import snapshot_document
from serve_app.sidecar.generated.verdicts_pb2 import Snapshot
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsStub

SIZES = ((60, 3.0), (500, 6.0), (2000, 4.0))
WARM_UP = 20
COMMAND = [sys.executable, "-c", "from serve_app.cli import main; main()", "sidecar", "--port", "0"]
MIB = 2**20


def measure(services: int, calls: float, snapshots: int, folder: Path) -> dict[str, object]:
    """Return one row for one size: s, MiB and ms."""
    simulator = Simulator(MeshSpec(services=services, calls_per_service=calls, seed=1), snapshots=snapshots)
    messages = [json_format.ParseDict(snapshot_document(one), Snapshot()) for one in simulator.snapshots()]
    places = ["--socket", str(folder / "verdicts.sock"), "--set", f"store.path={folder / 'state'}"]
    began = time.perf_counter()
    with subprocess.Popen([*COMMAND, *places], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "ready" not in process.stderr.readline():
            assert process.poll() is None, "it did not start"
        ready = time.perf_counter() - began
        with grpc.insecure_channel(f"unix:{folder / 'verdicts.sock'}") as channel:
            ask = VerdictsStub(channel)  # type: ignore[no-untyped-call]
            resident, taken = psutil.Process(process.pid), []
            at_ready, cpu_at_ready = resident.memory_info().rss, sum(resident.cpu_times()[:2])
            for sequence, message in enumerate(messages, 1):
                pushed = time.perf_counter()
                assert ask.Push(message).sequence == sequence
                taken.append(time.perf_counter() - pushed)
        at_end, cpu_at_end = resident.memory_info().rss, sum(resident.cpu_times()[:2])
        process.terminate()
        assert process.wait(20) == 0
    settled = 1e3 * np.array(taken[WARM_UP:])
    return {
        "benchmark": "sidecar",
        "services": services,
        "calls": len(messages[-1].calls),
        "snapshots": snapshots,
        "ready_s": round(ready, 2),
        "ready_cpu_s": round(cpu_at_ready, 2),
        "first_verdict_s": round(ready + taken[0], 2),
        "resident_ready_mib": round(at_ready / MIB),
        "resident_end_mib": round(at_end / MIB),
        "push_cpu_ms": round(1e3 * (cpu_at_end - cpu_at_ready) / snapshots, 1),
        "push_p50_ms": round(float(np.median(settled)), 1),
        "push_p99_ms": round(float(np.percentile(settled, 99)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshots", type=int, default=150)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    about = {"cores": os.cpu_count(), "allocator": "kept" if "MALLOC_TOP_PAD_" in os.environ else "stock"}
    rows = []
    for services, calls in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(services, calls, arguments.snapshots, Path(folder)) | about)
        print(json.dumps(rows[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
