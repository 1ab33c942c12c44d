"""The ablation table: variants without one part of the detector, trained and judged like the full detector.

    python -m benchmarks.ablations [--variants full without_h_t ...] [--parts shared 300] [--processes 2]

Weights and verdict lines are cached in out/ablations until something that determines them changes, so an interrupted
run resumes. Writes ``ablations.jsonl`` if all variants and all parts are chosen. The full detector has the shipped
weights. The variants are trained on the same runs.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ablation.variants import FULL, VARIANTS, Variant
from benchmarks.ablation.weights import Plan, code_digest, detector, needs_training, shipped_plan, train_variant
from benchmarks.evaluation_steps import evaluate, make_recordings, plan_shared, write_lines
from lab.comparison.lines import missing_work, score
from lab.comparison.parts import Part
from lab.comparison.plan import Job, simulated_jobs
from lab.comparison.rows import rows
from lab.comparison.simulated import runs, silent_runs
from serve_app.cli.console import stderr_console
from serve_app.cli.workers import Workers, report_steps, start_workers

VERDICTS, RESULTS = Path("out/ablations/verdicts"), Path("benchmarks/results/ablations.jsonl")
SIZE = 300  # services of the simulated meshes
PARTS = ("shared", str(SIZE))
PAIRED = {"recall": "recall", "top_1": "top1", "top_3": "top3"}  # measure: its name in comparisons


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    variants, plan = [VARIANTS[name] for name in arguments.variants], shipped_plan()
    for difference in plan.differences():
        stderr_console().print(
            f"the comparison is not fair, because the full detector was trained with {difference}", style="yellow"
        )
    with start_workers(arguments.processes) as workers:
        _train(workers, variants, plan)
        jobs = _jobs(workers, arguments.parts, tuple(arguments.variants))
        _score(workers, jobs, plan)
        found = evaluate(workers, jobs, VERDICTS, arguments.variants)
    complete = set(arguments.parts) == set(PARTS) and set(arguments.variants) == set(VARIANTS)
    target = arguments.results if complete else VERDICTS.parent / "in-part.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row) + "\n" for row in lines(found)))
    print(f"{target}: written")


def lines(found: Sequence[Part]) -> list[dict[str, Any]]:
    """Return every measure of every variant.

    If incidents can be compared one by one, ``full_ahead`` is the lead of the full detector: mean and 95% interval.
    """
    found_rows = []
    for part in found:
        ahead = part.pool.compare_with(FULL) if FULL in part.pool.metrics else {}
        for row in rows(part):
            apart = ahead.get(row["detector"], {}).get(PAIRED.get(row["measure"], ""))
            paired = (
                {} if apart is None else {"full_ahead": [round(v, 4) for v in (apart.value, apart.low, apart.high)]}
            )
            found_rows.append({**row, "benchmark": "ablations", **paired})
    return found_rows


def _train(workers: Workers, variants: Sequence[Variant], plan: Plan) -> None:
    """Train the variants that need it, the longest first."""
    wanted = sorted((one for one in variants if needs_training(one, plan)), key=lambda one: -plan.steps(one))
    workers.each("weights", _train_variant, [(one.name, plan) for one in wanted], [plan.steps(one) for one in wanted])


def _jobs(workers: Workers, chosen: Sequence[str], variants: tuple[str, ...]) -> list[Job]:
    jobs: list[Job] = []
    if str(SIZE) in chosen:
        with_churn = [run for run in runs([SIZE]) if not run.muted]
        make_recordings(workers, [*with_churn, *silent_runs([SIZE])])
        jobs += simulated_jobs(SIZE, variants)
    if "shared" in chosen:
        jobs += plan_shared(variants)
    return sorted(jobs, key=lambda job: -job.snapshots())


def _score(workers: Workers, jobs: Sequence[Job], plan: Plan) -> None:
    codes = {name: code_digest(name, plan) for job in jobs for name in job.detectors}
    jobs_due = [job for one in jobs if (job := missing_work(one, VERDICTS, codes.__getitem__)) is not None]
    write_lines(workers, jobs_due, [(job, plan) for job in jobs_due], _score_job)


def _train_variant(work: tuple[str, Plan]) -> Path:
    name, plan = work
    return train_variant(VARIANTS[name], plan, tick=report_steps)


def _score_job(work: tuple[Job, Plan]) -> None:
    job, plan = work
    score(job, VERDICTS, report_steps, partial(detector, plan=plan), partial(code_digest, plan=plan))


if __name__ == "__main__":
    main()
