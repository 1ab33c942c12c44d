"""Scores spans of series as low-priority tasks on a Ray cluster, for ``tagae score --ray``.

This process reads the snapshots, whether from a recording or from Prometheus, and sends them to the tasks. So the nodes
need no files, no access to Prometheus and no secrets, and only one client reads Prometheus, however many nodes score.

A task scores a piece of a span: a few minutes of snapshots, from the state that the previous task returned. So a lost
node costs a few seconds of work, and the CPU of a task is free again soon. The verdicts are the same as in one process,
since the state is passed on unchanged.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from typing import TYPE_CHECKING, Any

from serve_app.cli.console import ProgressLines, bars, print_note
from serve_app.cli.reading import notes, open_recording
from serve_app.cli.series import SpanResult, SpanTask, span_snapshots
from serve_app.errors import NoTelemetry

if TYPE_CHECKING:
    from model.checkpoint import Checkpoint
    from model.snapshot import MeshSnapshot
    from serve_app.pipeline import Mesh, Options
    from serve_app.runtime.batch import BatchCluster

PIECE_SNAPSHOTS = 240  # of a task: about ten seconds for a mesh of 60 services
PIECE_CALLS = 4_000_000  # rows of calls in the snapshots of a task, about 250 MB: large meshes have shorter pieces


class Use(Enum):
    """The purpose of a snapshot."""

    BASELINE = auto()
    OVERLAP = auto()
    VERDICT = auto()


Step = tuple[Use, "MeshSnapshot"]


@dataclass(frozen=True, slots=True)
class MeshModel:
    """The inputs of a task besides the mesh and its snapshots: the weights, the options of the mesh, threads of
    torch."""

    checkpoint: "Checkpoint"
    options: "Options"
    threads: int


def score_on_cluster(
    cluster: "BatchCluster", jobs: int, tasks: Sequence[SpanTask], steps: Sequence[int]
) -> list[SpanResult]:
    """Score spans, ``jobs`` of them in parallel, and return the results in order. After a failure, all are cancelled.

    Args:
        cluster: runs the tasks.
        jobs: most tasks at a time.
        tasks: the spans.
        steps: their numbers of snapshots.
    """
    from model.checkpoint import SHIPPED, load
    from serve_app.pipeline import options

    began, total = time.monotonic(), sum(steps)
    settings = tasks[0].settings

    def put_model(mesh: str) -> Any:
        checkpoint = load(settings.weights_of(mesh) or SHIPPED, network=settings.model.network)
        return cluster.put(MeshModel(checkpoint, options(settings, mesh), settings.model.threads))

    models = {name: put_model(name) for name in {task.series.mesh for task in tasks}}
    with bars() as bar, ThreadPoolExecutor(min(jobs, len(tasks)), "span") as pool:
        shown, lines, turn = (
            bar.add_task("scoring", total=total or None),
            ProgressLines("scoring", total),
            threading.Lock(),
        )

        def advance(scored: int) -> None:
            with turn:
                bar.advance(shown, scored)
                lines.advance(scored)

        try:  # Ctrl-C may come as soon as the first one has begun
            futures = [pool.submit(_score_span, cluster, models[task.series.mesh], task, advance) for task in tasks]
            for future in as_completed(futures):
                future.result()  # raises the first failure
        except BaseException:
            cluster.cancel()  # or the threads would wait for their tasks
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    print_note(f"scoring: {len(tasks)} in {time.monotonic() - began:.0f} s")
    return [future.result() for future in futures]


def score_piece(model: MeshModel, mesh: "Mesh", piece: Sequence[Step]) -> tuple["Mesh", list[str]]:
    """Score snapshots one after the other; runs on a node.

    Returns:
        The mesh after them, and a line of JSON for each whose verdict counts.
    """
    import torch

    from serve_app.api.codec import encode_verdict
    from serve_app.pipeline import advance

    torch.set_num_threads(model.threads)
    lines = []
    for use, snapshot in piece:
        verdict, mesh = advance(model.checkpoint, mesh, snapshot, model.options, counted=use is not Use.BASELINE)
        if use is Use.VERDICT:
            lines.append(encode_verdict(verdict).model_dump_json() + "\n")
    return mesh, lines


def _score_span(cluster: "BatchCluster", model: Any, task: SpanTask, advance: Callable[[int], None]) -> SpanResult:
    """Score a span piece by piece, and write its lines. The next piece is read while a task scores the last one."""
    from serve_app.pipeline import Mesh

    source, problem = task.series.open_source(task.settings), ""
    warmups = [open_recording(path) for path in task.warmups]
    baselines = ((Use.BASELINE, snapshot) for warmup in warmups for snapshot in warmup.snapshots())
    own = ((Use.VERDICT if counts else Use.OVERLAP, snapshot) for counts, snapshot in span_snapshots(source, task.span))
    mesh, finish = Mesh(), None
    with task.file.open("w", encoding="utf-8") as file:

        def finish_piece(reference: Any, piece: Sequence[Step]) -> Mesh:
            after: Mesh
            lines: list[str]
            after, lines = cluster.result(reference)
            file.writelines(lines)
            advance(sum(use is not Use.BASELINE for use, _ in piece))
            return after

        try:
            for piece in cut_pieces(chain(baselines, own)):
                mesh = finish_piece(*finish) if finish else mesh
                finish = cluster.submit(score_piece, model, mesh, piece), piece
        except NoTelemetry as error:
            problem = str(error)
        if finish:
            finish_piece(*finish)
    return SpanResult(problem, tuple(notes([*warmups, source])))


def cut_pieces(steps: Iterator[Step]) -> Iterator[list[Step]]:
    """Yield the steps in pieces for a task each."""
    piece: list[Step] = []
    calls = 0
    for use, snapshot in steps:
        piece.append((use, snapshot))
        calls += snapshot.edge_index.shape[1]
        if len(piece) >= PIECE_SNAPSHOTS or calls >= PIECE_CALLS:
            yield piece
            piece, calls = [], 0
    if piece:
        yield piece
