"""``tagae record``: a live mesh written down."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import bars, for_people
from serve_app.cli.live import Collected, PrometheusUrl, mesh_of

if TYPE_CHECKING:
    from model.snapshot import MeshSnapshot
    from serve_app.collect.loop import MeshCollector
    from serve_app.recordings.segments import Recorder

MOST_MISSED = 40_320  # instants: a week at 15 s, what Prometheus may still have


def record(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="Folder of the recording's segments.")],
    prometheus: PrometheusUrl = None,
    mesh: Collected = None,
    snapshots: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End after so many; by default at Ctrl-C.")
    ] = None,
    segment: Annotated[int, typer.Option(metavar="N", min=1, help="Snapshots of a segment, each a recording.")] = 240,
    gigabytes: Annotated[
        float, typer.Option("--max-gigabytes", metavar="X", help="Of all segments; the oldest are given up.")
    ] = 10.0,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Record a live mesh, as the collector would see it: a folder of recordings, an hour each.

    Run again, it goes on where the last complete segment ends, and asks Prometheus for what came since.

    \b
    Example:
      tagae record out/live --prometheus http://127.0.0.1:9090
      tagae score out/live -o verdicts.jsonl
    """
    from serve_app.collect.loop import MeshCollector, PollSchedule
    from serve_app.collect.prometheus.detect import MeshSource
    from serve_app.errors import Overloaded
    from serve_app.recordings.segments import Bounds, Recorder
    from serve_app.settings import load

    given = load(config, overrides(settings))
    chosen, (name, asked) = given.collector, mesh_of(given, prometheus, mesh)
    schedule = PollSchedule(chosen.interval_seconds, chosen.behind_seconds, MOST_MISSED)
    source = MeshSource(asked, chosen)
    with Recorder(folder, chosen.interval_seconds, Bounds(segment, int(gigabytes * 2**30))) as recorder:
        began = recorder.until

        async def push(snapshot: "MeshSnapshot") -> None:
            if snapshots is not None and recorder.written >= snapshots:
                raise Overloaded("as many snapshots as were wanted are written")
            await asyncio.to_thread(recorder.write, snapshot)

        collecting = MeshCollector(name, source, push, schedule)
        collecting.begin(began.timestamp() if began else None)
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(_recorded(collecting, recorder, snapshots))
        finally:
            source.close()
    for_people().print(f"{folder}: {recorder.written} snapshots written")


async def _recorded(collecting: "MeshCollector", recorder: "Recorder", wanted: int | None) -> None:
    """Until as many are written as are wanted, with a bar that tells what is wrong."""
    running = asyncio.create_task(collecting.run())
    with bars() as shown:
        bar = shown.add_task("recording", total=wanted)
        while wanted is None or recorder.written < wanted:
            state = collecting.state
            about = state.problem or f"{state.services} services, {state.calls} calls"
            shown.update(bar, completed=recorder.written, description=f"recording: {about[:100]}")
            await asyncio.wait({running}, timeout=0.2)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
