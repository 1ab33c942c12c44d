"""Checks of the arguments of ops. Sizes and types are checked for every body, contents only where reading them is free.

The checks of sizes and types read no data, so they trace under ``torch.compile`` and ``torch.export``. The checks of
contents (``check_offsets``, ``check_positions``) are for the reference on a CPU. On another device they would copy to
the host during the pass; there torch's own index assertions apply.
"""

import torch
from torch import Tensor

from kernels.errors import InvalidArgument

FLOATS = (torch.float32, torch.float64)


def check_floats(op: str, **tensors: Tensor) -> None:
    """All are float32 or all are float64, on one device.

    Raises:
        InvalidArgument: naming the first that is not.
    """
    first, *_ = tensors
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise InvalidArgument(
                f"{op}: {name}: expected float32 or float64, came {tensor.dtype}; convert it first", argument=name
            )
        if tensor.dtype != tensors[first].dtype:
            raise InvalidArgument(
                f"{op}: {name}: expected {tensors[first].dtype} as {first} has, came {tensor.dtype}; convert one",
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
            raise InvalidArgument(
                f"{op}: {name}: expected int64, came {tensor.dtype}; use {name}.long()", argument=name
            )
        if tensor.dim() != 1:
            raise InvalidArgument(
                f"{op}: {name}: expected one dimension, came shape {list(tensor.shape)}; flatten it", argument=name
            )
        _check_device(op, name, tensor, *like)


def check_dims(op: str, name: str, tensor: Tensor, form: str, dims: int) -> None:
    """``tensor`` has ``dims`` dimensions; ``form`` is how its shape is written in the contract.

    Raises:
        InvalidArgument: if it has another number of them.
    """
    if tensor.dim() != dims:
        raise InvalidArgument(
            f"{op}: {name}: expected shape {form}, came {list(tensor.shape)}; reshape it to {dims} dimensions",
            argument=name,
        )


def check_size(op: str, name: str, tensor: Tensor, dim: int, size: int, reason: str) -> None:
    """Dimension ``dim`` of ``tensor`` is ``size``; ``reason`` says where that number comes from.

    Raises:
        InvalidArgument: if it is not.
    """
    if tensor.shape[dim] != size:
        raise InvalidArgument(
            f"{op}: {name}: expected size {size} in dimension {dim} ({reason}), came shape {list(tensor.shape)}; "
            f"make the two fit",
            argument=name,
        )


def check_filled(op: str, name: str, tensor: Tensor) -> None:
    """No dimension of ``tensor`` is zero.

    Raises:
        InvalidArgument: if one is.
    """
    if 0 in tensor.shape:
        raise InvalidArgument(
            f"{op}: {name}: expected no empty dimension, came shape {list(tensor.shape)}; give at least one of each",
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
            f"{op}: indptr: expected offsets from 0 to {slots} (the length of indices), came {first} to {last}; "
            "build it as the cumulated counts of slots, with a leading 0",
            argument="indptr",
        )
    counts = indptr.diff()
    if len(counts) and int(counts.min()) < 0:
        row = int((counts < 0).nonzero()[0])
        raise InvalidArgument(
            f"{op}: indptr: expected offsets that never fall, came {int(indptr[row])} before {int(indptr[row + 1])} at "
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
            f"{op}: {name}: expected rows of {target}, 0 to {rows - 1}, came {int(positions[slot])} at slot {slot}; "
            f"give {target} that row or leave the slot out",
            argument=name,
        )


def check_slots(op: str, key: Tensor, trajectory: Tensor, indptr: Tensor, indices: Tensor, edges: Tensor) -> None:
    """The contents of neighbourhoods; errors as of :func:`check_offsets` and :func:`check_positions`."""
    check_offsets(op, indptr, len(indices))
    check_positions(op, "indices", indices, "key", len(key))
    check_positions(op, "edges", edges, "trajectory", len(trajectory))


def check_ends(op: str, source: Tensor, target: Tensor, source_index: Tensor, target_index: Tensor) -> None:
    """The contents of edges' ends; errors as of :func:`check_positions`."""
    check_positions(op, "source_index", source_index, "source", len(source))
    check_positions(op, "target_index", target_index, "target", len(target))


def _check_device(op: str, name: str, tensor: Tensor, other: str, like: Tensor) -> None:
    if tensor.device != like.device:
        raise InvalidArgument(
            f"{op}: {name}: expected device {like.device} as {other} has, came {tensor.device}; move one of them",
            argument=name,
        )
