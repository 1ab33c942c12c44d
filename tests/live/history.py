"""A Prometheus that remembers a period nobody scraped."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from model.snapshot import MeshSnapshot
from tests.live.monitor import Monitor
from tests.live.openmetrics import Export, write
from tests.live.programs import where


@contextmanager
def remembering(snapshots: Sequence[MeshSnapshot], folder: Path, export: Export) -> Iterator[Monitor]:
    """A running Prometheus whose history is these snapshots.

    Raises:
        CalledProcessError: promtool refuses the text.
        NotReady: Prometheus refuses the blocks.
    """
    text = folder / "openmetrics.txt"
    write(snapshots, text, export)
    load = [where("promtool") or "promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h"]
    subprocess.run([*load, str(text), str(folder / "data")], check=True, capture_output=True, text=True)
    text.unlink()  # several times the blocks' size
    age = datetime.now(UTC) - snapshots[0].observed_at
    monitor = Monitor(folder, retention=f"{max(age.days, 0) + 30}d")
    try:
        monitor.wait()
        yield monitor
    finally:
        monitor.program.end()
