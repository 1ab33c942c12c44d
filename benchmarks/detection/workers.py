"""Work spread over processes, with one bar for each kind of it."""

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

from serve_app.cli.console import bars, for_people

T = TypeVar("T")
R = TypeVar("R")
_told: Any = None  # of a worker: where it reports progress


@dataclass(frozen=True, slots=True)
class Workers:
    """Processes, and the bar that they move."""

    pool: ProcessPoolExecutor
    bar: Progress
    queue: Any

    def each(self, what: str, work: Callable[[T], R], things: Sequence[T], steps: Iterable[int]) -> list[R]:
        """``work`` of each thing, in their order; ``steps``: how many each reports."""
        began, task = time.monotonic(), self.bar.add_task(what, total=sum(steps))
        over = Event()
        mover = Thread(target=self._moved, args=(task, over))
        mover.start()
        try:
            futures: list[Future[R]] = [self.pool.submit(work, thing) for thing in things]
            for future in as_completed(futures):
                future.result()  # the first failure ends it all
        finally:
            over.set()
            mover.join()
        if things:
            for_people().print(f"{what}: {len(things)} in {time.monotonic() - began:.0f} s")
        return [future.result() for future in futures]

    def _moved(self, task: Any, over: Event) -> None:
        while not over.is_set():
            try:
                self.bar.advance(task, self.queue.get(timeout=0.2))
            except Empty:
                continue


@contextmanager
def started(processes: int) -> Iterator[Workers]:
    """Workers, until the block ends."""
    context = get_context("spawn")
    queue = context.Queue()
    with ProcessPoolExecutor(processes, context, _begin, (queue,)) as pool, bars() as bar:
        yield Workers(pool, bar, queue)


def tell(steps: int) -> None:
    """So many steps are done; called in a worker."""
    _told.put(steps)


def _begin(queue: Any) -> None:
    global _told
    _told = queue
