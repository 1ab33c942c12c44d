"""Runs work in processes, with a progress bar for each kind of work."""

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

    def each(self, label: str, work: Callable[[T], R], items: Sequence[T], steps: Iterable[int]) -> list[R]:
        """Call ``work`` for each item and return the results in order; ``steps`` has each item's number of steps. After
        a failure, work that has not begun is dropped."""
        began, total = time.monotonic(), sum(steps)
        end, task = threading.Event(), self.bar.add_task(label, total=total or None)
        thread = threading.Thread(target=self._move_bar, args=(task, ProgressLines(label, total), end))
        futures: list[Future[R]] = []
        try:  # Ctrl-C may come as soon as the thread has begun
            thread.start()
            futures.extend(self.pool.submit(work, item) for item in items)
            for future in as_completed(futures):
                future.result()  # raises the first failure
        finally:
            for future in futures:
                future.cancel()
            end.set()
            if thread.is_alive():
                thread.join()
        if items:
            print_note(f"{label}: {len(items)} in {time.monotonic() - began:.0f} s")
        return [future.result() for future in futures]

    def _move_bar(self, task: Any, lines: ProgressLines, end: threading.Event) -> None:
        while not end.is_set():
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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends workers too, without their tracebacks
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker if its parent was killed: it would wait forever."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
