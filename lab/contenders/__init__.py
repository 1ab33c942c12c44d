"""Detectors that TAGAE is compared with. Each is a module that defines the same three names.

    LABEL                                       its name in tables
    start(interval_seconds, warm_up) -> state   snapshot number ``warm_up``, counted from 1, gets the first verdict
    advance(state, snapshot) -> verdict, state  ``warming_up`` before that; never uses later snapshots

State is passed in and returned, so ``tests/contract.py`` checks contenders and the pipeline alike. Contenders do not
use labels: a limit is a fixed number, a quantile of the warm-up, or the published default.
"""

from importlib import import_module
from typing import Any, Protocol, cast

from model.snapshot import MeshSnapshot
from model.verdict import Verdict

NAMES = ("guarded", "own_limit", "n_sigma")


class Contender(Protocol):
    LABEL: str

    def start(self, interval_seconds: float, warm_up: int) -> Any: ...

    def advance(self, state: Any, snapshot: MeshSnapshot) -> tuple[Verdict, Any]: ...


def contender(name: str) -> Contender:
    """Import the module with this name.

    Raises:
        ValueError: if no such module exists.
    """
    if name not in NAMES:
        raise ValueError(f"contender: expected one of {', '.join(NAMES)}, got {name!r}")
    return cast(Contender, import_module(f"{__name__}.{name}"))
