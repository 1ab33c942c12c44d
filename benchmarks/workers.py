"""Runs work in processes, with one progress bar for each kind of work."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from queue import Empty
from typing import Any, TypeVar

from rich.progress import Progress

from serve_app.cli.console import ProgressLines, bars, print_note

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
        """Call ``work`` for each thing and return the results in order; ``steps``: how many steps each reports. After
        a failure, work that has not begun is dropped."""
        began, total = time.monotonic(), sum(steps)
        over, task = threading.Event(), self.bar.add_task(what, total=total or None)
        mover = threading.Thread(target=self._move_bar, args=(task, ProgressLines(what, total), over))
        futures: list[Future[R]] = []
        try:  # Ctrl-C may come as soon as the mover has begun
            mover.start()
            futures.extend(self.pool.submit(work, thing) for thing in things)
            for future in as_completed(futures):
                future.result()  # raises the first failure
        finally:
            for future in futures:
                future.cancel()
            over.set()
            if mover.is_alive():
                mover.join()
        if things:
            print_note(f"{what}: {len(things)} in {time.monotonic() - began:.0f} s")
        return [future.result() for future in futures]

    def _move_bar(self, task: Any, lines: ProgressLines, over: threading.Event) -> None:
        while not over.is_set():
            try:
                steps = self.queue.get(timeout=0.2)
            except Empty:
                continue
            self.bar.advance(task, steps)
            lines.advance(steps)


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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends workers too, without a traceback of each
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker if its parent was killed: it would wait for work forever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
