"""The exported network beside ours: differences, CPU time of a pass, and sizes of files.

    python -m benchmarks.bench_exports [--json FILE]

Exports the shipped network to a temporary folder. Each form runs the same meshes, one thread, in turns. The fastest
pass counts, in CPU time, as other work on the machine only adds to it. A difference is relative to 1, or to the output
if that is larger. Prints one JSON line for each size and form; takes a minute.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from kernels import backend
from lab.export.files import FORMATS, OPSET, Run
from lab.export.program import FlatNetwork, inputs_of
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from serve_app.pipeline import Mesh, Options, prepare

SIZES = ((60, 240), (500, 3_000), (2_000, 20_000))  # services and calls
ROUNDS = 15


def measure(
    checkpoint: Checkpoint, sizes: Sequence[tuple[int, int]], rounds: int, folder: Path
) -> list[dict[str, Any]]:
    """Return a line for each size and form."""
    flat = FlatNetwork(checkpoint.network).eval()

    def ours(inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        with torch.inference_mode():
            return [output.numpy() for output in flat(*map(torch.from_numpy, inputs))]

    forms: dict[str, Run] = {"network": ours}
    bytes_of: dict[str, int | None] = {"network": None}
    for kind, (write, open_file) in FORMATS.items():
        path = folder / f"tagae.{kind}"
        write(checkpoint, path)
        forms[kind], bytes_of[kind] = open_file(path), path.stat().st_size
    lines = []
    for services, calls in sizes:
        spec = MeshSpec(services=services, calls_per_service=calls / services, seed=1)
        [snapshot] = Simulator(spec, snapshots=1).snapshots()
        task = prepare(checkpoint, Mesh(), snapshot, Options(max_services=services)).whole
        inputs = [tensor.numpy() for tensor in inputs_of(task)]
        expected = ours(inputs)
        seconds: dict[str, list[float]] = {kind: [] for kind in forms}
        for _ in range(rounds):
            for kind, run in forms.items():
                begin = time.process_time()
                run(inputs)
                seconds[kind].append(time.process_time() - begin)
        for kind, run in forms.items():
            pairs = zip(run(inputs), expected, strict=True)
            difference = max(float((np.abs(a - b) / np.maximum(np.abs(b), 1)).max()) for a, b in pairs)
            lines.append(
                {
                    "benchmark": "exports",
                    "form": kind,
                    "services": services,
                    "calls": len(task.edges),
                    "pass_cpu_ms": round(1000 * min(seconds[kind]), 2),
                    "difference": difference,
                    "file_bytes": bytes_of[kind],
                    "opset": OPSET,
                    "backend": backend(),
                    "torch": torch.__version__,
                    "onnxruntime": onnxruntime.__version__,
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps(line) for line in measure(load(), SIZES, ROUNDS, Path(folder))]
    print(*lines, sep="\n")
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
