"""Leave one generator out: train on two generators of meshes, test on the third.

    python -m benchmarks.generalize [--left-out NAME ...] [--processes 2] [--results FOLDER]

The generators are our simulator, the other simulator (../shared/other_mesh) and recorded normal traffic with injected
faults (../shared/recordings). If one is missing, a message says so and it is skipped. The shipped weights are tested
as well; their training data are in the model card. So are the contenders, which learn from the recording itself before
its judged time begins. Weights and verdicts are kept in out/generalize until the code changes.
Writes ``generalize.jsonl`` if all generators are left out in turn. A training takes five to ten minutes on two cores.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.generalization.generators import FOLDER, Generator, Recipe, TestRecording, generators
from lab.comparison.lines import Detector, Tagae, code_digest, detector, missing_work, score, verdict_path
from lab.comparison.parts import Part, RecordingTask, evaluate_task, group_parts
from lab.comparison.plan import COLD, OURS, Job
from lab.comparison.rows import rows
from lab.contenders import NAMES
from lab.evaluation.run import EvaluationOptions
from lab.training.processes import processes
from lab.training.train import TrainingOptions, train
from model.checkpoint import SHIPPED, load, save
from serve_app.cli.console import bars, reporter, stderr_console
from serve_app.cli.workers import Workers, report_steps, start_workers
from serve_app.pipeline import options
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings, Settings

RESULTS, VERDICTS, WEIGHTS = Path("benchmarks/results"), FOLDER / "verdicts", FOLDER / "weights"
LEFT_OUT, SHIPPED_NAME = "trained without", "shipped"
Weights = dict[str, Path]  # by name of the detector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [one.name for one in generators()]
    parser.add_argument("--left-out", nargs="*", choices=names, default=names)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    present = [one for one in generators() if _is_there(one)]
    parts: list[Part] = []
    for one in present:
        if one.name in arguments.left_out:
            others = [other for other in present if other is not one]
            weights = {LEFT_OUT: train_on(others, WEIGHTS, TrainingOptions(), arguments.processes)}
            with start_workers(arguments.processes) as workers:
                parts += evaluate_weights(one, weights | {SHIPPED_NAME: SHIPPED}, workers)
    lines = [json.dumps({**row, "benchmark": "generalize"}) for part in parts for row in rows(part)]
    print(*lines, sep="\n")
    if {one.name for one in present} == set(arguments.left_out) == set(names):
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "generalize.jsonl").write_text("".join(line + "\n" for line in lines))


def train_on(trained: Sequence[Generator], folder: Path, options: TrainingOptions, count: int) -> Path:
    """Train on these generators, unless weights of the same code and generators are in the folder.

    Args:
        trained: the generators.
        folder: of the weights.
        options: of the training.
        count: number of processes.

    Returns:
        The file of the weights.
    """
    key = hashlib.sha256(f"{code_digest(OURS)} {[one.name for one in trained]} {options}".encode()).hexdigest()
    path = folder / f"{key[:16]}.safetensors"
    if not path.exists():
        torch.set_num_threads(1)  # for reproducible sums
        runs = [run for one in trained for run in one.training_runs()]
        provenance = {"generators": ", ".join(one.name for one in trained)}
        with processes(count) as each, bars() as shown:
            checkpoint, _ = train(runs, options, provenance, reporter(shown), each=each)
        folder.mkdir(parents=True, exist_ok=True)
        save(checkpoint, path)
    return path


def evaluate_weights(generator: Generator, weights: Weights, workers: Workers, folder: Path = VERDICTS) -> list[Part]:
    """Score and judge the test recordings of a generator, with these weights and with every contender.

    Args:
        generator: that the first weights were not trained on.
        weights: to test.
        workers: processes.
        folder: of the verdicts.
    """
    recordings = workers.each("recordings", _record, generator.tests, [1] * len(generator.tests))
    jobs = [_job(names, one) for one in recordings for names in (*((name,) for name in weights), NAMES)]
    due = [job for one in jobs if (job := missing_work(one, folder, _Digest(weights))) is not None]
    workers.each("verdicts", _score, [(job, weights, folder) for job in due], [job.snapshots() for job in due])
    tasks = [
        RecordingTask(
            generator.name,
            one.path,
            EvaluationOptions(AlertSettings(), begin_after=one.judged_after),
            control=False,
            files={name: verdict_path(folder, name, one.path) for name in (*weights, *NAMES)},
        )
        for one in recordings
    ]
    return group_parts(tasks, [evaluate_task(task) for task in tasks])


class _Digest:
    """Digest of everything that determines the verdicts of a detector: its code, and ours with its weights."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def __call__(self, name: str) -> str:
        if name not in self.weights:
            return code_digest(name)
        return hashlib.sha256(code_digest(OURS).encode() + self.weights[name].read_bytes()).hexdigest()


def _job(names: tuple[str, ...], recording: TestRecording) -> Job:
    before = round(recording.judged_after.total_seconds() / RecordingReader(recording.path).interval_seconds)
    return Job("shared", names, (recording.path,), first=max(COLD, before + 1), judged_after=recording.judged_after)


def _record(recipe: Recipe) -> TestRecording:
    made = recipe()
    report_steps(1)
    return made


def _score(work: tuple[Job, Weights, Path]) -> None:
    job, weights, folder = work

    def make(name: str) -> Detector:
        if name not in weights:
            return detector(name)
        return Tagae(load(weights[name]), options(Settings()))

    score(job, folder, report_steps, make, _Digest(weights))


def _is_there(generator: Generator) -> bool:
    if generator.missing is None or generator.missing.exists():
        return True
    stderr_console().print(
        f"skipped: {generator.name}, {generator.missing} does not exist (it is not part of the project)"
    )
    return False


if __name__ == "__main__":
    main()
