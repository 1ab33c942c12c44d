"""Ways to run the network on a GPU: plain launches, a CUDA graph of each size, and ``torch.compile``.

All but plain launches are for graphs that were padded to few sizes (:mod:`benchmarks.gpu.buckets`).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu.buckets import Bucket, graph_of, size_of, tensors_of
from model.network.contract import MeshGraph, MeshNetwork

Outputs = tuple[Tensor, ...]
Pass = Callable[[MeshGraph], Outputs]


def forward(network: MeshNetwork, graph: MeshGraph) -> Outputs:
    """One pass, as tensors."""
    found = network(graph)
    return found.embeddings, found.node_expected, found.edge_expected, found.structure, found.root_cause_logit


@torch.inference_mode()
def plain(network: MeshNetwork, graph: MeshGraph) -> Outputs:
    """One pass without gradients."""
    return forward(network, graph)


class CudaGraphs:
    """Replays a CUDA graph for each size of inputs; the first inputs of a size capture it.

    Args:
        network: on the GPU.
    """

    def __init__(self, network: MeshNetwork) -> None:
        self._network = network
        self._captured: dict[Bucket, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Outputs]] = {}

    @torch.inference_mode()
    def __call__(self, graph: MeshGraph) -> Outputs:
        """The outputs are valid until the next call."""
        size, given = size_of(graph), tensors_of(graph)
        if size not in self._captured:
            self._captured[size] = self._capture(given)
        graph_of_size, inputs, outputs = self._captured[size]
        for place, tensor in zip(inputs, given, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph_of_size.replay()
        return outputs

    def _capture(self, given: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Outputs]:
        inputs = tuple(tensor.clone() for tensor in given)
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # cuBLAS and the allocator prepare before the capture
            for _ in range(3):
                forward(self._network, graph_of(*inputs))
        torch.cuda.current_stream().wait_stream(beside)
        graph_of_size = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph_of_size):
            outputs = forward(self._network, graph_of(*inputs))
        return graph_of_size, inputs, outputs


def compile_pass(network: MeshNetwork, mode: str, backend: str = "inductor") -> Pass:
    """The network through ``torch.compile``, once for each size."""

    def run(*tensors: Tensor) -> Outputs:
        return forward(network, graph_of(*tensors))

    of_inductor = mode if backend == "inductor" else None
    fast: Callable[..., Outputs] = torch.compile(run, dynamic=False, backend=backend, mode=of_inductor)

    @torch.inference_mode()
    def call(graph: MeshGraph) -> Outputs:
        return fast(*tensors_of(graph))

    return call


def crop(outputs: Outputs, graph: MeshGraph) -> Outputs:
    """The rows of a graph, from the outputs of its padded form."""
    embeddings, nodes, edges, structure, blame = outputs
    services, calls = len(graph.nodes), len(graph.edges)
    return embeddings[:services], nodes[:services], edges[:calls], structure[:calls], blame[:services]
