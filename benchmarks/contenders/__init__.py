"""Detectors that TAGAE is compared with: one module each, all with the same four names.

    LABEL                                       what tables call it
    SUMMARY                                     what it does, in a sentence
    start(interval_seconds, warm_up) -> state   the verdict of snapshot number ``warm_up``, from 1, is the first one
    advance(state, snapshot) -> verdict, state  ``warming_up`` before; a verdict knows nothing of later snapshots

State is passed in and returned, so ``tests/contract.py`` holds contenders to what it holds the pipeline to. Nothing of
a contender is fitted on labels: limits are a fixed number, a quantile of the warm-up, or the published default.
"""

from importlib import import_module
from typing import Any, Protocol, cast

from model.snapshot import MeshSnapshot
from model.verdict import Verdict

NAMES = (
    "guarded",
    "own_limit",
    "n_sigma",
    "graph_z",
    "adaptive_bands",
    "robust_bands",
    "isolation_forest",
    "ecod",
    "autoencoder",
    "baro",
)


class Contender(Protocol):
    """What a module of this folder offers."""

    LABEL: str
    SUMMARY: str

    def start(self, interval_seconds: float, warm_up: int) -> Any: ...

    def advance(self, state: Any, snapshot: MeshSnapshot) -> tuple[Verdict, Any]: ...


def contender(name: str) -> Contender:
    """The module of this name.

    Raises:
        ValueError: if there is none.
    """
    if name not in NAMES:
        raise ValueError(f"contender: expected one of {', '.join(NAMES)}, came {name!r}")
    return cast(Contender, import_module(f"{__name__}.{name}"))
