"""A Prometheus with the data of a past period that it did not scrape."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.workloads import Controllers
from tests.live.monitor import Monitor
from tests.live.openmetrics import write
from tests.live.programs import find_program
from tests.live.series import Export


@contextmanager
def prometheus_with_history(
    snapshots: Sequence[MeshSnapshot],
    folder: Path,
    export: Export,
    cluster: Sequence[Controllers] | None = None,
) -> Iterator[Monitor]:
    """Run a Prometheus whose history is these snapshots and the controllers' settings at the time.

    Raises:
        AssertionError: promtool refuses the text.
        NotReady: Prometheus refuses the blocks.
    """
    text = folder / "openmetrics.txt"
    write(snapshots, text, export, cluster)
    with prometheus_with_text(text, folder, snapshots[0].observed_at, export) as monitor:
        yield monitor


@contextmanager
def prometheus_with_text(text: Path, folder: Path, first: datetime, export: Export) -> Iterator[Monitor]:
    """Run a Prometheus whose history is this text, and remove the text. Errors: see :func:`prometheus_with_history`.

    Args:
        text: OpenMetrics.
        folder: for its data.
        first: the oldest sample.
        export: how often a series is read. A series without a newer sample has ended.
    """
    load_text(text, folder)
    age = datetime.now(UTC) - first
    apart = round(export.interval_seconds / export.reads * 1000)
    with Monitor(folder, retention=f"{max(age.days, 0) + 30}d", lookback=f"{apart * 4 // 5}ms") as monitor:
        yield monitor


@contextmanager
def prometheus_with_lines(text: Path, folder: Path) -> Iterator[Monitor]:
    """Run a Prometheus with the usual lookback whose history is this text, and remove the text."""
    load_text(text, folder)
    with Monitor(folder, retention="30d") as monitor:
        yield monitor


def load_text(text: Path, folder: Path) -> None:
    """Write OpenMetrics text as blocks to the data in a folder, and remove it: it is several times as large."""
    load = [find_program("promtool") or "promtool", "tsdb", "create-blocks-from", "openmetrics"]
    command = [*load, "--max-block-duration=24h", str(text), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text.unlink()


def write_lines(lines: Mapping[str, Iterable[str]], file: Path) -> None:
    """Write OpenMetrics text: the lines of each metric, which may not be interleaved."""
    with file.open("w", encoding="utf-8") as out:
        for metric, some in lines.items():
            kind = "counter" if metric.endswith("_total") else "unknown"
            out.write(f"# TYPE {metric.removesuffix('_total')} {kind}\n")
            out.writelines(some)
        out.write("# EOF\n")
