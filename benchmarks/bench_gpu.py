"""Measures the network on a GPU: errors and times of every op, passes of all sizes, batches, alternatives.

    python -m benchmarks.bench_gpu [--sizes 100x400 ...] [--sections ops passes ...] [--repeat 200] [--seconds 2]
                                   [--json FILE]

Needs a GPU, torch with CUDA, numpy and safetensors, no other dependency of TAGAE; without a GPU it reports the missing
part and ends. Prints a JSON line for each row. With the defaults it takes a minute or two. Inputs are random graphs
with the shipped weights. An error ends its section only, and is printed as a row.

| section | what it measures |
|---|---|
| ops | each op in float32 and bfloat16: largest error of values and gradients against float64 on the CPU, and times |
| passes | a pass over one mesh of each size, from and to host arrays; its memory; the same pass on the CPU |
| batches | several meshes of 500 services and 3,000 calls in one pass |
| tf32 | a pass with TF32, which TAGAE keeps off, and the largest change of an expectation |
| streams | four such meshes: in one pass as TAGAE does, one after another, and each on a stream of its own |
| copies | the inputs of a mesh, copied from pinned memory as TAGAE does, and from other memory |

Times end when the GPU has finished. Limitation: one process uses the GPU, at the driver's clock.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import kernels
from benchmarks.rows import Row, command_line, commit, emit
from kernels.gpu import check_gpu
from kernels.selfcheck import Case, random_cases
from model.checkpoint import load
from model.network.contract import EDGE_INPUTS, NODE_INPUTS, Decoding, MeshGraph, MeshNetwork
from model.network.layers import to_device
from model.scoring.score import PartitionTask, batch_tasks, score

SIZES = ("100x400", "500x3000", "2000x20000", "10000x100000")
BATCHED = "500x3000"
BATCHES = (1, 2, 4, 8, 16, 32)
AT_ONCE = 4  # meshes on streams
NEIGHBOURS = 6  # maximum attended callers, and callees, as in the shipped network
WARM_UP = 3  # calls before the timed ones


class Run:
    """The parameters of all sections.

    Args:
        device: the GPU; the tests use the CPU.
        repeat: timed calls for a row.
        seconds: time after which a row is complete with fewer calls.
        sizes: of the passes, ``services x calls``.
    """

    def __init__(self, device: torch.device, repeat: int, seconds: float, sizes: Sequence[str] = SIZES) -> None:
        self.device, self.repeat, self.seconds, self.sizes = device, repeat, seconds, sizes
        self.network, self.on_cpu = load(device=device).network, load().network

    def time(self, call: Callable[[], object], name: str = "") -> dict[str, float]:
        return summary(milliseconds(call, self.repeat, self.seconds), name)


def parse(size: str) -> tuple[int, int]:
    """Return the services and calls in ``500x3000``."""
    services, calls = size.split("x")
    return int(services), int(calls)


def random_task(services: int, calls: int, seed: int = 0) -> PartitionTask:
    """Return a mesh in one part: calls between random services, some with many callers."""
    rng = np.random.default_rng(seed)
    weight = rng.permutation((np.arange(services) + 1.0) ** -0.6)
    callee = rng.choice(services, calls, p=weight / weight.sum())
    caller = rng.integers(0, services, calls)
    return PartitionTask(
        nodes=rng.standard_normal((services, NODE_INPUTS), np.float32),
        edges=rng.standard_normal((calls, EDGE_INPUTS), np.float32),
        edge_index=np.stack([caller, callee]).astype(np.int32),
        attended_callers=first_of_each(callee, NEIGHBOURS),
        attended_callees=first_of_each(caller, NEIGHBOURS),
        core=services,
        owned=calls,
        boundary=np.zeros(0, np.int64),
    )


def first_of_each(keys: np.ndarray, count: int) -> np.ndarray:
    """Return whether each entry is among the first ``count`` with its key."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(keys[order]) != 0])
    lengths = np.diff(np.r_[starts, len(keys)])
    rank = np.arange(len(keys)) - np.repeat(starts, lengths)
    is_first = np.zeros(len(keys), bool)
    is_first[order] = rank < count
    return is_first


