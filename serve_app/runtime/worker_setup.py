"""What each process of Ray does before it gets an actor."""

import importlib
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

log = logging.getLogger(__name__)
PANDAS = "pandas"


class _NoPandas(MetaPathFinder):
    """Finds no pandas, as if it were not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == PANDAS:
            raise ModuleNotFoundError(f"No module named {PANDAS!r}", name=PANDAS)
        return None


@contextmanager
def without_pandas() -> Iterator[None]:
    """Let no import within the block find pandas, unless it is imported already. Later ones do."""
    if PANDAS in sys.modules:
        yield
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def set_up() -> None:
    """Prepare this process. Ray calls this in each of its processes that may get an actor.

    The watch of :mod:`serve_app.runtime.orphans` starts here, since Ray may give a process up before it has a replica.
    """
    import_serve()
    from serve_app.runtime import orphans  # imports Ray

    orphans.start_watch()


def import_serve() -> None:
    """Import Ray Serve and pyarrow without pandas.

    Both import pandas if it is installed, only to convert data frames. That takes 25 to 30 MiB and 0.3 s of CPU in each
    process of the service. Later imports of pandas work as usual, without conversions by these two. An error is logged
    and changes nothing else: Ray would start the process again and again.
    """
    if PANDAS in sys.modules:
        return
    try:
        with without_pandas():
            importlib.import_module("ray.serve")
            importlib.import_module("pyarrow").array([])  # looks for pandas, once
    except Exception:
        log.exception("Ray Serve could not be imported without pandas; importing it with pandas")
