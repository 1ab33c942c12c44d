"""Recordings of normal traffic as training runs."""

from collections.abc import Sequence
from pathlib import Path

from lab.training.dataset import TrainingRun
from serve_app.recordings.reader import RecordingReader


def recorded_runs(paths: Sequence[Path]) -> list[TrainingRun]:
    """Recordings that count as normal throughout.

    Raises:
        BadRecording: if a folder is not a recording.
        ValueError: if a recording has labelled incidents, because labels are for evaluation only.
    """
    runs = []
    for path in paths:
        reader = RecordingReader(path)
        if reader.incidents():
            raise ValueError(
                f"{path}: expected a recording without incidents, got one with {len(reader.incidents())}; "
                "use recordings with labels for evaluation only"
            )
        runs.append(TrainingRun(path.name, reader.snapshots))
    return runs
