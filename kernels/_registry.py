"""Defines ``torch.ops.tagae.<op>``: the schemas, and for each op its reference body, its fake and its autograd formula.

The reference is registered under CompositeExplicitAutograd, the key that every device falls back to. A compiled body
registered for one device is more specific and takes precedence there. Everything else in this file applies to it
unchanged.
"""

import torch

from kernels import autograd, fake, reference
from kernels.errors import UnavailableBackend
from kernels.library import REFERENCE, Backend, check_apart, choose_backend, choose_cuda, read_setting
from kernels.schemas import SCHEMAS


def backend(device: str = "cpu") -> str:
    """Return which bodies run on a ``device``: ``cpu-avx512``, ``cpu-avx2``, ``cpu-neon``, ``cuda``, or
    ``reference``, the PyTorch form.

    Health and every benchmark report it.
    """
    return _BACKENDS[device].name


def backend_reason(device: str = "cpu") -> str | None:
    """Return why the reference runs on a ``device``; None if compiled bodies run."""
    return _BACKENDS[device].reason


def load_cuda() -> None:
    """Register the compiled bodies for a GPU in this process, if torch sees a GPU and they pass a check on it. If they
    do not, check the PyTorch form of the ops, which then runs there.

    Each check starts a process and takes a few seconds, so it is done only once. Processes that use only the CPU do not
    call this, and leave CUDA alone.

    Raises:
        UnavailableBackend: no form of the ops passes, so nothing should be scored on this GPU; or
            ``TAGAE_KERNELS=require``, and the compiled bodies cannot run.
    """
    if _BACKENDS["cuda"] is _NOT_LOADED:
        _BACKENDS["cuda"] = _choose_on_gpu()
    if not _BACKENDS["cuda"].works:
        raise UnavailableBackend(f"{_BACKENDS['cuda'].reason}")


def _choose_on_gpu() -> Backend:
    if not torch.cuda.is_available():
        return Backend(REFERENCE, "torch sees no GPU")
    chosen = choose_cuda(read_setting())
    failure = check_apart("cuda") if chosen.name == REFERENCE else None
    return Backend(REFERENCE, f"the check of the ops on the GPU {failure}", works=False) if failure else chosen


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
_NOT_LOADED = Backend(REFERENCE, "load_cuda() was not called")
_BACKENDS = {"cpu": choose_backend(read_setting()), "cuda": _NOT_LOADED}  # by kind of device
