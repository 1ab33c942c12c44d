"""The simulator's evaluation set: is it neither trivial nor hopeless for fair static rules?

    python benchmarks/bench_evaluation_set.py [--sizes 300 3000] [--json FILE]

For each size some meshes (seeds that nothing is trained on) with high churn and all kinds of faults, an hour of warm-up
and two hours judged, and the muted control: the same meshes, plans and faults without any benign action. Static rules
(contenders/static_rules.py) are warmed up on the first hour. Prints JSON lines; EVALUATION.md has the reference.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from contenders.static_rules import RULES, State, step, warm_up
from rich.progress import Progress

from model.evaluate.located import LocatedFault, Outcome, Report, Summary, Watch, report, summarise
from model.snapshot import MeshSnapshot
from serve_app.judging import located_fault
from serve_app.sources.faults import KINDS
from serve_app.sources.labels import Comparison, compared, incidents
from serve_app.sources.scenario import plan_scenario
from serve_app.sources.simulator import Simulator
from serve_app.sources.topology import MeshSpec

SEEDS = {300: (600, 601, 602, 603, 604, 605), 3000: (610, 611)}
WARM_UP, JUDGED = 240, 480  # snapshots of 15 s
HIGH_CHURN_PER_SERVICE_HOUR = 0.2
LEVELS = ("minor", "minor", "major", "critical")
EFFECTS = (0.0, 5.0, 20.0, 100.0, math.inf)  # bounds of the bands of effect, sigmas
LEAST_RATE = 1.0  # 1/s of a culprit: faults strike quiet services too
LIVELY = {
    "hiccups_per_hour": 0.25,
    "hiccup_seconds": 45.0,
    "hiccup_strength": 8.0,
    "crowds_per_day": 24.0,
    "batches": 0.03,
}


def faults_and_pages(spec: MeshSpec, seed: int, muted: bool, tick: Any) -> dict[str, Watch]:
    """One run under each rule."""
    faults, changes = plan_scenario(
        spec,
        KINDS,
        seed,
        snapshots=WARM_UP + JUDGED,
        first=WARM_UP,
        duration=(16, 32),
        quiet=(16, 32),
        levels=LEVELS,
        minimum_rate=LEAST_RATE,
        churn_per_hour=HIGH_CHURN_PER_SERVICE_HOUR * spec.services,
    )
    simulator = Simulator(spec, faults, changes, WARM_UP + JUDGED, mute_churn=muted)
    reference = Simulator(spec, (), changes, WARM_UP + JUDGED, mute_churn=muted)
    comparison = Comparison(spec, simulator.mesh, faults)
    normal: list[MeshSnapshot] = []
    states = {rule: State() for rule in RULES}
    limits = {}
    for snapshot in compared(simulator.snapshots(), reference.snapshots(), comparison):
        tick()
        if len(normal) < WARM_UP:
            normal.append(snapshot)
            continue
        for rule in RULES:
            if rule not in limits:
                limits[rule] = warm_up(rule, normal, spec.interval_seconds)
            states[rule] = step(rule, limits[rule], states[rule], snapshot, spec.interval_seconds)
    truth = tuple(map(located_fault, incidents(faults, spec, simulator.mesh, comparison.effects())))
    interval = timedelta(seconds=spec.interval_seconds)
    begin, end = spec.start + WARM_UP * interval, spec.start + (WARM_UP + JUDGED) * interval
    return {rule: Watch(state.pages, truth, interval, begin, end) for rule, state in states.items()}


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
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    lines = []
    runs = [(n, muted, seed) for n in arguments.sizes for muted in (False, True) for seed in SEEDS[n]]
    with Progress() as progress:
        bar = progress.add_task("simulating", total=len(runs) * (WARM_UP + JUDGED))
        for services in arguments.sizes:
            for muted in (False, True):
                watches: dict[str, list[Watch]] = {}
                for seed in SEEDS[services]:
                    spec = replace(MeshSpec(services=services, seed=seed), **LIVELY)
                    for rule, watch in faults_and_pages(spec, seed, muted, lambda: progress.advance(bar)).items():
                        watches.setdefault(rule, []).append(watch)
                lines += [json.dumps(row(services, muted, rule, report(found))) for rule, found in watches.items()]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
