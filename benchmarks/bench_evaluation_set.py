"""The simulator's evaluation set: is it neither trivial nor hopeless for fair static rules?

    python benchmarks/bench_evaluation_set.py [--sizes 300 3000] [--json FILE]

For each size some meshes (seeds that nothing is trained on) with high churn and all kinds of faults, an hour of warm-up
and two hours judged, and the muted control: the same meshes, plans and faults without any benign action. Static rules
(contenders/static_rules.py) are warmed up on the first hour. Prints JSON lines; EVALUATION.md has the reference.
"""

import argparse
import json
import math
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from contenders.static_rules import RULES, State, step, warm_up
from rich.progress import Progress

from model.evaluate import Judgement, LocatedFault, judge
from model.snapshot import MeshSnapshot
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


def faults_and_pages(spec: MeshSpec, seed: int, muted: bool, tick: Any) -> dict[str, Judgement]:
    """One run, judged for each rule."""
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
    truth = located(incidents(faults, spec, simulator.mesh, comparison.effects()))
    interval, hours = timedelta(seconds=spec.interval_seconds), JUDGED * spec.interval_seconds / 3600
    return {rule: judge(state.pages, truth, interval, hours) for rule, state in states.items()}


def located(rows: list[dict[str, Any]]) -> list[LocatedFault]:
    """Rows of incidents.parquet as the judge wants them."""
    return [
        LocatedFault(
            row["start"],
            row["end"],
            row["recovered"],
            f"{row['root_cause_namespace']}/{row['root_cause_service']}",
            frozenset(row["candidates"]) | frozenset(row["affected"]),
            row["kind"],
            row["severity"],
            row["effect_sigmas"],
        )
        for row in rows
    ]


def row(services: int, muted: bool, rule: str, found: Judgement) -> dict[str, Any]:
    """One line."""
    low, high = found.recall_interval()
    kinds = Counter(outcome.fault.kind for outcome in found.outcomes)
    return {
        "benchmark": "evaluation_set",
        "services": services,
        "churn": "muted" if muted else "high",
        "rule": rule,
        "faults": len(found.outcomes),
        "hours": found.hours,
        "recall": round(found.recall(), 2),
        "recall_low": round(low, 2),
        "recall_high": round(high, 2),
        "false_pages_per_hour": round(found.false_pages_per_hour, 1),
        "median_delay_seconds": found.median_delay_seconds(),
        "top_1": round(found.top(1), 2),
        "top_3": round(found.top(3), 2),
        "recall_by_severity": {
            level: round(found.recall(lambda fault, level=level: fault.severity == level), 2)
            for level in ("minor", "major", "critical")
        },
        "recall_by_effect_sigmas": {
            f"{low:g} to {high:g}": [len(among), round(found.recall(lambda fault, among=among: fault in among), 2)]
            for low, high in pairwise(EFFECTS)
            if (among := [o.fault for o in found.outcomes if low <= o.fault.sigmas < high])
        },
        "recall_by_kind": {
            kind: round(found.recall(lambda fault, kind=kind: fault.kind == kind), 2) for kind in sorted(kinds)
        },
    }


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
                total: dict[str, Judgement] = {}
                for seed in SEEDS[services]:
                    spec = replace(MeshSpec(services=services, seed=seed), **LIVELY)
                    found = faults_and_pages(spec, seed, muted, lambda: progress.advance(bar))
                    total = {rule: total[rule] + f if rule in total else f for rule, f in found.items()}
                lines += [json.dumps(row(services, muted, rule, found)) for rule, found in total.items()]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