def wait() -> None:
    """Wait for the GPU's work; do nothing without a GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def milliseconds(call: Callable[[], object], repeat: int, seconds: float) -> list[float]:
    """Return durations of at most ``repeat`` calls, ms: at least three, but none that begins after ``seconds``."""
    for _ in range(WARM_UP):
        call()
    wait()
    durations: list[float] = []
    ends = time.perf_counter() + seconds
    while len(durations) < min(repeat, 3) or (len(durations) < repeat and time.perf_counter() < ends):
        begin = time.perf_counter()
        call()
        wait()
        durations.append(1e3 * (time.perf_counter() - begin))
    return durations


def summary(durations: list[float], name: str = "") -> dict[str, float]:
    """Return median and 99th percentile, ms, as ``<name>p50_ms`` and ``<name>p99_ms``."""
    in_order = sorted(durations)
    last = in_order[min(len(in_order) - 1, round(0.99 * (len(in_order) - 1)))]
    return {f"{name}p50_ms": round(statistics.median(in_order), 3), f"{name}p99_ms": round(last, 3)}


def ops(run: Run) -> Iterator[Row]:
    """Measure each op in each number type."""
    for case in random_cases():
        exact = values_and_gradients(case, torch.float64, torch.device("cpu"))
        for dtype in (torch.float32, torch.bfloat16):
            row: Row = {"op": case.op, "dtype": f"{dtype}".removeprefix("torch.")}
            try:
                results = values_and_gradients(case, dtype, run.device)
            except (RuntimeError, kernels.KernelError) as error:
                yield row | {"error": first_line(error)}
                continue
            values, gradients = (largest_error(a, b) for a, b in zip(results, exact, strict=True))
            times = run.time(partial(call_op, case, move(case, dtype, run.device)), "forward_")
            times_with_gradients = run.time(partial(values_and_gradients, case, dtype, run.device), "with_gradients_")
            yield row | {"value_error": values, "gradient_error": gradients, **times, **times_with_gradients}


def move(case: Case, dtype: torch.dtype, device: torch.device) -> list[Any]:
    """Return a case's arguments on a device."""
    return [
        a.to(device, dtype if a.is_floating_point() else a.dtype) if isinstance(a, Tensor) else a
        for a in case.arguments
    ]


def call_op(case: Case, arguments: Sequence[Any]) -> tuple[Tensor, ...]:
    result = getattr(kernels, case.op)(*arguments)
    return result if isinstance(result, tuple) else (result,)


