"""Reads training runs in several processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

import torch

from lab.training.dataset import TrainingRun
from lab.training.train import ForEach, in_turn

T = TypeVar("T")


@contextmanager
def processes(count: int) -> Iterator[ForEach]:
    """Read runs in ``count`` processes; one process is the current one."""
    if count == 1:
        yield in_turn
        return
    with ProcessPoolExecutor(count, get_context("spawn"), torch.set_num_threads, (1,)) as pool:

        def each(function: Callable[[TrainingRun], T], runs: Sequence[TrainingRun]) -> Iterator[T]:
            return pool.map(function, runs)

        yield each
