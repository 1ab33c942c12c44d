"""Scores series of snapshots in parallel, for ``tagae score --jobs``.

A mesh is scored one snapshot after the other, so a series is the work of one process: several recordings or meshes are
scored in parallel, and each verdict is the same as alone. Only where an overlap is given, a series is cut into spans
that are scored in parallel. Each span scores some snapshots before its own, to learn the mesh, and drops their
verdicts. So its verdicts are close to the verdicts of one pass, and not the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serve_app.cli.reading import notes, open_recording, score_all
from serve_app.cli.workers import report_steps, start_workers
from serve_app.errors import NoTelemetry

if TYPE_CHECKING:
    from model.snapshot import MeshSnapshot
    from serve_app.cli.reading import Source
    from serve_app.settings import MeshSettings, Settings


@dataclass(frozen=True, slots=True)
class Period:
    """A past period of a live mesh.

    Attributes:
        polled: settings of the mesh.
        first, last: both ends included.
    """

    polled: "MeshSettings"
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class SnapshotSeries:
    """The series to score, in order of time.

    Attributes:
        name: for files and messages.
        source: folder of a recording, or a past period of a live mesh.
        mesh: name of the mesh in the settings; empty: none.
    """

    name: str
    source: Path | Period
    mesh: str = ""

    def open_source(self, settings: "Settings") -> "Source":
        """Open the series.

        Raises:
            BadRecording: it is not a complete recording.
            NoTelemetry: the period ends before it begins.
        """
        from serve_app.collect.opening import open_source
        from serve_app.collect.prometheus.history import PastPeriod

        if isinstance(self.source, Path):
            return open_recording(self.source)
        period, collector = self.source, settings.collector
        source = open_source(period.polled, collector)
        return PastPeriod(source, period.first, period.last, collector.interval_seconds)


@dataclass(frozen=True, slots=True)
class SeriesSpan:
    """A part of a series, in numbers of its snapshots, from zero.

    Attributes:
        start: the first one to score.
        begin: the first one whose verdict counts.
        end: behind the last one; None: to the end of the series.
    """

    start: int = 0
    begin: int = 0
    end: int | None = None


def plan_spans(length: int | None, pieces: int, overlap: int) -> list[SeriesSpan]:
    """Cut a series into spans that take about the same time.

    Args:
        length: snapshots of the series; None: unknown, and it stays whole.
        pieces: most spans. There are fewer if spans would be shorter than the overlap.
        overlap: snapshots that a span scores before its own.
    """
    pieces = min(pieces, (length or 0) // (2 * overlap) + 1)
    if length is None or pieces < 2:
        return [SeriesSpan()]
    own = (length - overlap) / pieces  # the first span needs no overlap, so it gets more
    begins = [0, *(round(overlap + own * number) for number in range(1, pieces))]
    ends = [*begins[1:], None]
    starts = [max(0, begin - overlap) for begin in begins]
    return [SeriesSpan(*bounds) for bounds in zip(starts, begins, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class SpanTask:
    """A span of a series to score."""

    settings: "Settings"
    warmups: tuple[Path, ...]
    series: SnapshotSeries
    span: SeriesSpan
    file: Path  # for its verdicts


@dataclass(frozen=True, slots=True)
class SpanResult:
    """The result of a span: why it has no snapshots at all, and notes on what was left out."""

    problem: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoredSeries:
    """A series that was scored.

    Attributes:
        series: which one.
        files: with the lines of its spans, in order of time.
        notes: on what was left out.
    """

    series: SnapshotSeries
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines with the verdicts. Where there are several spans, ``sequence`` counts on through all."""
        from serve_app.api.schemas.verdict import VerdictDocument

        sequence = 0
        for file in self.files:
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    sequence += 1
                    if len(self.files) > 1:
                        verdict = VerdictDocument.model_validate_json(line)
                        line = verdict.model_copy(update={"sequence": sequence}).model_dump_json() + "\n"
                    yield line


def score_series(
    settings: "Settings",
    series: Sequence[SnapshotSeries],
    warmups: Sequence[Path],
    jobs: int,
    overlap: int | None,
) -> Iterator[ScoredSeries]:
    """Score series, ``jobs`` spans in parallel, and yield each when all are done. Files are gone after the last one.

    Args:
        settings: of the model.
        series: what to score.
        warmups: recordings that set the baselines of each span first.
        jobs: processes that score spans, at most.
        overlap: snapshots that a span scores before its own; None: no series is cut.

    Raises:
        NoTelemetry: a period has no snapshot.
        ServeError: a series could not be read.
    """
    from serve_app.cli.reading import count_snapshots

    pieces = -(-jobs // len(series))
    with TemporaryDirectory(prefix="tagae-score-") as folder:
        tasks: list[SpanTask] = []
        steps: list[int] = []
        for one in series:
            length = count_snapshots(one.open_source(settings))
            for span in plan_spans(length, pieces, overlap) if overlap else [SeriesSpan()]:
                tasks.append(SpanTask(settings, tuple(warmups), one, span, Path(folder) / f"{len(tasks)}.jsonl"))
                steps.append((span.end or length or 0) - span.start)
        with start_workers(min(jobs, len(tasks))) as workers:
            done = workers.each("scoring", _score_span, tasks, steps)
        for one in series:
            results = [(task, result) for task, result in zip(tasks, done, strict=True) if task.series is one]
            if all(result.problem for _, result in results):
                raise NoTelemetry(results[-1][1].problem)
            files = tuple(task.file for task, _ in results)
            yield ScoredSeries(one, files, tuple(note for _, result in results for note in result.notes))


def _score_span(task: SpanTask) -> SpanResult:
    """Score a span and write the lines of its own snapshots."""
    source, problem = task.series.open_source(task.settings), ""
    warmups = [open_recording(path) for path in task.warmups]
    counted: list[bool] = []  # of the snapshots under way: whether their verdicts count

    def snapshots() -> "Iterator[MeshSnapshot]":
        for counts, snapshot in _span_snapshots(source, task.span):
            counted.append(counts)
            yield snapshot

    with task.file.open("w", encoding="utf-8") as lines:
        learned = (warmup.snapshots() for warmup in warmups)
        try:
            for moment in score_all(task.settings, task.series.mesh, learned, snapshots()):
                if counted.pop(0):
                    lines.write(moment.verdict.model_dump_json() + "\n")
                report_steps(1)
        except NoTelemetry as error:
            problem = str(error)
    return SpanResult(problem, tuple(notes([*warmups, source])))


def _span_snapshots(source: "Source", span: SeriesSpan) -> "Iterator[tuple[bool, MeshSnapshot]]":
    """Yield the snapshots of a span, and whether each counts."""
    from serve_app.collect.prometheus.history import PastPeriod

    if isinstance(source, PastPeriod):
        begin = source.instant(span.begin)
        yield from ((snapshot.observed_at >= begin, snapshot) for snapshot in source.snapshots(span.start, span.end))
        return
    for number, snapshot in enumerate(islice(source.snapshots(), span.end)):
        if number >= span.start:
            yield number >= span.begin, snapshot


def with_unique_names(series: Sequence[SnapshotSeries]) -> list[SnapshotSeries]:
    """The series with names that differ: where two have the same, the later ones get a number."""
    taken: set[str] = set()
    named = []
    for one in series:
        name, number = one.name, 1
        while name in taken:
            number += 1
            name = f"{one.name}-{number}"
        taken.add(name)
        named.append(replace(one, name=name))
    return named
