"""Defines ``torch.ops.tagae.<op>``: the schemas, and for each op its reference body, its fake and its autograd formula.

The reference is registered under CompositeExplicitAutograd, the key that every device falls back to. A compiled body
registered for one device is more specific and takes precedence there. Everything else in this file applies to it
unchanged.
"""

import torch

from kernels import autograd, fake, reference
from kernels.library import choose_backend, read_setting
from kernels.schemas import SCHEMAS


def backend() -> str:
    """Return which bodies run on a CPU: ``cpu-avx512``, ``cpu-avx2``, or ``reference``, the PyTorch form.

    Health and every benchmark report it.
    """
    return _BACKEND.name


def backend_reason() -> str | None:
    """Return why the reference runs; None if compiled bodies run."""
    return _BACKEND.reason


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


_LIBRARY = _define()  # kept: torch forgets the ops when their library is collected
_BACKEND = choose_backend(read_setting())
