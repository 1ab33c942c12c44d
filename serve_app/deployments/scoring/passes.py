"""What a replica measures of each pass of the network."""

from collections.abc import Sequence

from model.scoring.joining import count_neighbours
from model.scoring.score import PartitionTask
from serve_app.metrics import INFERENCE, NEIGHBOURS_FETCHED, NEIGHBOURS_RECOMPUTED, Instruments


def observe_pass(instruments: Instruments, tasks: Sequence[PartitionTask], seconds: float, model: str) -> None:
    """Record one pass.

    Args:
        model: digest of the weights.
    """
    instruments.observe(INFERENCE, seconds, model_version=model)
    fetched, recomputed = count_neighbours(tasks)
    instruments.count(NEIGHBOURS_FETCHED, fetched)
    instruments.count(NEIGHBOURS_RECOMPUTED, recomputed)
