"""``tagae score``: verdicts of a recording, in this process or through a running service."""

import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from serve_app.cli.asking import CaFile, TokenFile, token_of
from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import Tally, for_people
from serve_app.cli.live import PrometheusUrl, instant, mesh_of
from serve_app.cli.reading import judged, notes, read, recorded

if TYPE_CHECKING:
    from serve_app.api.schemas.verdict import VerdictDocument
    from serve_app.cli.reading import Source
    from serve_app.collect.prometheus.history import PastPeriod
    from serve_app.recordings.reader import RecordingReader
    from serve_app.settings import Settings


def score(
    recording: Annotated[
        Path | None, typer.Argument(metavar="RECORDING", help="Folder of the recording; or give --prometheus.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the verdicts; - is stdout.")] = Path("-"),
    warmup: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORDING", help="Normal traffic that sets baselines first; any time. Repeatable."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running service; by default all happens in this process.")] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            help="With --url: a mesh to go on with and keep; by default a new one, deleted after. With --from: a mesh "
            "of the settings."
        ),
    ] = None,
    prometheus: PrometheusUrl = None,
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Of a past period; UTC.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Of a past period; now by default.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the shipped one; not with --url.")] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Score a recording, or a past period of a live mesh: one line of JSON for each snapshot, a summary on stderr.

    Exit code 0 says that every snapshot was scored, whatever the verdicts are; read those from the lines.

    \b
    Example:
      tagae score out/shop -o verdicts.jsonl
      tagae score out/shop --warmup out/quiet | jq -c '[.observed_at, .status, .suspects[0].service]'
      tagae score out/shop --url http://127.0.0.1:8000
      tagae score --prometheus http://127.0.0.1:9090 --from 2026-03-01T12:00Z --to 2026-03-01T14:00Z
    """
    from serve_app.recordings.reader import RecordingReader
    from serve_app.settings import load

    if url and (weights or config or settings):
        raise typer.BadParameter("--weights, --config and --set are the service's own with --url", param_hint="--url")
    if (recording is None) == (begin is None):
        raise typer.BadParameter(
            "expected a recording, or a past period (--from) of a live mesh", param_hint="RECORDING"
        )
    if mesh and not (url or begin):
        raise typer.BadParameter(
            "only with --url or --from; in this process a mesh lives as long as the run", param_hint="--mesh"
        )
    chosen = load(config, overrides(settings, weights=("model.weights", weights)))
    warmups = [RecordingReader(path) for path in warmup or ()]
    source: Source = recorded(recording) if recording else _past(chosen, prometheus, url, mesh, begin, end)
    with ExitStack() as stack:
        if url:
            verdicts = stack.enter_context(_through_service(url, token_file, ca_file, mesh, warmups, source))
        else:
            verdicts = (moment.verdict for moment in judged(chosen, mesh or "", warmups, source))
        lines = stack.enter_context(_opened(output))
        tally = Tally()
        for verdict in verdicts:
            lines.write(verdict.model_dump_json() + "\n")
            tally.add(verdict)
    for note in notes([*warmups, source]):
        for_people().print(note)
    tally.show()


def _past(
    settings: "Settings", prometheus: str | None, url: str | None, mesh: str | None, begin: str | None, end: str | None
) -> "PastPeriod":
    """The period that is meant; with a service, a mesh's name is the service's and no configured one."""
    from serve_app.collect.prometheus.detect import MeshSource
    from serve_app.collect.prometheus.history import PastPeriod

    _, asked = mesh_of(settings, prometheus, None if url else mesh)
    last = instant(end) if end else datetime.now(UTC)
    collector = settings.collector
    return PastPeriod(MeshSource(asked, collector), instant(begin or ""), last, collector.interval_seconds)


@contextmanager
def _through_service(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    mesh: str | None,
    warmups: Iterable["RecordingReader"],
    source: "Source",
) -> Iterator[Iterator["VerdictDocument"]]:
    """The verdicts of a service; a mesh of this run's own is deleted at the end, also of a run that failed."""
    from model.snapshot import with_clean_names  # recordings hold names that a service does not take
    from serve_app.api.client import Client
    from serve_app.errors import Forbidden, UnknownMesh

    name = mesh or f"score-{uuid.uuid4().hex[:12]}"
    with Client(url, token=token_of(token_file), ca_file=ca_file) as client:
        client.meshes()  # nobody there: say so before anything else happens
        try:
            for quiet in warmups:
                for snapshot in read(quiet, "warming up"):
                    client.baseline(name, with_clean_names(snapshot))
            yield (client.push(name, with_clean_names(snapshot)) for snapshot in read(source, "scoring"))
        finally:
            if not mesh:
                try:
                    with suppress(UnknownMesh):  # nothing was pushed so far
                        client.delete(name)
                except Forbidden:
                    for_people().print(f"the mesh {name} stays: the token has no admin scope to delete it")


def _opened(output: Path) -> AbstractContextManager[TextIO]:
    return nullcontext(sys.stdout) if str(output) == "-" else output.open("w", encoding="utf-8")
