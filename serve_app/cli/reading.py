"""Read recordings and score them in this process, for ``tagae score`` and ``tagae report``."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.console import progress, spinner

if TYPE_CHECKING:
    from model.snapshot import MeshSnapshot
    from serve_app.collect.prometheus.past import PastPeriod
    from serve_app.recordings.reader import RecordingReader
    from serve_app.recordings.segments import SegmentReader
    from serve_app.settings import Settings
    from serve_app.stores.scored_snapshot import ScoredSnapshot

    Source = RecordingReader | SegmentReader | PastPeriod

WarmUps = Annotated[
    list[Path] | None,
    typer.Option(metavar="RECORDING", help="Recording of normal traffic, which sets the baselines first. Repeatable."),
]


def score_snapshots(
    settings: "Settings", name: str, warmups: "Iterable[Source]", source: "Source"
) -> Iterator["ScoredSnapshot"]:
    """Yield every snapshot of a source with its verdict, with a progress bar. ``warmups`` set the baselines first."""
    with spinner("loading the model"):
        import torch

        from model.checkpoint import SHIPPED, load
        from serve_app.api.codec import encode_verdict
        from serve_app.pipeline import Mesh, advance, advance_in_detail, deviations_of, options
        from serve_app.stores.scored_snapshot import ScoredSnapshot

        torch.set_num_threads(settings.model.threads)
        checkpoint = load(settings.weights_of(name) or SHIPPED, network=settings.model.network)
        mesh_options, mesh = options(settings, name), Mesh()
    for warmup in warmups:
        for snapshot in read(warmup, "warming up"):
            _, mesh = advance(checkpoint, mesh, snapshot, mesh_options, counted=False)
    for snapshot in read(source, "scoring"):
        step = advance_in_detail(checkpoint, mesh, snapshot, mesh_options)
        mesh = step.mesh
        deviations = deviations_of(step.prepared, step.calibrated, snapshot)
        yield ScoredSnapshot.of(snapshot, deviations, encode_verdict(step.verdict))


def read(source: "Source", activity: str) -> Iterator["MeshSnapshot"]:
    """Yield the snapshots with a progress bar."""
    from serve_app.collect.prometheus.past import PastPeriod

    name = "" if isinstance(source, PastPeriod) else f" {source.path.name}"
    return progress(source.snapshots(), activity + name, count_snapshots(source))


def count_snapshots(source: "Source") -> int | None:
    """Return a recording's number of snapshots, or a period's number of instants; None if unknown."""
    from serve_app.collect.prometheus.past import PastPeriod

    if isinstance(source, PastPeriod):
        return len(source)
    counts = [reader.meta.get("counts", {}).get("snapshots") for reader in _readers([source])]
    return None if None in counts else sum(counts)


def _readers(sources: Iterable["Source"]) -> Iterator["RecordingReader"]:
    from serve_app.recordings.reader import RecordingReader
    from serve_app.recordings.segments import SegmentReader

    for source in sources:
        if isinstance(source, SegmentReader):
            yield from source.readers
        elif isinstance(source, RecordingReader):
            yield source


def notes(sources: Sequence["Source"]) -> Iterator[str]:
    """Yield notes on calls, planned changes and instants that were left out."""
    from serve_app.collect.prometheus.past import PastPeriod

    for reader in _readers(sources):
        if reader.dropped_calls or reader.unmeasured_calls:
            yield (
                f"{reader.path.name}: left out {reader.dropped_calls} calls at times when a service was missing, and "
                f"{reader.unmeasured_calls} without a rate"
            )
        if reader.unnamed_changes:
            noun = "change: its" if reader.unnamed_changes == 1 else "changes: their"
            yield f"{reader.path.name}: left out {reader.unnamed_changes} planned {noun} object is no service"
    for source in sources:
        if isinstance(source, PastPeriod) and source.missing:
            at, reason = source.missing[0]
            share = f"{len(source.missing)} of {len(source)}"
            yield f"{share} instants have no snapshot, the first {at.isoformat()}: {reason}"
