"""A live mesh written down: complete recordings of an hour or so side by side, the oldest given up when room runs out.

A recording cannot grow once it is complete, and one that is not complete is lost. So what is written is cut into
segments, each a recording of its own; a recorder that was stopped goes on after the last complete one, and asks
Prometheus again for what came since.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from model.snapshot import MeshSnapshot
from serve_app.errors import BadRecording
from serve_app.recordings.files import RecordingReader, RecordingWriter

NAME = "%Y%m%dT%H%M%S.%fZ"  # of a segment: its first instant


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept.

    Attributes:
        segment_snapshots: of one segment.
        most_bytes: of all segments; the oldest go first, the one being written stays.
    """

    segment_snapshots: int = 240
    most_bytes: int = 10 * 2**30


class SegmentReader:
    """All complete segments of a folder as one source; a :class:`~serve_app.collect.base.SnapshotSource`.

    Raises:
        BadRecording: there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.readers = [RecordingReader(segment) for segment in segments(folder)]
        if not self.readers:
            raise BadRecording(
                f"recording {folder}: expected meta.json, or folders that have one, found neither; is the path right?"
            )

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots of the newest segment, s."""
        return self.readers[-1].interval_seconds

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """The snapshots of all segments, oldest first; errors as of a recording."""
        for reader in self.readers:
            yield from reader.snapshots()


class Recorder:
    """Writes segments; a context manager that completes the one being written, however it is left.

    Args:
        folder: of the segments.
        interval_seconds: expected time between two snapshots, s.
        bounds: how much is kept.
    """

    def __init__(self, folder: Path, interval_seconds: float, bounds: Bounds | None = None) -> None:
        self.folder = folder
        self.written = 0
        self._bounds = bounds or Bounds()
        self._interval_seconds = interval_seconds
        self._open = ExitStack()
        self._writer: RecordingWriter | None = None
        self._held = 0  # snapshots in the segment being written

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in set(self.folder.iterdir()) - set(segments(self.folder)):
            if left.is_dir() and _begun(left) is not None:  # ours, and never completed
                shutil.rmtree(left)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._complete()

    @property
    def until(self) -> datetime | None:
        """The last instant of the newest complete segment; None: there is none."""
        kept = segments(self.folder)
        return datetime.fromisoformat(RecordingReader(kept[-1]).meta["newest"]) if kept else None

    def write(self, snapshot: MeshSnapshot) -> None:
        """Append a snapshot.

        Raises:
            BadRecording: it is not newer than the one before.
        """
        if self._writer is None:
            path = self.folder / snapshot.observed_at.strftime(NAME)
            self._writer = self._open.enter_context(RecordingWriter(path, self._interval_seconds))
        self._writer.write(snapshot)
        self._held += 1
        self.written += 1
        if self._held >= self._bounds.segment_snapshots:
            self._complete()

    def _complete(self) -> None:
        self._open.close()
        self._writer, self._held = None, 0
        kept = segments(self.folder)
        sizes = [_size(segment) for segment in kept]
        while len(kept) > 1 and sum(sizes) > self._bounds.most_bytes:
            shutil.rmtree(kept.pop(0))
            sizes.pop(0)


def segments(folder: Path) -> list[Path]:
    """Complete segments of a folder, oldest first."""
    if not folder.is_dir():
        return []
    complete = (path for path in folder.iterdir() if (path / "meta.json").is_file())
    return sorted(path for path in complete if _begun(path) is not None)


def _begun(segment: Path) -> datetime | None:
    try:
        return datetime.strptime(segment.name, NAME)
    except ValueError:
        return None


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())
