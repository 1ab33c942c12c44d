"""What each process of Ray does before it gets an actor."""

import importlib
import sys

PANDAS = "pandas"


def import_serve() -> None:
    """Import Ray Serve without pandas. Ray calls this in each process of the Ray that ``tagae serve`` starts.

    Serve imports pandas if it is installed, only to encode data frames as JSON. That takes 25 to 30 MiB and .3 s of CPU
    in each process of the service. Later imports of pandas work as usual.
    """
    if PANDAS in sys.modules:
        return
    sys.modules[PANDAS] = None  # type: ignore[assignment]  # Python's way to make an import fail
    try:
        importlib.import_module("ray.serve")
    finally:
        del sys.modules[PANDAS]
