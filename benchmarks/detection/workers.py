"""Runs work in processes, with one progress bar for each kind of work."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from queue import Empty
from threading import Event, Thread
from typing import Any, TypeVar

from rich.progress import Progress

from serve_app.cli.console import bars, stderr_console

T = TypeVar("T")
R = TypeVar("R")
_progress: Any = None  # in a worker: the queue for its progress


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker processes and their progress bar."""

    pool: ProcessPoolExecutor
    bar: Progress
    queue: Any

    def each(self, what: str, work: Callable[[T], R], things: Sequence[T], steps: Iterable[int]) -> list[R]:
        """Call ``work`` for each thing and return the results in order; ``steps``: how many steps each reports."""
        began, task = time.monotonic(), self.bar.add_task(what, total=sum(steps))
        over = Event()
        mover = Thread(target=self._move_bar, args=(task, over))
        mover.start()
        try:
            futures: list[Future[R]] = [self.pool.submit(work, thing) for thing in things]
            for future in as_completed(futures):
                future.result()  # raises the first failure
        finally:
            over.set()
            mover.join()
        if things:
            stderr_console().print(f"{what}: {len(things)} in {time.monotonic() - began:.0f} s")
        return [future.result() for future in futures]

    def _move_bar(self, task: Any, over: Event) -> None:
        while not over.is_set():
            try:
                self.bar.advance(task, self.queue.get(timeout=0.2))
            except Empty:
                continue


@contextmanager
def start_workers(processes: int) -> Iterator[Workers]:
    """Start workers, and stop them at the end of the block."""
    context = get_context("spawn")
    queue = context.Queue()
    with ProcessPoolExecutor(processes, context, _begin, (queue,)) as pool, bars() as bar:
        yield Workers(pool, bar, queue)


def report_steps(steps: int) -> None:
    """Report finished steps; called in a worker."""
    _progress.put(steps)


def _begin(queue: Any) -> None:
    global _progress
    _progress = queue
