"""``tagae score``: score a recording, in this process or with a running service."""

import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO

import typer

from serve_app.cli.console import Tally, print_note, spinner
from serve_app.cli.options import (
    Assignments,
    CaFile,
    ConfigFile,
    PrometheusUrl,
    TokenFile,
    mesh_of_settings,
    parse_span,
    parse_time,
    read_settings,
    read_token,
)
from serve_app.cli.reading import WarmUps, notes, read, score_snapshots

REACH_SECONDS = 5.0  # limit for an answer at the URL
SINCE_STEP_SECONDS = 60.0  # as the service reads a new mesh's past
PATIENCE_SECONDS = 300.0  # limit for a request to a busy service: a pause must not end a long run

if TYPE_CHECKING:
    from serve_app.api.schemas.verdict import VerdictDocument
    from serve_app.cli.reading import Source
    from serve_app.collect.prometheus.past import PastPeriod
    from serve_app.settings import Settings


class Period(NamedTuple):
    """A past period of a live mesh, with a snapshot every ``step_seconds``, or every configured interval if that is
    longer."""

    begin: datetime
    end: datetime
    step_seconds: float


def score(
    recording: Annotated[
        Path | None, typer.Argument(metavar="RECORDING", help="Folder of a recording; not with --from.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the verdicts; - is stdout.")] = Path("-"),
    warmup: WarmUps = None,
    url: Annotated[str | None, typer.Option(help="URL of a running service. Default: this process scores.")] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            help="With --url: a mesh to continue and keep. Default: a new one, deleted afterwards. With --from: a mesh "
            "of the settings."
        ),
    ] = None,
    prometheus: PrometheusUrl = None,
    begin: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Start of a past period; UTC.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN", help="Like --from, as a span before now such as 24h or 2d, with a snapshot each minute."
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of a past period; UTC. Default: now.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint instead of the shipped one; not with --url.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Score a recording, or a past period of a live mesh: one line of JSON per snapshot, a summary on stderr.

    Exit code 0 means that every snapshot was scored. Each line is one verdict.

    \b
    Example:
      tagae score out/shop -o verdicts.jsonl
      tagae score out/shop --warmup out/quiet | jq -c '[.observed_at, .status, .suspects[0].service]'
      tagae score out/shop --url http://127.0.0.1:8000
      tagae score --prometheus http://127.0.0.1:9090 --since 24h
      tagae score --mesh shop --from 2026-03-01T12:00Z --to 2026-03-01T14:00Z
    """
    from serve_app.recordings.segments import open_recording

    period = _parse_period(begin, since, end)
    _check_options(recording, mesh, url=url, period=period, local=weights or config or assignments)
    settings = _read_settings(config, assignments, weights)
    source: Source
    if recording is not None:
        name, source = "", open_recording(recording)
    else:
        assert period is not None  # or there is a recording
        name, source = _past_period(settings, prometheus, None if url else mesh, period)
    warmups = [open_recording(path) for path in warmup or ()]
    with ExitStack() as stack:
        if url:
            verdicts = stack.enter_context(_through_service(url, token_file, ca_file, mesh, warmups, source))
        else:
            verdicts = (moment.verdict for moment in score_snapshots(settings, name, warmups, source))
        _write_verdicts(verdicts, stack.enter_context(_open_output(output)), [*warmups, source])


def _parse_period(begin: str | None, since: str | None, end: str | None) -> Period | None:
    """Return the past period of ``--from`` or ``--since``; None without either."""
    if begin is not None and since is not None:
        raise typer.BadParameter("expected --from or --since, got both; leave one out", param_hint="--since")
    until = parse_time(end) if end else datetime.now(UTC)
    if since is not None:
        return Period(datetime.now(UTC) - parse_span(since), until, SINCE_STEP_SECONDS)
    return None if begin is None else Period(parse_time(begin), until, 0.0)


def _check_options(
    recording: Path | None, mesh: str | None, *, url: str | None, period: Period | None, local: object
) -> None:
    """Refuse incompatible options; ``local`` are those that apply only if this process scores."""
    if url and local:
        raise typer.BadParameter(
            "--url uses the service's settings; leave out --weights, --config and --set", param_hint="--url"
        )
    if (recording is None) == (period is None):
        raise typer.BadParameter(
            "expected a recording, or a past period (--since, --from) of a live mesh", param_hint="RECORDING"
        )
    if mesh and not (url or period):
        raise typer.BadParameter(
            "expected with --url or --from only; without them, the mesh is discarded after the run", param_hint="--mesh"
        )


def _read_settings(config: Path | None, assignments: list[str] | None, weights: Path | None) -> "Settings":
    """Read the settings; ``weights`` also replaces the meshes' own weights."""
    settings = read_settings(config, assignments, {"model.weights": weights})
    if weights is None:
        return settings
    meshes = {name: mesh.model_copy(update={"weights": None}) for name, mesh in settings.meshes.items()}
    return settings.model_copy(update={"meshes": meshes})


def _past_period(
    settings: "Settings", prometheus: str | None, mesh: str | None, period: Period
) -> "tuple[str, PastPeriod]":
    """Return a live mesh's name, and its snapshots in a past period."""
    from serve_app.collect.opening import open_past
    from serve_app.collect.prometheus.past import PastPeriod

    name, mesh_settings = mesh_of_settings(settings, prometheus, mesh)
    step = max(period.step_seconds, settings.collector.interval_seconds)
    return name, PastPeriod(open_past(mesh_settings, settings.collector, step).read, period.begin, period.end, step)


def _write_verdicts(verdicts: "Iterable[VerdictDocument]", lines: TextIO, sources: "Sequence[Source]") -> None:
    tally = Tally()
    for verdict in verdicts:
        lines.write(verdict.model_dump_json() + "\n")
        tally.add(verdict)
    for note in notes(sources):
        print_note(note)
    tally.show()


@contextmanager
def _through_service(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    mesh: str | None,
    warmups: "Iterable[Source]",
    source: "Source",
) -> Iterator[Iterator["VerdictDocument"]]:
    """Yield a service's verdicts. A mesh that this run created is deleted at the end, even after a failure."""
    from model.snapshot import with_good_names  # recordings may contain names that a service rejects
    from serve_app.api.client import Client
    from serve_app.errors import Forbidden, UnknownMesh

    name = mesh or f"score-{uuid.uuid4().hex[:12]}"
    with Client(
        url,
        token=read_token(token_file),
        ca_file=ca_file,
        patience_seconds=PATIENCE_SECONDS,
        reach_seconds=REACH_SECONDS,
        on_retry=print_note,
    ) as client:
        with spinner(f"connecting to {url}"):
            client.meshes()  # reports an unavailable service before the recording is read
        try:
            for warmup in warmups:
                for snapshot in read(warmup, "warming up"):
                    client.baseline(name, with_good_names(snapshot))
            yield (client.push(name, with_good_names(snapshot)) for snapshot in read(source, "scoring"))
        finally:
            if not mesh:
                try:
                    with suppress(UnknownMesh), spinner(f"deleting the mesh {name}"):  # unknown: nothing was pushed
                        client.delete(name)
                except Forbidden:
                    print_note(f"could not delete the mesh {name}: the token has no admin scope")


@contextmanager
def _open_output(output: Path) -> Iterator[TextIO]:
    """Open the file, or stdout. An earlier run's file stays unchanged until all snapshots are scored."""
    if str(output) == "-":
        yield sys.stdout
        return
    if output.exists() and not output.is_file():  # a pipe, or a device
        with output.open("w", encoding="utf-8") as lines:
            yield lines
        return
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("w", encoding="utf-8") as lines:
            yield lines
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
