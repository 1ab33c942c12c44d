"""Measures the ``tagae::`` ops beside PyTorch Geometric's GATv2Conv, eager and compiled, in the same run.

    python -m benchmarks.bench_kernels [--sizes 500x3000 2000x20000] [--threads 1] [--repeat 51]

One JSON line per size and pass. All contenders are one layer with the same weights: two projections of 128 features,
then attention with 4 heads and 32 channels each over edges with 16 temporal features. ``layer_ms`` is the op
``project_and_attend``, and ``reference_ms`` its PyTorch form. The others are GATv2Conv: eager (``pyg_ms``), through
``torch.compile(dynamic=True)`` (``compiled_ms``), through AOTInductor (``aot_ms``), and through ONNX Runtime
(``onnx_ms``, if onnx, onnxscript and onnxruntime are installed). GATv2Conv uses the temporal features in the logits
only. The op also uses them in the values, which is additional work.
DGL is not a contender: it has no build for the versions of torch that TAGAE supports.

``network_ms`` is the shipped network over a mesh of that size. ``peak_share`` is the time of its multiply-adds at the
speed of the fastest matrix product (oneDNN, 512 x 512 x 512, in the same run), divided by its own time.
Before the measurement, all are compared with float64, and a large error ends the benchmark. Calls alternate, so other
load on the machine affects all alike. Times are medians in milliseconds. In-degrees follow a power law.

Limitation: the contenders share the allocator and the caches, because they alternate in one process.
"""

import copy
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

import torch
import torch_geometric
from torch import Tensor
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch_geometric.nn import GATv2Conv

import kernels
from benchmarks.bench_pipeline import SIDE, fastest_product, multiply_adds
from benchmarks.rows import Row, command_line, commit, emit
from kernels.reference import project_and_attend
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import load
from model.scoring.score import batch_tasks
from serve_app.pipeline import Mesh, Options, prepare

FEATURES, HEADS, CHANNELS, TIMES = 128, 4, 32, 16
SLOPE = 0.2
SIZES = ["60x180", "500x3000", "2000x20000", "10000x100000"]
LARGEST_ERROR = 1e-5  # against float64, for values of order 1
# By default glibc returns large blocks to the kernel after each op, which makes plain torch several times slower.
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "268435456",
}


class Layer(torch.nn.Module):
    """Our layer with a GATv2Conv's weights."""

    def __init__(self, convolution: GATv2Conv, op: Callable[..., Tensor]) -> None:
        super().__init__()
        self.convolution, self.op = convolution, op
        self.bias = torch.nn.Parameter(torch.zeros(HEADS * CHANNELS))
        self.value_weight = torch.nn.Parameter(torch.zeros(HEADS, CHANNELS, TIMES))

    def forward(self, x: Tensor, trajectory: Tensor, csr: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        c = self.convolution
        query, key, weight, attention = c.lin_r.weight, c.lin_l.weight, c.lin_edge.weight, c.att[0]
        slots = trajectory, weight, attention, self.value_weight, *csr, SLOPE
        return self.op(x, query, self.bias, key, self.bias, *slots)


def graph(nodes: int, edges: int) -> tuple[Tensor, Tensor]:
    """Return ``edge_index [2, E]`` sorted by target, and its ``indptr``."""
    generator = torch.Generator().manual_seed(nodes)
    popularity = (torch.arange(nodes) + 1.0).pow(-0.6)[torch.randperm(nodes, generator=generator)]
    targets = torch.multinomial(popularity, edges, replacement=True, generator=generator).sort().values
    sources = torch.randint(nodes, (edges,), generator=generator)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(targets, minlength=nodes).cumsum(0)])
    return torch.stack([sources, targets]), indptr


def contenders(nodes: int, edges: int) -> dict[str, Callable[[], Tensor]]:
    """Return all layers on one graph, checked against float64."""
    torch.manual_seed(0)
    edge_index, indptr = graph(nodes, edges)
    x, trajectory = torch.randn(nodes, FEATURES), torch.randn(edges, TIMES)
    convolution = GATv2Conv(FEATURES, CHANNELS, HEADS, add_self_loops=False, bias=False, edge_dim=TIMES)
    layer, reference_layer = Layer(convolution, kernels.project_and_attend), Layer(convolution, project_and_attend)
    compiled: Callable[..., Tensor] = torch.compile(convolution, dynamic=True)
    csr = indptr, edge_index[0].contiguous(), torch.arange(edges)
    inputs = x, edge_index, trajectory
    calls: dict[str, Callable[[], Tensor]] = {
        "layer": lambda: layer(x, trajectory, csr),
        "reference": lambda: reference_layer(x, trajectory, csr),
        "pyg": lambda: convolution(x, edge_index, edge_attr=trajectory),
        "compiled": lambda: compiled(x, edge_index, edge_attr=trajectory),
        **exports(convolution, inputs),
    }
    with torch.inference_mode():
        results = {name: call() for name, call in calls.items()}
        exact = copy.deepcopy(convolution).double()
        truth = exact(x.double(), edge_index, edge_attr=trajectory.double())
        for name, result in results.items():
            error = float((result - truth).abs().max())
            if not error <= LARGEST_ERROR:
                raise SystemExit(
                    f"{name}: expected at most {LARGEST_ERROR} from float64, got {error}; times would be meaningless"
                )
    return calls


