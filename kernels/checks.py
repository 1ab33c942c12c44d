"""Checks of the ops' arguments: sizes and types for every body and trace, contents only where reading them is free.

The PyTorch form and the traces run these checks. A compiled body has quicker checks of its own. When it refuses its
arguments, ``ops.py`` runs the checks here to say which argument is wrong.

The checks of sizes and types read no data, so they trace under ``torch.compile`` and ``torch.export``. The checks of
contents are for a CPU. On another device they would copy to the host during the pass; there torch's own index
assertions apply.
"""

from math import prod

import torch
from torch import Tensor

from kernels.errors import InvalidArgument

FLOATS = (torch.float32, torch.float64)
_SLOTS = {"indptr": "N + 1", "indices": "E", "edges": "E"}
_TRAJECTORIES = {"trajectory": "E_total, T", "trajectory_weight": "H*C, T", "attention": "H, C"}
# Of each op, the sizes of its tensors by name, in the order of its arguments. The first tensor with a letter sets it.
SIZES: dict[str, dict[str, str]] = {
    "attend": {"query": "N, H*C", "key": "M, H*C", **_TRAJECTORIES, **_SLOTS},
    "project_and_attend": {
        "x": "N, I",
        "query_weight": "H*C, I",
        "query_bias": "H*C",
        "key_weight": "H*C, I",
        "key_bias": "H*C",
        **_TRAJECTORIES,
        "trajectory_value": "H, C, T",
        **_SLOTS,
    },
    "join_sides": {
        "x": "N, I",
        "weight": "O, I",
        "bias": "O",
        "callers": "N, O",
        "callees": "N, O",
        "norm_weight": "O",
        "norm_bias": "O",
    },
    "perceptron": {
        "rows": "R, I",
        "others": "M, J",
        "positions": "R",
        "hidden_weight": "K, I + J",
        "hidden_bias": "K",
        "weight": "O, K",
        "bias": "O",
    },
    "edge_dot": {"source": "N, D", "target": "M, D", "source_index": "E", "target_index": "E"},
}
RESULTS = {
    "attend": ("N, H*C", "N, H, T"),
    "project_and_attend": ("N, H*C",),
    "join_sides": ("N, O",),
    "perceptron": ("R, O",),
    "edge_dot": ("E",),
}
# Tensors that come before the others of their op: it is the others that have to fit.
_FIRST = ("attention", "trajectory_weight", "norm_weight", "hidden_bias", "bias")
_FILLED = frozenset({"attention", "trajectory_weight", "norm_weight"})  # no dimension may be empty
# Of each op, its index tensors with the table whose rows they name; offsets have none.
INDICES: dict[str, dict[str, str]] = {
    "attend": {"indptr": "", "indices": "key", "edges": "trajectory"},
    "project_and_attend": {"indptr": "", "indices": "x", "edges": "trajectory"},
    "join_sides": {},
    "perceptron": {"positions": "others"},
    "edge_dot": {"source_index": "source", "target_index": "target"},
}
Sizes = dict[str, int]


def check_arguments(op: str, *tensors: Tensor | None) -> Sizes:
    """Check types and sizes of an op's tensors, in its order, and return the sizes by their letters.

    Raises:
        InvalidArgument: naming the first that does not fit.
    """
    by_name = {name: tensor for name, tensor in zip(SIZES[op], tensors, strict=True) if tensor is not None}
    first = next(iter(by_name))
    for name, tensor in by_name.items():
        _check_type(op, name, tensor, first, by_name[first], is_index=name in INDICES[op])
    forms = dict(SIZES[op])
    sizes: Sizes = {}
    origin: dict[str, str] = {}  # of a letter, the tensor that set it
    if op == "perceptron" and "others" not in by_name:
        sizes["J"], forms["positions"] = 0, "no others"
    elif op == "perceptron" and "positions" not in by_name:
        forms["others"] = "R, J"
    for name in sorted(
        by_name, key=lambda tensor_name: _FIRST.index(tensor_name) if tensor_name in _FIRST else len(_FIRST)
    ):
        _check_sizes(op, name, by_name[name], forms[name].split(", "), sizes, origin)
    return sizes


