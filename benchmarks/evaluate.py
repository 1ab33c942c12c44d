"""Evaluates the shipped detector on all recordings.

    python -m benchmarks.evaluate [--parts shared 300 3000] [--datasets petshop ...] [--processes 2]

Public recordings are read from ../shared/recordings. If they are missing, a message says so and they are skipped.
Simulated recordings are generated (``lab.comparison.simulated``). Verdict lines are cached in out/evaluate/verdicts
until the detector's code, its weights or a recording changes, so a second run only judges. Replaces these parts' rows
of our detectors in ``detection.jsonl``, and keeps all others, such as contenders', which were measured once.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.rows import Row, read, replace
from benchmarks.workers import report_steps, start_workers
from lab.comparison.lines import missing_work, score
from lab.comparison.parts import RecordingTask, evaluate_task, group_parts, recording_tasks
from lab.comparison.plan import PARTS, SHARED, SIMULATED, Job, shared_jobs, simulated_jobs
from lab.comparison.rows import rows
from lab.comparison.simulated import FOLDER, JUDGED, WARM_UP, Run, record, runs
from lab.evaluation.run import Sheet
from serve_app.cli.console import print_note

VERDICTS, RESULTS = Path("out/evaluate/verdicts"), Path("benchmarks/results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--datasets", nargs="*", help="data sets of the part shared. Default: all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--verdicts", type=Path, default=VERDICTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    sizes = [part for part in SIMULATED if part in arguments.parts]
    with start_workers(arguments.processes) as workers:
        simulated_runs = runs([int(size) for size in sizes])
        workers.each("recordings", _record, simulated_runs, [WARM_UP + JUDGED] * len(simulated_runs))
        jobs = _jobs(arguments.parts, sizes, arguments.datasets)
        due = [job for planned_job in jobs if (job := missing_work(planned_job, arguments.verdicts)) is not None]
        steps = [job.snapshots() for job in due]
        workers.each("verdicts", _score_job, [(job, arguments.verdicts) for job in due], steps)
        tasks = recording_tasks(jobs, arguments.verdicts)
        report_parts = group_parts(tasks, workers.each("evaluation", _evaluate, tasks, [1] * len(tasks)))
    path = arguments.results / "detection.jsonl"
    old_rows = read(path)
    update_rows(path, [row for part in report_parts for row in rows(part, old_rows)])


def update_rows(path: Path, new_rows: Sequence[Row]) -> None:
    """Replace the measured parts' and detectors' rows, and keep all others."""
    old_rows = replace(path, new_rows, lambda row: (row["part"], row["detector"]))
    print(f"{path}: {len(new_rows)} rows replaced or added, {len(old_rows)} kept")


def _jobs(parts: Sequence[str], sizes: Sequence[str], datasets: Sequence[str] | None) -> list[Job]:
    """Return the jobs, the longest first."""
    jobs = [job for size in sizes for job in simulated_jobs(int(size))]
    if "shared" in parts and not SHARED.is_dir():
        print_note(f"skipped: no recordings in {SHARED} (they are not part of the project)")
    elif "shared" in parts:
        jobs += [job for job in shared_jobs() if datasets is None or job.recordings[0].parent.name in datasets]
    return sorted(jobs, key=lambda job: -job.snapshots() * (1 if job.part == "shared" else int(job.part)))


def _record(run: Run) -> Path:
    return record(run, FOLDER, partial(report_steps, 1))


def _evaluate(task: RecordingTask) -> Sheet:
    sheet = evaluate_task(task)
    report_steps(1)
    return sheet


def _score_job(work: tuple[Job, Path]) -> None:
    score(*work, tick=report_steps)


if __name__ == "__main__":
    main()
