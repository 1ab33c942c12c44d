"""The simulator's evaluation set under static rules: neither trivial nor hopeless.

    python -m benchmarks.bench_evaluation_set [--sizes 300 3000] [--contender own_limit ...] [--json FILE]

``simulated.py`` says what the set is; recordings are kept in ``out/evaluate/recordings``. Prints JSON lines.
"""

import argparse
import json
import math
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.contenders import NAMES, contender
from benchmarks.simulated import FOLDER, LEVELS, SEEDS, WARM_UP, Run, record, runs
from model.evaluate.judged import watch
from model.evaluate.located import LocatedFault, Outcome, Report, Summary, Watch, report, summarise
from serve_app.cli.console import bars
from serve_app.judging import fitting, read_truth
from serve_app.recording import RecordingReader

EFFECTS = (0.0, 5.0, 20.0, 100.0, math.inf)  # bounds of the bands of effect, sigmas


def watched(name: str, path: Path) -> Watch:
    """One recording under one contender."""
    reader, module = RecordingReader(path), contender(name)
    state, verdicts = module.start(reader.interval_seconds, WARM_UP + 1), []
    for snapshot in reader.snapshots():
        verdict, state = module.advance(state, snapshot)
        verdicts.append(verdict)
    truth = read_truth(path, begin_after=WARM_UP * timedelta(seconds=reader.interval_seconds))
    return watch(truth, fitting(verdicts, truth, name))


def row(services: int, muted: bool, rule: str, found: Report) -> dict[str, Any]:
    """One line."""
    recall = found.overall.recall

    def among(chosen: Callable[[LocatedFault], bool]) -> list[Outcome]:
        return [outcome for outcome in found.outcomes if chosen(outcome.fault)]

    return {
        "benchmark": "evaluation_set",
        "services": services,
        "churn": "muted" if muted else "high",
        "rule": rule,
        "faults": len(found.outcomes),
        "hours": found.false_pages_an_hour.n,
        "recall": round(recall.value or 0.0, 2),
        "recall_low": round(recall.low or 0.0, 2),
        "recall_high": round(recall.high or 0.0, 2),
        "false_pages_per_hour": round(found.false_pages_an_hour.value or 0.0, 1),
        "median_delay_seconds": found.overall.delay_seconds,
        "top_1": round(found.overall.top1.value or 0.0, 2),
        "top_3": round(found.overall.top3.value or 0.0, 2),
        "recall_by_severity": {
            level: recall_of(summarise(among(lambda fault, level=level: fault.severity == level)))
            for level in dict.fromkeys(LEVELS)
        },
        "recall_by_effect_sigmas": {
            f"{low:g} to {high:g}": [len(faults), recall_of(summarise(faults))]
            for low, high in pairwise(EFFECTS)
            if (faults := among(lambda fault, low=low, high=high: low <= fault.effect < high))
        },
        "recall_by_kind": {kind: recall_of(summary) for kind, summary in found.by_kind.items()},
    }


def recall_of(found: Summary) -> float | None:
    """Rounded; None of no faults."""
    return None if found.recall.value is None else round(found.recall.value, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--contender", nargs="*", choices=NAMES, default=["guarded", "own_limit"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[tuple[int, bool, str], list[Watch]] = {}
    chosen = sorted(runs(arguments.sizes), key=lambda run: (run.services, run.muted, run.seed))
    with bars() as shown:
        bar = shown.add_task("runs", total=len(chosen))
        for run in chosen:
            path = record(run, FOLDER)
            for name in arguments.contender:
                found.setdefault(_key(run, name), []).append(watched(name, path))
            shown.advance(bar)
    lines = [json.dumps(row(*key, report(watches))) for key, watches in found.items()]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


def _key(run: Run, name: str) -> tuple[int, bool, str]:
    return run.services, run.muted, contender(name).LABEL


if __name__ == "__main__":
    main()
