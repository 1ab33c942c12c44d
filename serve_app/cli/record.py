"""``tagae record``: record a live mesh."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.console import bars, print_note
from serve_app.cli.options import Assignments, Collected, ConfigFile, PrometheusUrl, mesh_of_settings, read_settings

if TYPE_CHECKING:
    from model.snapshot import MeshSnapshot
    from serve_app.collect.loop import PollLoop
    from serve_app.recordings.segments import Recorder

MAX_MISSED = 40_320  # instants to catch up: a week at 15 s


def record(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Folder for the recording's segments.")],
    prometheus: PrometheusUrl = None,
    mesh: Collected = None,
    snapshots: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after N snapshots. Default: at Ctrl-C.")
    ] = None,
    segment: Annotated[
        int, typer.Option(metavar="N", min=1, help="Snapshots per segment; each segment is a recording.")
    ] = 240,
    gigabytes: Annotated[
        float, typer.Option("--max-gigabytes", metavar="X", help="Limit for all segments; the oldest are deleted.")
    ] = 10.0,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Record a live mesh as the collector reads it: a folder of recordings, an hour each.

    Run it again to continue where the last complete segment ends; it reads the missing time from Prometheus.

    \b
    Example:
      tagae record out/live --prometheus http://127.0.0.1:9090
      tagae score out/live -o verdicts.jsonl
    """
    from serve_app.collect.loop import PollLoop, PollSchedule
    from serve_app.collect.opening import open_source
    from serve_app.errors import Overloaded
    from serve_app.recordings.segments import Recorder

    settings = read_settings(config, assignments)
    collector, (name, mesh_settings) = settings.collector, mesh_of_settings(settings, prometheus, mesh)
    schedule = PollSchedule(collector.interval_seconds, collector.behind_seconds, MAX_MISSED)
    source = open_source(mesh_settings, collector)
    bounds = {"segment_snapshots": segment, "max_bytes": int(gigabytes * 2**30)}
    with Recorder(folder, collector.interval_seconds, **bounds) as recorder:
        began = recorder.until

        async def push(snapshot: "MeshSnapshot") -> None:
            if snapshots is not None and recorder.written >= snapshots:
                raise Overloaded(f"expected at most {snapshots} snapshots, got one more; the recording is complete")
            await asyncio.to_thread(recorder.write, snapshot)

        collecting = PollLoop(name, source, push, schedule)
        collecting.begin(began.timestamp() if began else None)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(_follow(collecting, recorder, snapshots))
        finally:
            source.close()
    print_note(f"{folder}: {recorder.written} snapshots written")


async def _follow(collecting: "PollLoop", recorder: "Recorder", count: int | None) -> None:
    """Collect until ``count`` snapshots are written, with a progress bar that shows the last problem."""
    task = asyncio.create_task(collecting.run())
    with bars() as progress_bars:
        bar = progress_bars.add_task("recording", total=count)
        while count is None or recorder.written < count:
            state = collecting.state
            about = state.problem or f"{state.services} services, {state.calls} calls"
            progress_bars.update(bar, completed=recorder.written, description=f"recording: {about[:100]}")
            await asyncio.wait({task}, timeout=0.2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