def values_and_gradients(
    case: Case, dtype: torch.dtype, device: torch.device
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return results, and gradients of their mean square."""
    arguments = move(case, dtype, device)
    leaves = [a.requires_grad_() for a in arguments if isinstance(a, Tensor) and a.is_floating_point()]
    results = call_op(case, arguments)
    loss = torch.stack([result.float().square().mean() for result in results]).sum()
    return tuple(r.detach() for r in results), torch.autograd.grad(loss, leaves)


def largest_error(results: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return the largest difference, relative to each tensor's largest number."""
    errors = [
        float((ours.cpu().double() - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))
        for ours, theirs in zip(results, exact, strict=True)
    ]
    return float(f"{max(errors):.2e}")


@torch.inference_mode()
def on_device(network: MeshNetwork, graph: MeshGraph) -> Decoding:
    """Run a pass whose inputs and outputs stay on the device."""
    decoding: Decoding = network(graph)
    return decoding


def passes(run: Run) -> Iterator[Row]:
    """Measure one mesh of each size, and the same mesh on the CPU."""
    for size in run.sizes:
        task = random_task(*parse(size))
        reset_peak(run.device)
        times = run.time(partial(score, run.network, [task]))
        memory = peak_mib(run.device)
        on_device_call = partial(on_device, run.network, batch_tasks([task], run.device))
        network_times = run.time(on_device_call, "on_device_")
        cpu_times = summary(milliseconds(partial(score, run.on_cpu, [task]), min(run.repeat, 10), run.seconds), "cpu_")
        yield {"size": size, **times, **network_times, "peak_mib": memory, **cpu_times}


def batches(run: Run) -> Iterator[Row]:
    """Measure several meshes in one pass."""
    tasks = [random_task(*parse(BATCHED), seed) for seed in range(max(BATCHES))]
    for count in BATCHES:
        reset_peak(run.device)
        times = run.time(partial(score, run.network, tasks[:count]))
        rate = 1e3 * count / times["p50_ms"]
        yield {"size": BATCHED, "meshes": count, **times, "meshes_per_s": round(rate), "peak_mib": peak_mib(run.device)}


def tf32(run: Run) -> Iterator[Row]:
    """Measure a pass whose inputs and outputs stay on the device, with ten-bit products."""
    for size in run.sizes:
        graph = batch_tasks([random_task(*parse(size))], run.device)
        exact = on_device(run.network, graph).node_expected
        torch.set_float32_matmul_precision("high")
        try:
            change = largest_error([on_device(run.network, graph).node_expected], [exact.cpu().double()])
            times = run.time(partial(on_device, run.network, graph), "tf32_")
        finally:
            torch.set_float32_matmul_precision("highest")
        yield {"size": size, "change": change, **times, **run.time(partial(on_device, run.network, graph))}


def streams(run: Run) -> Iterator[Row]:
    """Measure several meshes with overlapping passes."""
    tasks = [random_task(*parse(BATCHED), seed) for seed in range(AT_ONCE)]
    on_gpu = run.device.type == "cuda"
    contexts = [
        torch.cuda.stream(torch.cuda.Stream()) if on_gpu else nullcontext()  # type: ignore[no-untyped-call]
        for _ in tasks
    ]

    def apart() -> None:
        for task in tasks:
            score(run.network, [task])

    def overlapping() -> None:
        for task, context in zip(tasks, contexts, strict=True):
            with context:
                on_device(run.network, batch_tasks([task], run.device))

    joined_times = run.time(partial(score, run.network, tasks), "joined_")
    yield {
        "size": BATCHED,
        "meshes": AT_ONCE,
        **joined_times,
        **run.time(apart, "apart_"),
        **run.time(overlapping, "streams_"),
    }


def copies(run: Run) -> Iterator[Row]:
    """Measure copies of each mesh's largest input."""
    for size in run.sizes:
        edges = torch.from_numpy(random_task(*parse(size)).edges)
        row = {"size": size, "bytes": edges.nbytes, **run.time(partial(to_device, edges, run.device), "pinned_")}
        yield row | run.time(partial(edges.to, run.device), "pageable_")


SECTIONS: dict[str, Callable[[Run], Iterator[Row]]] = {
    "ops": ops,
    "passes": passes,
    "batches": batches,
    "tf32": tf32,
    "streams": streams,
    "copies": copies,
}


def reset_peak(device: torch.device) -> None:
    """Start measuring tensor memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_mib(device: torch.device) -> float | None:
    """Return the peak tensor memory since then, MiB; None on a CPU."""
    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1) if device.type == "cuda" else None


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def conditions() -> Row:
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernels": kernels.backend("cuda"),
        "kernels_reason": kernels.backend_reason("cuda"),
        "commit": commit(),
    }


def driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def measure(run: Run, sections: Sequence[str]) -> Iterator[Row]:
    """Run sections; an error ends only its section."""
    for name in sections:
        try:
            for row in SECTIONS[name](run):
                yield {"section": name, **row}
        except Exception as error:
            yield {"section": name, "error": first_line(error)}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="NxE")
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--repeat", type=int, default=200)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="time after which a row is complete with fewer calls"
    )
    options = parser.parse_args()
    obstacle = check_gpu()
    if obstacle is not None:
        raise SystemExit(f"bench_gpu: no usable GPU: {obstacle}; nothing was measured")
    about = conditions()
    run = Run(torch.device("cuda"), options.repeat, options.seconds, options.sizes)
    rows = emit(({"benchmark": "gpu", **row, **about} for row in measure(run, options.sections)), options.json)
    errors = sum("error" in row for row in rows)
    print(f"bench_gpu: {len(rows)} rows on {about['gpu']}, {errors} of them errors", flush=True)


if __name__ == "__main__":
    main()