def check_contents(op: str, *tensors: Tensor | None) -> None:
    """Check that index tensors name rows that exist. Reads the data; does nothing off the CPU.

    Args:
        op: with these tensors, whose sizes fit.
        tensors: in the order of its arguments.

    Raises:
        InvalidArgument: naming the first that does not.
    """
    by_name = {name: tensor for name, tensor in zip(SIZES[op], tensors, strict=True) if tensor is not None}
    for name, table in INDICES[op].items():
        if name not in by_name or by_name[name].device.type != "cpu":
            continue
        if table:
            _check_positions(op, name, by_name[name], table, by_name[table].shape[0])
        else:
            _check_offsets(op, by_name[name], by_name["indices"].shape[0])


def size_of(form: str, sizes: Sizes) -> int:
    """Return the size that a form says: a letter, ``H*C``, ``I + J`` or ``N + 1``."""
    return sum(
        prod(sizes[factor] if factor in sizes else int(factor) for factor in term.split("*"))
        for term in form.split(" + ")
    )


def _check_type(op: str, name: str, tensor: Tensor, first: str, like: Tensor, *, is_index: bool) -> None:
    """Floats are float32 or float64, or on a GPU bfloat16, all of them the same; index tensors are int64 vectors."""
    if is_index:
        if tensor.dtype != torch.int64:
            raise InvalidArgument(f"{op}: {name}: expected int64, got {tensor.dtype}; use {name}.long()", argument=name)
        if tensor.dim() != 1:
            raise InvalidArgument(
                f"{op}: {name}: expected one dimension, got shape {list(tensor.shape)}; flatten it", argument=name
            )
    else:
        if tensor.dtype not in FLOATS and (tensor.dtype != torch.bfloat16 or tensor.device.type == "cpu"):
            raise InvalidArgument(
                f"{op}: {name}: expected float32 or float64, got {tensor.dtype}; convert it first", argument=name
            )
        if tensor.dtype != like.dtype:
            raise InvalidArgument(
                f"{op}: {name}: expected {like.dtype} as {first} has, got {tensor.dtype}; convert one", argument=name
            )
    if tensor.device != like.device:
        raise InvalidArgument(
            f"{op}: {name}: expected device {like.device} as {first} has, got {tensor.device}; move one of them",
            argument=name,
        )


def _check_sizes(op: str, name: str, tensor: Tensor, forms: list[str], sizes: Sizes, origin: dict[str, str]) -> None:
    """Check the dimensions of one tensor, and let it set the sizes that are still unknown, in place."""
    if tensor.dim() != len(forms):
        raise InvalidArgument(
            f"{op}: {name}: expected shape [{', '.join(forms)}], got {list(tensor.shape)}; reshape it to "
            f"{len(forms)} dimensions",
            argument=name,
        )
    if name in _FILLED and 0 in tensor.shape:
        raise InvalidArgument(
            f"{op}: {name}: expected no empty dimension, got shape {list(tensor.shape)}; give at least one of each",
            argument=name,
        )
    for dim, form in enumerate(forms):
        if form.isidentifier() and form not in sizes:
            sizes[form], origin[form] = tensor.shape[dim], name
            continue
        size = 0 if form == "no others" else size_of(form, sizes)
        if tensor.shape[dim] != size:
            source = " and ".join(dict.fromkeys(of for letter, of in origin.items() if letter in form))
            raise InvalidArgument(
                f"{op}: {name}: expected size {size} in dimension {dim} ({form}{source and f' of {source}'}), got "
                f"shape {list(tensor.shape)}; make the two match",
                argument=name,
            )


def _check_offsets(op: str, indptr: Tensor, slots: int) -> None:
    """Offsets rise from 0 to ``slots``."""
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


def _check_positions(op: str, name: str, positions: Tensor, table: str, rows: int) -> None:
    """Each position is a row of a table."""
    if not len(positions):
        return
    low, high = (int(x) for x in torch.aminmax(positions))
    if low < 0 or high >= rows:
        slot = int(((positions < 0) | (positions >= rows)).nonzero()[0])
        raise InvalidArgument(
            f"{op}: {name}: expected rows of {table}, 0 to {rows - 1}, got {int(positions[slot])} at slot {slot}; "
            f"give {table} that row or leave the slot out",
            argument=name,
        )
