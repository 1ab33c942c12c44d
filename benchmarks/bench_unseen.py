"""Does the detector find the root cause of faults whose kind was not in training?

    python -m benchmarks.bench_unseen [--meshes 60] [--tests 60] [--json FILE]

For each group of kinds, a detector is trained from scratch on simulated meshes with all other kinds. Then it ranks the
root causes of that group's faults on other meshes. It is compared with the shipped weights, which were trained on all
kinds, and with the page score, which is not trained. A fault counts if the service would raise an alert. Suspects are
read when the page score is highest. Prints one JSON line for each kind; takes a quarter of an hour on two cores.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.evaluation.measures.intervals import share
from lab.simulator.events.faults import KINDS, FaultKind
from lab.training.dataset import LabelledFault, TrainingRun
from lab.training.meshes import TrainingMeshes, simulated_runs
from lab.training.meta_dataset import MetaExample, score_run
from lab.training.processes import processes
from lab.training.train import ForEach, TrainingOptions, train
from model.checkpoint import Checkpoint, load
from model.scoring.meta_inputs import rank_inputs
from model.scoring.ranking import measured_nats
from serve_app.cli.console import bars, reporter

GROUPS: dict[str, tuple[FaultKind, ...]] = {
    "latency": ("latency_injection", "grey_edge", "hub_degradation"),
    "errors": ("error_burst", "partial_partition", "retry_storm"),
    "resources and topology": ("cpu_saturation", "slow_leak", "misroute", "disappearance"),
}
TEST_SEED = 5  # seed of the plan of the test meshes
FIRST, THREE = 1, 3
NOWHERE = 10**6  # rank of a service that is not a candidate


@dataclass(frozen=True, slots=True)
class Place:
    """Ranks of the root cause of a fault when the page score is highest; 0 is first.

    Attributes:
        kind: of the fault.
        pages: whether the page score is above the page level.
        learned: rank among the suspects.
        by_page_score: rank by the page score alone.
    """

    kind: str
    pages: bool
    learned: int
    by_page_score: int


def places(checkpoint: Checkpoint, run: TrainingRun) -> list[Place]:
    """Return the ranks of all faults of a run."""
    scenes = score_run(checkpoint, run)
    return [_place(checkpoint, scenes, fault) for fault in run.faults]


def _place(checkpoint: Checkpoint, scenes: Sequence[MetaExample], fault: LabelledFault) -> Place:
    inside = [s for s in scenes if fault.start <= s.observed_at <= fault.end and len(s.evidence.names)]
    if not inside:
        return Place(fault.kind, False, NOWHERE, NOWHERE)
    worst = max(inside, key=lambda scene: float(scene.evidence.page.max()))
    evidence, rows = worst.evidence, np.arange(len(worst.evidence.names))
    pages = float(evidence.page.max()) > worst.level + checkpoint.page_offset
    if fault.service not in evidence.names:
        return Place(fault.kind, pages, NOWHERE, NOWHERE)
    culprit = evidence.names.index(fault.service)
    with torch.inference_mode():
        scores = checkpoint.meta.root_cause_score(rank_inputs(evidence, rows), measured_nats(evidence, rows)).numpy()
    learned, by_page_score = (int((of > of[culprit]).sum()) for of in (scores, evidence.page))
    return Place(fault.kind, pages, learned, by_page_score)


def measure(
    group: str, meshes: TrainingMeshes, tests: TrainingMeshes, options: TrainingOptions, each: ForEach
) -> list[dict[str, Any]]:
    """Return the result lines of one group, one for each kind.

    Args:
        group: one of ``GROUPS``, left out in training.
        meshes, tests: meshes for training and for the test, without kinds.
        options: options of training.
        each: applies a function to runs, in processes.
    """
    others = tuple(kind for kind in KINDS if kind not in GROUPS[group])
    runs = simulated_runs(replace(meshes, kinds=others))
    asked = [run for run in simulated_runs(replace(tests, kinds=GROUPS[group])) if run.faults]
    with bars() as shown:
        progress = reporter(shown)
        without_group, _ = train(runs, options, {"left out": group}, progress, each=each)
        answers: dict[str, list[Place]] = {"unseen": [], "seen": []}
        for (name, ranks), checkpoint in zip(answers.items(), (without_group, load()), strict=True):
            for done, found in enumerate(each(partial(places, checkpoint), asked), 1):
                ranks += found
                progress(f"test, {name}", done, len(asked))
    both = [(u, s) for u, s in zip(answers["unseen"], answers["seen"], strict=True) if u.pages and s.pages]
    return [_line(group, kind, [(u, s) for u, s in both if u.kind == kind]) for kind in GROUPS[group]]


def _line(group: str, kind: str, asked: Sequence[tuple[Place, Place]]) -> dict[str, Any]:
    """Return the line of a kind, from ranks without and with this kind in training."""
    ranked = {
        "unseen": [u.learned for u, _ in asked],
        "seen": [s.learned for _, s in asked],
        "page_score": [s.by_page_score for _, s in asked],
    }
    line: dict[str, Any] = {"benchmark": "unseen", "left_out": group, "kind": kind, "faults": len(asked)}
    for name, found in ranked.items():
        line[name] = {f"top_{k}": share([place < k for place in found]).to_json() for k in (FIRST, THREE)}
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=60)
    parser.add_argument("--tests", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    meshes, tests = TrainingMeshes(arguments.meshes), TrainingMeshes(arguments.tests, seed=TEST_SEED)
    lines = []
    with processes(2) as each:
        for group in GROUPS:
            lines += [json.dumps(line) for line in measure(group, meshes, tests, TrainingOptions(), each)]
            print(*lines[-len(GROUPS[group]) :], sep="\n", flush=True)
    if arguments.json:
        arguments.json.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
