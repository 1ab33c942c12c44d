"""The source ``files``: another program writes one snapshot per file, and TAGAE reads them.

The name of a file is its time: ``1772334840.json`` is the snapshot of that Unix time, in the form in which clients push
snapshots (``docs/api.md``). Write it under another name and rename it, so that it is never read by half.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from pydantic import Field

from model.snapshot import MeshSnapshot
from serve_app.api.codec import decode_snapshot
from serve_app.collect.base import SourcePlugin
from serve_app.settings import CollectorSettings
from serve_app.settings.base import Location, SettingsGroup


class FilesOptions(SettingsGroup):
    """The table ``source_options`` of a mesh."""

    folder: Location = Field(description="folder with the files")


class FilesSource:
    """Reads the snapshots of a folder.

    Args:
        options: from the settings.
        collector: has the interval.
    """

    def __init__(self, options: FilesOptions, collector: CollectorSettings) -> None:
        self._folder: Path = options.folder
        self._interval_seconds = collector.interval_seconds

    def snapshot_at(self, at: datetime) -> MeshSnapshot | None:
        """The newest snapshot of the interval that ends with this instant; None if there is none.

        Raises:
            OSError: the folder or the file cannot be read.
            InvalidDocument: the file is no snapshot.
        """
        end = at.timestamp()
        newest = max((time for time in self._times() if end - self._interval_seconds < time <= end), default=None)
        if newest is None:
            return None
        return replace(decode_snapshot((self._folder / f"{newest}.json").read_bytes()), observed_at=at)

    def close(self) -> None:
        """Nothing stays open between two instants."""

    def _times(self) -> Iterator[int]:
        return (int(path.stem) for path in self._folder.iterdir() if path.suffix == ".json" and path.stem.isdecimal())


FILES = SourcePlugin(options=FilesOptions, open=FilesSource)
