"""``tagae score``: verdicts of a recording, in this process or through a running service."""

import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import Tally, for_people, progress

if TYPE_CHECKING:
    from model.snapshot import MeshSnapshot
    from serve_app.recording import RecordingReader
    from serve_app.schemas import VerdictDocument
    from serve_app.settings import Settings


def score(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="Folder of the recording.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the verdicts; - is stdout.")] = Path("-"),
    warmup: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORDING", help="Normal traffic that sets baselines first; any time. Repeatable."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running service; by default all happens in this process.")] = None,
    mesh: Annotated[
        str | None, typer.Option(help="With --url: a mesh to go on with and keep; by default a new one, deleted after.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the shipped one; not with --url.")] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Score a recording: one line of JSON for each snapshot, a summary for people on stderr.

    Exit code 0 says that every snapshot was scored, whatever the verdicts are; read those from the lines.

    \b
    Example:
      tagae score out/shop -o verdicts.jsonl
      tagae score out/shop --warmup out/quiet | jq -c '[.observed_at, .status, .suspects[0].service]'
      tagae score out/shop --url http://127.0.0.1:8000
    """
    from serve_app.recording import RecordingReader
    from serve_app.settings import load

    if url and (weights or config or settings):
        raise typer.BadParameter("--weights, --config and --set are the service's own with --url", param_hint="--url")
    if mesh and not url:
        raise typer.BadParameter(
            "only with --url; in this process a mesh lives as long as the run", param_hint="--mesh"
        )
    warmups = [RecordingReader(path) for path in warmup or ()]
    reader = RecordingReader(recording)
    with ExitStack() as stack:
        if url:
            verdicts = stack.enter_context(_through_service(url, mesh, warmups, reader))
        else:
            chosen = load(config, overrides(settings, weights=("model.weights", weights)))
            verdicts = _in_process(chosen, warmups, reader)
        lines = stack.enter_context(_opened(output))
        tally = Tally()
        for verdict in verdicts:
            lines.write(verdict.model_dump_json() + "\n")
            tally.add(verdict)
    for note in _notes([*warmups, reader]):
        for_people().print(note)
    tally.show()


def _in_process(
    settings: "Settings", warmups: Iterable["RecordingReader"], reader: "RecordingReader"
) -> Iterator["VerdictDocument"]:
    import torch

    from model.checkpoint import SHIPPED, load
    from serve_app.codec import encode_verdict
    from serve_app.pipeline import Mesh, advance, options

    torch.set_num_threads(settings.model.threads)
    checkpoint, chosen, mesh = load(settings.model.weights or SHIPPED), options(settings), Mesh()
    for quiet in warmups:
        for snapshot in _read(quiet, "warming up"):
            _, mesh = advance(checkpoint, mesh, snapshot, chosen, counted=False)
    for snapshot in _read(reader, "scoring"):
        verdict, mesh = advance(checkpoint, mesh, snapshot, chosen)
        yield encode_verdict(verdict)


@contextmanager
def _through_service(
    url: str, mesh: str | None, warmups: Iterable["RecordingReader"], reader: "RecordingReader"
) -> Iterator[Iterator["VerdictDocument"]]:
    """The verdicts of a service; a mesh of this run's own is deleted at the end, also of a run that failed."""
    from serve_app.client import Client
    from serve_app.errors import UnknownMesh

    name = mesh or f"score-{uuid.uuid4().hex[:12]}"
    with Client(url) as client:
        client.meshes()  # nobody there: say so before anything else happens
        try:
            for quiet in warmups:
                for snapshot in _read(quiet, "warming up"):
                    client.baseline(name, snapshot)
            yield (client.push(name, snapshot) for snapshot in _read(reader, "scoring"))
        finally:
            if not mesh:
                with suppress(UnknownMesh):  # nothing came so far
                    client.delete(name)


def _opened(output: Path) -> AbstractContextManager[TextIO]:
    return nullcontext(sys.stdout) if str(output) == "-" else output.open("w", encoding="utf-8")


def _read(reader: "RecordingReader", what: str) -> Iterator["MeshSnapshot"]:
    counts: dict[str, Any] = reader.meta.get("counts", {})
    return progress(reader.snapshots(), f"{what} {reader.path.name}", counts.get("snapshots"))


def _notes(readers: Iterable["RecordingReader"]) -> Iterator[str]:
    for reader in readers:
        if reader.dropped_calls or reader.unmeasured_calls:
            yield (
                f"{reader.path.name}: left out {reader.dropped_calls} calls with an end that has no row and "
                f"{reader.unmeasured_calls} without a rate"
            )
