"""The steps that every evaluation shares, spread over processes: recordings, verdict lines, evaluation."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from lab.comparison.parts import Part, RecordingTask, evaluate_task, group_parts, recording_tasks
from lab.comparison.plan import DETECTORS, SHARED, Job, shared_jobs
from lab.comparison.simulated import FOLDER, JUDGED, WARM_UP, Run, record
from lab.evaluation.run import Sheet
from serve_app.cli.console import stderr_console
from serve_app.cli.workers import Workers, report_steps

W = TypeVar("W")


def make_recordings(workers: Workers, runs: Sequence[Run]) -> None:
    """Simulate the recordings that are missing or out of date."""
    workers.each("recordings", _record, runs, [WARM_UP + JUDGED] * len(runs))


def plan_shared(detectors: tuple[str, ...]) -> list[Job]:
    """Jobs on the shared recordings; says why there are none if the folder is absent."""
    jobs = shared_jobs(detectors)
    if not jobs and not SHARED.is_dir():
        stderr_console().print(f"skipped: no recordings in {SHARED} (they are not part of the project)")
    return jobs


def write_lines(workers: Workers, jobs: Sequence[Job], work: Sequence[W], score: Callable[[W], None]) -> None:
    """Write the verdict lines of jobs.

    Args:
        workers: processes.
        jobs: that are due.
        work: what ``score`` gets for each job.
        score: runs in a worker.
    """
    workers.each("verdicts", score, work, [job.snapshots() for job in jobs])


def evaluate(workers: Workers, jobs: Sequence[Job], folder: Path, order: Sequence[str] = DETECTORS) -> list[Part]:
    """Evaluate the verdict lines below ``folder``, with the detectors in this order."""
    tasks = recording_tasks(jobs, folder, order)
    return group_parts(tasks, workers.each("evaluation", _evaluate, tasks, [1] * len(tasks)))


def _record(run: Run) -> Path:
    return record(run, FOLDER, partial(report_steps, 1))


def _evaluate(task: RecordingTask) -> Sheet:
    sheet = evaluate_task(task)
    report_steps(1)
    return sheet