def exports(convolution: GATv2Conv, inputs: tuple[Tensor, ...]) -> dict[str, Callable[[], Tensor]]:
    """Return a GATv2Conv's exported forms, for these sizes."""

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = convolution

        def forward(self, x: Tensor, edge_index: Tensor, trajectory: Tensor) -> Tensor:
            result: Tensor = self.convolution(x, edge_index, edge_attr=trajectory)
            return result

    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        program = torch.export.export(Positional(), inputs)
        package = aoti_compile_and_package(program, package_path=f"{folder}/layer.pt2")
        aot: Callable[..., Tensor] = aoti_load_package(package)
        calls = {"aot": lambda: aot(*inputs)}
        if all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")):
            calls["onnx"] = onnx_session(program, inputs, f"{folder}/layer.onnx")
    return calls


def onnx_session(program: torch.export.ExportedProgram, inputs: tuple[Tensor, ...], path: str) -> Callable[[], Tensor]:
    """Return a layer in ONNX Runtime, with torch's number of threads."""
    import onnxruntime

    torch.onnx.export(program, inputs, path, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = {argument.name: tensor.numpy() for argument, tensor in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: torch.from_numpy(session.run(None, arrays)[0])


def network(nodes: int, edges: int) -> tuple[Callable[[], object], float]:
    """Return the shipped network over a simulated mesh in one part, and its multiply-adds."""
    checkpoint = load()
    spec = MeshSpec(services=nodes, calls_per_service=edges / nodes, seed=1)
    [snapshot] = Simulator(spec, snapshots=1).snapshots()
    task = prepare(checkpoint, Mesh(), snapshot, Options()).whole
    graph = batch_tasks([task], torch.device("cpu"))
    attended_calls = (len(graph.callers.indices) + len(graph.callees.indices)) / 2
    return lambda: checkpoint.network(graph), multiply_adds(nodes, graph.edge_index.shape[1], attended_calls)


def medians(calls: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Return each call's median, ms; the calls alternate."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 3):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {f"{name}_ms": round(statistics.median(durations), 3) for name, durations in times.items()}


def rows(nodes: int, edges: int, repeat: int) -> Iterator[Row]:
    """Measure inference, and forward with backward, for one size."""
    calls = contenders(nodes, edges)
    with torch.inference_mode():
        network_call, work = network(nodes, edges)
        inference = medians(calls, repeat)
        # In turns of their own: after another contender's pass, the first rows are not in the cache.
        isolated = medians({"network": network_call}, repeat) | medians({"product": fastest_product()}, repeat)
        isolated["peak_share"] = round(work / SIDE**3 * isolated["product_ms"] / isolated["network_ms"], 3)
    passes = {name: partial(_forward_and_backward, calls[name]) for name in ("layer", "pyg")}
    training = medians(passes, max(5, repeat // 5))
    yield {"pass": "inference", "nodes": nodes, "edges": edges, **inference, **ratios(inference), **isolated}
    yield {"pass": "forward and backward", "nodes": nodes, "edges": edges, **training, **ratios(training)}


def ratios(milliseconds: Mapping[str, float]) -> dict[str, float]:
    """Return the other layers' times over the layer's."""
    names = [name for name in ("reference", "pyg", "compiled", "aot", "onnx") if f"{name}_ms" in milliseconds]
    return {f"vs_{name}": round(milliseconds[f"{name}_ms"] / milliseconds["layer_ms"], 2) for name in names}


def _forward_and_backward(forward: Callable[[], Tensor]) -> None:
    torch.autograd.backward(forward().square().sum())


def conditions() -> Row:
    return {
        "backend": kernels.backend(),
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "pyg": torch_geometric.__version__,
        "commit": commit(),
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="NxE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=51)
    options = parser.parse_args()
    if not TUNED.items() <= os.environ.items():
        os.execve(sys.executable, sys.orig_argv, os.environ | TUNED)  # glibc reads them at the start
    torch.set_num_threads(options.threads)
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes]
    measurements = (row for nodes, edges in sizes for row in rows(nodes, edges, options.repeat))
    emit(({"benchmark": "kernels", **row, **conditions()} for row in measurements), options.json)


if __name__ == "__main__":
    main()
