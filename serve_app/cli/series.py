"""Scores several series of snapshots in parallel, for ``tagae score --jobs``.

A mesh is scored one snapshot after the other, so a series is the work of one process, and each verdict is the same as
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from serve_app.cli.console import Tally
from serve_app.cli.reading import notes, score_all
from serve_app.cli.workers import report_steps, start_workers

if TYPE_CHECKING:
    from serve_app.cli.reading import Source
    from serve_app.settings import MeshSettings, Settings


@dataclass(frozen=True, slots=True)
class Period:
    """A past period of a live mesh, with a snapshot each ``step_seconds``, or each interval of the settings if that is
    longer."""

    polled: "MeshSettings"
    first: datetime
    last: datetime
    step_seconds: float


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
        from serve_app.collect.opening import open_past
        from serve_app.collect.prometheus.history import PastPeriod
        from serve_app.recordings.segments import open_recording

        if isinstance(self.source, Path):
            return open_recording(self.source)
        period = self.source
        step = max(period.step_seconds, settings.collector.interval_seconds)
        source = open_past(period.polled, settings.collector, step)
        return PastPeriod(source, period.first, period.last, step)


@dataclass(frozen=True, slots=True)
class SeriesTask:
    """A series to score; ``file`` gets its verdicts."""

    settings: "Settings"
    warmups: tuple[Path, ...]
    series: SnapshotSeries
    file: Path


@dataclass(frozen=True, slots=True)
class ScoredSeries:
    """A series that was scored: its summary, and notes on what was left out."""

    name: str
    tally: Tally
    notes: tuple[str, ...]


def score_series(
    settings: "Settings", series: Sequence[SnapshotSeries], warmups: Sequence[Path], jobs: int, folder: Path
) -> list[ScoredSeries]:
    """Score series, ``jobs`` of them in parallel, into files of this folder.

    Args:
        warmups: recordings that set the baselines of each series first.

    Raises:
        NoTelemetry: a period has no snapshot.
        ServeError: a series could not be read.
    """
    from serve_app.cli.reading import count_snapshots

    folder.mkdir(parents=True, exist_ok=True)
    tasks = [SeriesTask(settings, tuple(warmups), one, folder / f"{one.name}.jsonl") for one in series]
    steps = [count_snapshots(one.open_source(settings)) or 0 for one in series]
    with start_workers(min(jobs, len(tasks))) as workers:
        return workers.each("scoring", _score_one, tasks, steps)


def _score_one(task: SeriesTask) -> ScoredSeries:
    from serve_app.recordings.segments import open_recording

    source, tally = task.series.open_source(task.settings), Tally()
    warmups = [open_recording(path) for path in task.warmups]
    learned = (warmup.snapshots() for warmup in warmups)
    with task.file.open("w", encoding="utf-8") as lines:
        for moment in score_all(task.settings, task.series.mesh, learned, source.snapshots()):
            lines.write(moment.verdict.model_dump_json() + "\n")
            tally.add(moment.verdict)
            report_steps(1)
    return ScoredSeries(task.series.name, tally, tuple(notes([*warmups, source])))


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
