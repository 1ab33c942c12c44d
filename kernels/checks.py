"""Checks of the arguments of ops: sizes and types for every body and trace, contents only where reading them is free.

The reference bodies and the fakes run these checks. A compiled body has quicker checks of its own. When it refuses its
arguments, ``ops.py`` runs the checks here to say which argument is wrong.

The checks of sizes and types read no data, so they trace under ``torch.compile`` and ``torch.export``. The checks of
contents (``check_offsets``, ``check_positions``) are for a CPU. On another device they would copy to the host during
the pass; there torch's own index assertions apply.
"""

import torch
from torch import Tensor

from kernels.errors import InvalidArgument

FLOATS = (torch.float32, torch.float64)


def check_attend(
    query: Tensor,
    key: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
) -> None:
    """Sizes and types of the arguments of :func:`kernels.ops.attend`.

    Raises:
        InvalidArgument: naming the first that does not fit.
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
    check_dims(op, "query", query, "[N, H*C]", 2)
    check_dims(op, "key", key, "[M, H*C]", 2)
    channels = _check_neighbourhoods(
        op, ("query", query), trajectory, trajectory_weight, attention, indptr, indices, edges
    )
    check_size(op, "query", query, 1, channels, "H*C of attention")
    check_size(op, "key", key, 1, channels, "H*C of attention")


def check_project_and_attend(
    x: Tensor,
    query_weight: Tensor,
    query_bias: Tensor,
    key_weight: Tensor,
    key_bias: Tensor,
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    trajectory_value: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
) -> None:
    """Sizes and types of the arguments of :func:`kernels.ops.project_and_attend`.

    Raises:
        InvalidArgument: naming the first that does not fit.
    """
    op = "project_and_attend"
    check_floats(
        op,
        x=x,
        query_weight=query_weight,
        query_bias=query_bias,
        key_weight=key_weight,
        key_bias=key_bias,
        trajectory=trajectory,
        trajectory_weight=trajectory_weight,
        attention=attention,
        trajectory_value=trajectory_value,
    )
    check_dims(op, "x", x, "[N, I]", 2)
    check_dims(op, "trajectory_value", trajectory_value, "[H, C, T]", 3)
    channels = _check_neighbourhoods(op, ("x", x), trajectory, trajectory_weight, attention, indptr, indices, edges)
    _check_linear(op, "query_", query_weight, query_bias, channels, "H*C of attention", x.shape[1], "I of x")
    _check_linear(op, "key_", key_weight, key_bias, channels, "H*C of attention", x.shape[1], "I of x")
    check_size(op, "trajectory_value", trajectory_value, 0, attention.shape[0], "H of attention")
    check_size(op, "trajectory_value", trajectory_value, 1, attention.shape[1], "C of attention")
    check_size(op, "trajectory_value", trajectory_value, 2, trajectory.shape[1], "T of trajectory")


def check_join_sides(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    callers: Tensor,
    callees: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
) -> None:
    """Sizes and types of the arguments of :func:`kernels.ops.join_sides`.

    Raises:
        InvalidArgument: naming the first that does not fit.
    """
    op = "join_sides"
    check_floats(
        op,
        x=x,
        weight=weight,
        bias=bias,
        callers=callers,
        callees=callees,
        norm_weight=norm_weight,
        norm_bias=norm_bias,
    )
    check_dims(op, "x", x, "[N, I]", 2)
    check_dims(op, "norm_weight", norm_weight, "[O]", 1)
    check_filled(op, "norm_weight", norm_weight)
    outputs = norm_weight.shape[0]
    _check_linear(op, "", weight, bias, outputs, "O of norm_weight", x.shape[1], "I of x")
    check_dims(op, "norm_bias", norm_bias, "[O]", 1)
    check_size(op, "norm_bias", norm_bias, 0, outputs, "O of norm_weight")
    for name, side in (("callers", callers), ("callees", callees)):
        check_dims(op, name, side, "[N, O]", 2)
        check_size(op, name, side, 0, x.shape[0], "N rows of x")
        check_size(op, name, side, 1, outputs, "O of norm_weight")


def check_perceptron(
    rows: Tensor,
    others: Tensor | None,
    positions: Tensor | None,
    hidden_weight: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
) -> None:
    """Sizes and types of the arguments of :func:`kernels.ops.perceptron`.

    Raises:
        InvalidArgument: naming the first that does not fit.
    """
    op = "perceptron"
    floats = {"others": others} if others is not None else {}
    check_floats(
        op, rows=rows, **floats, hidden_weight=hidden_weight, hidden_bias=hidden_bias, weight=weight, bias=bias
    )
    check_dims(op, "rows", rows, "[R, I]", 2)
    inputs, count = rows.shape[1], rows.shape[0]
    if others is not None:
        check_dims(op, "others", others, "[M, J]", 2)
        inputs += others.shape[1]
        if positions is None:
            check_size(op, "others", others, 0, count, "R rows of rows; else give positions")
    if positions is not None:
        check_indices(op, ("rows", rows), positions=positions)
        check_size(op, "positions", positions, 0, count if others is not None else 0, "R rows of rows, with others")
    check_dims(op, "hidden_bias", hidden_bias, "[K]", 1)
    check_dims(op, "bias", bias, "[O]", 1)
    hidden = hidden_bias.shape[0]
    _check_linear(op, "hidden_", hidden_weight, hidden_bias, hidden, "K of hidden_bias", inputs, "I + J")
    _check_linear(op, "", weight, bias, bias.shape[0], "O of bias", hidden, "K of hidden_bias")


def check_edge_dot(source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> None:
    """Sizes and types of the arguments of :func:`kernels.ops.edge_dot`.

    Raises:
        InvalidArgument: naming the first that does not fit.
    """
    op = "edge_dot"
    check_floats(op, source=source, target=target)
    check_indices(op, ("source", source), source_index=source_index, target_index=target_index)
    check_dims(op, "source", source, "[N, D]", 2)
    check_dims(op, "target", target, "[M, D]", 2)
    check_size(op, "target", target, 1, source.shape[1], "D of source")
    check_size(op, "target_index", target_index, 0, source_index.shape[0], "E, the length of source_index")


def check_floats(op: str, **tensors: Tensor) -> None:
    """All are float32 or all are float64, or on a GPU all bfloat16, on one device.

    Raises:
        InvalidArgument: naming the first that is not.
    """
    first, *_ = tensors
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS and (tensor.dtype != torch.bfloat16 or tensor.device.type == "cpu"):
            raise InvalidArgument(
                f"{op}: {name}: expected float32 or float64, got {tensor.dtype}; convert it first", argument=name
            )
        if tensor.dtype != tensors[first].dtype:
            raise InvalidArgument(
                f"{op}: {name}: expected {tensors[first].dtype} as {first} has, got {tensor.dtype}; convert one",
                argument=name,
            )
        _check_device(op, name, tensor, first, tensors[first])


def check_indices(op: str, like: tuple[str, Tensor], **tensors: Tensor) -> None:
    """All are int64 vectors on the device of ``like`` (its name and itself).

    Raises:
        InvalidArgument: naming the first that is not.
    """
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int64:
            raise InvalidArgument(f"{op}: {name}: expected int64, got {tensor.dtype}; use {name}.long()", argument=name)
        if tensor.dim() != 1:
            raise InvalidArgument(
                f"{op}: {name}: expected one dimension, got shape {list(tensor.shape)}; flatten it", argument=name
            )
        _check_device(op, name, tensor, *like)


def check_dims(op: str, name: str, tensor: Tensor, form: str, dims: int) -> None:
    """``tensor`` has ``dims`` dimensions; ``form`` is how its shape is written in the contract.

    Raises:
        InvalidArgument: if it has another number of them.
    """
    if tensor.dim() != dims:
        raise InvalidArgument(
            f"{op}: {name}: expected shape {form}, got {list(tensor.shape)}; reshape it to {dims} dimensions",
            argument=name,
        )


def check_size(op: str, name: str, tensor: Tensor, dim: int, size: int, reason: str) -> None:
    """Dimension ``dim`` of ``tensor`` is ``size``; ``reason`` says where that number comes from.

    Raises:
        InvalidArgument: if it is not.
    """
    if tensor.shape[dim] != size:
        raise InvalidArgument(
            f"{op}: {name}: expected size {size} in dimension {dim} ({reason}), got shape {list(tensor.shape)}; "
            f"make the two match",
            argument=name,
        )


def check_filled(op: str, name: str, tensor: Tensor) -> None:
    """No dimension of ``tensor`` is zero.

    Raises:
        InvalidArgument: if one is.
    """
    if 0 in tensor.shape:
        raise InvalidArgument(
            f"{op}: {name}: expected no empty dimension, got shape {list(tensor.shape)}; give at least one of each",
            argument=name,
        )


def check_offsets(op: str, indptr: Tensor, slots: int) -> None:
    """``indptr`` rises from 0 to ``slots``. Reads the data; does nothing off the CPU.

    Raises:
        InvalidArgument: if it starts or ends elsewhere, or falls.
    """
    if indptr.device.type != "cpu":
        return
    first, last = int(indptr[0]), int(indptr[-1])
    if (first, last) != (0, slots):
        raise InvalidArgument(
            f"{op}: indptr: expected offsets from 0 to {slots} (the length of indices), got {first} to {last}; "
            "build it as the cumulated counts of slots, with a leading 0",
            argument="indptr",
        )
    counts = indptr.diff()
    if len(counts) and int(counts.min()) < 0:
        row = int((counts < 0).nonzero()[0])
        raise InvalidArgument(
            f"{op}: indptr: expected offsets that never fall, got {int(indptr[row])} before {int(indptr[row + 1])} at "
            f"position {row}; build it as the cumulated counts of slots",
            argument="indptr",
        )


def check_positions(op: str, name: str, positions: Tensor, target: str, rows: int) -> None:
    """Each of ``positions`` is a row of ``target``, which has ``rows``. Reads the data; does nothing off the CPU.

    Raises:
        InvalidArgument: naming the first that is not.
    """
    if positions.device.type != "cpu" or not len(positions):
        return
    low, high = (int(x) for x in torch.aminmax(positions))
    if low < 0 or high >= rows:
        slot = int(((positions < 0) | (positions >= rows)).nonzero()[0])
        raise InvalidArgument(
            f"{op}: {name}: expected rows of {target}, 0 to {rows - 1}, got {int(positions[slot])} at slot {slot}; "
            f"give {target} that row or leave the slot out",
            argument=name,
        )


def check_slots(op: str, key: Tensor, trajectory: Tensor, indptr: Tensor, indices: Tensor, edges: Tensor) -> None:
    """The contents of neighbourhoods; errors as in :func:`check_offsets` and :func:`check_positions`."""
    check_offsets(op, indptr, len(indices))
    check_positions(op, "indices", indices, "key", len(key))
    check_positions(op, "edges", edges, "trajectory", len(trajectory))


def check_ends(op: str, source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> None:
    """The contents of edges' ends; errors as in :func:`check_positions`."""
    check_positions(op, "source_index", source_index, "source", len(source))
    check_positions(op, "target_index", target_index, "target", len(target))


