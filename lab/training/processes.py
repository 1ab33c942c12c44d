"""Reads training runs in several processes."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

import torch

from lab.training.train import ForEach


@contextmanager
def processes(count: int) -> Iterator[ForEach]:
    """Read runs in ``count`` processes; one process is the current one."""
    if count == 1:
        yield map
        return
    with ProcessPoolExecutor(count, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield pool.map
