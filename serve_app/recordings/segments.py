"""Records a live mesh as a folder of segments, each of which is a complete recording.

A recording cannot grow once it is complete, and an incomplete one is lost. So a recorder starts a new segment about
every hour. After a restart, it continues after the last complete segment. It deletes the oldest segments when all of
them exceed the allowed space.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from model.snapshot import MeshSnapshot
from serve_app.errors import BadRecording
from serve_app.recordings.reader import RecordingReader
from serve_app.recordings.writer import RecordingWriter

NAME = "%Y%m%dT%H%M%S.%fZ"  # name of a segment: the time of its first snapshot


class SegmentReader:
    """Reads all complete segments in a folder; a :class:`~serve_app.collect.base.SnapshotSource`.

    Raises:
        BadRecording: if the folder has no complete segment.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.readers = [RecordingReader(segment) for segment in segments(folder)]
        if not self.readers:
            raise BadRecording(
                f"recording {folder}: expected meta.json, or folders with one, found neither; correct the path"
            )

    @property
    def interval_seconds(self) -> float:
        """Expected time between two snapshots in the newest segment, s."""
        return self.readers[-1].interval_seconds

    def snapshots(self) -> Iterator[MeshSnapshot]:
        """Yield the snapshots of all segments, oldest first. Raises the errors of :meth:`RecordingReader.snapshots`."""
        for reader in self.readers:
            yield from reader.snapshots()


class Recorder:
    """Writes segments; a context manager that completes the open segment when the block ends, even with an exception.

    Args:
        interval_seconds: expected time between two snapshots, s.
        max_bytes: maximum size of all complete segments; the oldest are deleted when they exceed it. The newest is
            always kept.

    Attributes:
        written: number of snapshots written by this recorder.
    """

    def __init__(
        self, folder: Path, interval_seconds: float, *, segment_snapshots: int = 240, max_bytes: int = 10 * 2**30
    ) -> None:
        self.folder = folder
        self.written = 0
        self._segment_snapshots, self._max_bytes = segment_snapshots, max_bytes
        self._interval_seconds = interval_seconds
        self._open = ExitStack()
        self._writer: RecordingWriter | None = None
        self._in_segment = 0  # snapshots in the open segment

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for folder in set(self.folder.iterdir()) - set(segments(self.folder)):
            if folder.is_dir() and _start(folder) is not None:  # a segment that was never completed
                shutil.rmtree(folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._complete()

    @property
    def until(self) -> datetime | None:
        """Time of the last snapshot in the newest complete segment; None if there is no segment."""
        complete_segments = segments(self.folder)
        return (
            datetime.fromisoformat(RecordingReader(complete_segments[-1]).meta["newest"]) if complete_segments else None
        )

    def write(self, snapshot: MeshSnapshot) -> None:
        """Append a snapshot.

        Raises:
            BadRecording: if it is not newer than the previous one.
        """
        if self._writer is None:
            path = self.folder / snapshot.observed_at.strftime(NAME)
            self._writer = self._open.enter_context(RecordingWriter(path, self._interval_seconds))
        self._writer.write(snapshot)
        self._in_segment += 1
        self.written += 1
        if self._in_segment >= self._segment_snapshots:
            self._complete()

    def _complete(self) -> None:
        self._open.close()
        self._writer, self._in_segment = None, 0
        complete_segments = segments(self.folder)
        sizes = [sum(file.stat().st_size for file in segment.iterdir()) for segment in complete_segments]
        while len(complete_segments) > 1 and sum(sizes) > self._max_bytes:
            shutil.rmtree(complete_segments.pop(0))
            sizes.pop(0)


def open_recording(path: Path) -> RecordingReader | SegmentReader:
    """Open a recording, or a folder of segments that ``tagae record`` wrote.

    Raises:
        BadRecording: it is not a complete recording.
    """
    return SegmentReader(path) if segments(path) else RecordingReader(path)


def segments(folder: Path) -> list[Path]:
    """Return the complete segments in a folder, oldest first."""
    if not folder.is_dir():
        return []
    complete = (path for path in folder.iterdir() if (path / "meta.json").is_file())
    return sorted(path for path in complete if _start(path) is not None)


def _start(segment: Path) -> datetime | None:
    """Return the time in a segment's name; None if the name is not a segment's."""
    try:
        return datetime.strptime(segment.name, NAME)
    except ValueError:
        return None