def _check_device(op: str, name: str, tensor: Tensor, other: str, like: Tensor) -> None:
    if tensor.device != like.device:
        raise InvalidArgument(
            f"{op}: {name}: expected device {like.device} as {other} has, got {tensor.device}; move one of them",
            argument=name,
        )


def _check_neighbourhoods(
    op: str,
    targets: tuple[str, Tensor],
    trajectory: Tensor,
    trajectory_weight: Tensor,
    attention: Tensor,
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
) -> int:
    """Sizes and types that both attention ops have; ``targets`` with its name. Returns H*C."""
    name, rows = targets
    check_indices(op, targets, indptr=indptr, indices=indices, edges=edges)
    check_dims(op, "trajectory", trajectory, "[E_total, T]", 2)
    check_dims(op, "trajectory_weight", trajectory_weight, "[H*C, T]", 2)
    check_dims(op, "attention", attention, "[H, C]", 2)
    check_filled(op, "attention", attention)
    check_filled(op, "trajectory_weight", trajectory_weight)
    channels = attention.shape[0] * attention.shape[1]
    check_size(op, "trajectory_weight", trajectory_weight, 0, channels, "H*C of attention")
    check_size(op, "trajectory", trajectory, 1, trajectory_weight.shape[1], "T of trajectory_weight")
    check_size(op, "indptr", indptr, 0, rows.shape[0] + 1, f"N + 1, N rows of {name}")
    check_size(op, "edges", edges, 0, indices.shape[0], "E, the length of indices")
    return channels


def _check_linear(
    op: str, prefix: str, weight: Tensor, bias: Tensor, outputs: int, of_outputs: str, inputs: int, of_inputs: str
) -> None:
    """Sizes of ``<prefix>weight`` and ``<prefix>bias``, and where they come from."""
    check_dims(op, f"{prefix}weight", weight, "[outputs, inputs]", 2)
    check_dims(op, f"{prefix}bias", bias, "[outputs]", 1)
    check_size(op, f"{prefix}weight", weight, 0, outputs, of_outputs)
    check_size(op, f"{prefix}weight", weight, 1, inputs, of_inputs)
    check_size(op, f"{prefix}bias", bias, 0, outputs, of_outputs)
