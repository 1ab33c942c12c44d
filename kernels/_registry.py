"""Defines ``torch.ops.tagae.<op>``: the schemas, and for each op its reference body, its fake and its autograd formula.

The reference is registered under CompositeExplicitAutograd, the key that every device falls back to. A compiled body
registered for one device is more specific and takes precedence there. Everything else in this file applies to it
unchanged.
"""

import os

import torch

from kernels import autograd, fake, reference
from kernels.errors import UnavailableBackend

SCHEMAS = {
    "attend": (
        "(Tensor query, Tensor key, Tensor trajectory, Tensor trajectory_weight, Tensor attention, Tensor indptr, "
        "Tensor indices, Tensor edges, float negative_slope) -> (Tensor, Tensor)"
    ),
    "attend_backward": (
        "(Tensor grad_values, Tensor grad_trajectories, Tensor query, Tensor key, Tensor trajectory, "
        "Tensor trajectory_weight, Tensor attention, Tensor indptr, Tensor indices, Tensor edges, "
        "float negative_slope) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
    "edge_dot": "(Tensor source, Tensor target, Tensor source_index, Tensor target_index) -> Tensor",
    "edge_dot_backward": (
        "(Tensor grad, Tensor source, Tensor target, Tensor source_index, Tensor target_index) -> (Tensor, Tensor)"
    ),
}


def choose_backend(setting: str | None) -> str:
    """Return the bodies that run under ``TAGAE_KERNELS=setting`` (None or empty: not set).

    Raises:
        UnavailableBackend: compiled bodies are required, which this version does not have, or the value is unknown.
    """
    if not setting or setting == "reference":
        return "reference"
    if setting == "require":
        raise UnavailableBackend(
            "TAGAE_KERNELS=require: expected a compiled library of the tagae ops, came none: this version has only "
            "their PyTorch form; unset TAGAE_KERNELS or set it to reference"
        )
    raise UnavailableBackend(
        f"TAGAE_KERNELS: expected reference, require, or not set, came {setting!r}; unset it to let tagae choose"
    )


def backend() -> str:
    """Return which bodies run: ``reference``, the PyTorch form. Health and every benchmark report it."""
    return _BACKEND


def _define() -> torch.library.Library:
    library = torch.library.Library("tagae", "DEF")  # type: ignore[no-untyped-call]
    for op, schema in SCHEMAS.items():
        name = f"tagae::{op}"
        setup_context, backward = autograd.FORMULAS[op]
        library.define(op + schema, tags=torch.Tag.pt2_compliant_tag)  # type: ignore[no-untyped-call]
        library.impl(op, getattr(reference, op), "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(name, getattr(fake, op), lib=library)
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
    return library


_BACKEND = choose_backend(os.environ.get("TAGAE_KERNELS"))
_LIBRARY = _define()  # kept: torch forgets the ops when their library is collected
