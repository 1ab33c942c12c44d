"""The ops: one thin function each, which checks sizes and types and calls ``torch.ops.tagae.<op>``.

Shapes: N nodes as targets, M nodes as neighbours (M = N in a whole mesh), E edges attended to, H heads, C channels a
head, T size of the temporal embedding, D embedding. Neighbourhoods are CSR: the slots of node i are
``indptr[i]`` to ``indptr[i + 1]`` of ``indices``. Index tensors are int64; the others all float32 or all float64; all
on one device. Inputs need not be contiguous and are never changed. Contents of index tensors are checked on a CPU only.

Every op has a first derivative (a second one raises ``NotDifferentiable``), runs under ``torch.inference_mode``, and
traces under ``torch.compile(fullgraph=True)`` and ``torch.export`` as one node of the graph.

Determinism: on a CPU the same input gives the same bits, forwards and backwards, at one thread count. On a GPU the
backwards adds with atomics in no fixed order unless ``torch.use_deterministic_algorithms(True)`` is set.
"""

import torch
from torch import Tensor

from kernels import _registry as _registry  # defines torch.ops.tagae
from kernels.checks import check_dims, check_filled, check_floats, check_indices, check_size


def attend(
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    negative_slope: float = 0.2,
) -> tuple[Tensor, Tensor]:
    """One pass of graph attention in GATv2 form with a temporal embedding per edge.

    For target i, its slot s with neighbour ``j = indices[s]`` and edge ``e = edges[s]``, and head h::

        u       = query[i] + key[j] + trajectory_weight @ trajectory[e]       viewed [H, C]
        logit_h = sum_c attention[h, c] * leaky_relu(u[h, c], negative_slope)
        alpha_h = softmax of logit_h over the slots of i
        values[i, h]       = sum_s alpha_h * key[j, h]
        trajectories[i, h] = sum_s alpha_h * trajectory[e]

    A node without slots gets zeros. ``trajectories`` is what lets the temporal embedding enter the value too without
    an ``[E, H, C]`` tensor: the caller multiplies it by a value weight, since sum alpha (W t) = W sum alpha t.

    Source: Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.

    Args:
        query: ``[N, H*C]``, projected targets.
        key: ``[M, H*C]``, projected neighbours.
        trajectory: ``[E_total, T]``, temporal embeddings; it may have rows that no slot names.
        trajectory_weight: ``[H*C, T]``.
        attention: ``[H, C]``; H, C and T at least 1.
        indptr: ``[N + 1]``.
        indices: ``[E]``, rows of ``key``.
        edges: ``[E]``, rows of ``trajectory``.
        negative_slope: of the LeakyReLU.

    Returns:
        ``values [N, H*C]`` and ``trajectories [N, H, T]``, contiguous.

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "attend"
    check_floats(
        op,
        query=query,
        key=key,
        trajectory=trajectory,
        trajectory_weight=trajectory_weight,
        attention=attention,
    )
    check_indices(op, ("query", query), indptr=indptr, indices=indices, edges=edges)
    check_dims(op, "query", query, "[N, H*C]", 2)
    check_dims(op, "key", key, "[M, H*C]", 2)
    check_dims(op, "trajectory", trajectory, "[E_total, T]", 2)
    check_dims(op, "trajectory_weight", trajectory_weight, "[H*C, T]", 2)
    check_dims(op, "attention", attention, "[H, C]", 2)
    check_filled(op, "attention", attention)
    check_filled(op, "trajectory_weight", trajectory_weight)
    channels = attention.shape[0] * attention.shape[1]
    check_size(op, "query", query, 1, channels, "H*C of attention")
    check_size(op, "key", key, 1, channels, "H*C of attention")
    check_size(op, "trajectory_weight", trajectory_weight, 0, channels, "H*C of attention")
    check_size(op, "trajectory", trajectory, 1, trajectory_weight.shape[1], "T of trajectory_weight")
    check_size(op, "indptr", indptr, 0, query.shape[0] + 1, "N + 1, N rows of query")
    check_size(op, "edges", edges, 0, indices.shape[0], "E, the length of indices")
    result: tuple[Tensor, Tensor] = torch.ops.tagae.attend(
        query, key, trajectory, trajectory_weight, attention, indptr, indices, edges, negative_slope
    )
    return result


def edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> Tensor:
    """Directed inner products: ``out[e] = <source[source_index[e]], target[target_index[e]]>``.

    The logits of a directed decoder: separate embeddings as source and as target tell A->B from B->A.

    Args:
        source: ``[N, D]``.
        target: ``[M, D]``; usually M = N.
        source_index: ``[E]``, rows of ``source``.
        target_index: ``[E]``, rows of ``target``.

    Returns:
        ``[E]``.

    Raises:
        InvalidArgument: naming the argument that does not fit.
    """
    op = "edge_dot"
    check_floats(op, source=source, target=target)
    check_indices(op, ("source", source), source_index=source_index, target_index=target_index)
    check_dims(op, "source", source, "[N, D]", 2)
    check_dims(op, "target", target, "[M, D]", 2)
    check_size(op, "target", target, 1, source.shape[1], "D of source")
    check_size(op, "target_index", target_index, 0, source_index.shape[0], "E, the length of source_index")
    result: Tensor = torch.ops.tagae.edge_dot(source, target, source_index, target_index)
    return result
