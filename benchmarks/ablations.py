"""The ablation table: the detector without one of its parts at a time, trained and judged as the full one is.

    python -m benchmarks.ablations [--variants full without_h_t ...] [--parts shared 300] [--processes 2]

Weights and lines of verdicts are kept in out/ablations until something changes that they depend on, so what was broken
off goes on where it was. Writes ``ablations.jsonl`` (only with all variants and all parts). The full detector is the
one that ships; the others are trained on the same runs.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ablation.variants import FULL, VARIANTS, Variant
from benchmarks.ablation.weights import Plan, as_shipped, code, detector, due, learn
from benchmarks.detection.judging import Part, judgings, parts
from benchmarks.detection.lines import missing, score
from benchmarks.detection.measures import rows
from benchmarks.detection.plan import SHARED, Job, shared_jobs, simulated_jobs
from benchmarks.detection.workers import Workers, started, tell
from benchmarks.evaluate import judge, make
from benchmarks.simulated import JUDGED, WARM_UP, runs
from serve_app.cli.console import for_people

VERDICTS, RESULTS = Path("out/ablations/verdicts"), Path("benchmarks/results/ablations.jsonl")
SIZE = 300  # services of the simulated meshes
PARTS = ("shared", str(SIZE))
PAIRED = {"recall": "recall", "top_1": "top1", "top_3": "top3"}  # measure: what comparisons call it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    variants, plan = [VARIANTS[name] for name in arguments.variants], as_shipped()
    for difference in plan.departs():
        for_people().print(f"the full detector was trained otherwise, {difference}: no fair comparison", style="yellow")
    with started(arguments.processes) as workers:
        _train(workers, variants, plan)
        jobs = _jobs(workers, arguments.parts, tuple(arguments.variants))
        _score(workers, jobs, plan)
        asked = judgings(jobs, VERDICTS, arguments.variants)
        sheets = workers.each("judgements", judge, asked, [1] * len(asked))
    complete = set(arguments.parts) == set(PARTS) and set(arguments.variants) == set(VARIANTS)
    target = arguments.results if complete else VERDICTS.parent / "in-part.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row) + "\n" for row in lines(parts(asked, sheets))))
    print(f"{target}: written")


def lines(found: Sequence[Part]) -> list[dict[str, Any]]:
    """Every measure of every variant and, where incidents can be compared one by one, how much the full detector is
    ahead of it: mean and 95% interval."""
    told = []
    for part in found:
        ahead = part.pool.compared(FULL) if FULL in part.pool.figures else {}
        for row in rows(part):
            apart = ahead.get(row["detector"], {}).get(PAIRED.get(row["measure"], ""))
            paired = (
                {} if apart is None else {"full_ahead": [round(v, 4) for v in (apart.value, apart.low, apart.high)]}
            )
            told.append({**row, "benchmark": "ablations", **paired})
    return told


def _train(workers: Workers, variants: Sequence[Variant], plan: Plan) -> None:
    """The longest first."""
    wanted = sorted((one for one in variants if due(one, plan)), key=lambda one: -plan.steps(one))
    workers.each("weights", _learned, [(one.name, plan) for one in wanted], [plan.steps(one) for one in wanted])


def _jobs(workers: Workers, chosen: Sequence[str], variants: tuple[str, ...]) -> list[Job]:
    jobs: list[Job] = []
    if str(SIZE) in chosen:
        simulated = [run for run in runs([SIZE]) if not run.muted]
        workers.each("recordings", make, simulated, [WARM_UP + JUDGED] * len(simulated))
        jobs += simulated_jobs(SIZE, variants)
    if "shared" in chosen:
        shared = shared_jobs(variants)
        if not shared:
            for_people().print(f"skipped: no recordings in {SHARED} (they are not part of the project)")
        jobs += shared
    return sorted(jobs, key=lambda job: -job.snapshots())


def _score(workers: Workers, jobs: Sequence[Job], plan: Plan) -> None:
    codes = {name: code(name, plan) for job in jobs for name in job.detectors}
    wanted = [job for one in jobs if (job := missing(one, VERDICTS, codes.__getitem__)) is not None]
    workers.each("verdicts", _scored, [(job, plan) for job in wanted], [job.snapshots() for job in wanted])


def _learned(work: tuple[str, Plan]) -> Path:
    name, plan = work
    return learn(VARIANTS[name], plan, tick=tell)


def _scored(work: tuple[Job, Plan]) -> None:
    job, plan = work
    score(job, VERDICTS, tell, partial(detector, plan=plan), partial(code, plan=plan))


if __name__ == "__main__":
    main()
