"""``tagae evaluate``: measure detectors on labelled recordings."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import progress, stderr_console


def evaluate(
    recording: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Folders of labelled recordings.")],
    verdicts: Annotated[
        list[str],
        typer.Option(
            "--verdicts",
            "-v",
            metavar="NAME=FILE",
            help="Verdicts of a detector, as `tagae score` writes them. Give it once for each recording, in their "
            "order, or once with a folder of files named after the recordings (RECORDING.jsonl); repeat for several.",
        ),
    ],
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures as JSON; - is stdout.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The detector to compare the others with. Default: the first one."),
    ] = None,
    guard: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0, help="Ignore alarms for S seconds after an incident of a stream. Default 120."
        ),
    ] = None,
    begin_after: Annotated[
        float, typer.Option(metavar="S", min=0, help="Ignore the first S seconds of each recording.")
    ] = 0.0,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Measure how well detectors do on labelled recordings, by their verdicts.

    Recordings of the same form are pooled: streams of one application, segments, located incidents of large or
    simulated meshes, normal operation. The labels are in incidents.parquet; a file without rows means no incident.

    \b
    Example:
      tagae score out/shop -o out/tagae.jsonl
      tagae evaluate out/shop --verdicts tagae=out/tagae.jsonl
      tagae evaluate out/shop out/bank -v tagae=out/verdicts/tagae -v rules=out/verdicts/rules --json -
    """
    from lab.evaluation import documents, terminal
    from lab.evaluation.inputs import verdict_files
    from lab.evaluation.run import EvaluationOptions, evaluate_all, pool_by_form
    from serve_app.errors import BadVerdicts
    from serve_app.settings import load

    files = verdict_files(verdicts, recording)
    chosen = reference or next(iter(files))
    if chosen not in files:
        raise BadVerdicts(f"--reference: expected one of {', '.join(files)}, got {chosen!r}")
    rules = EvaluationOptions(
        load(config, overrides(settings)).alert,
        None if guard is None else timedelta(seconds=guard),
        timedelta(seconds=begin_after),
    )
    sheets = evaluate_all(recording, files, rules)
    found = pool_by_form(list(progress(sheets, "evaluating", len(recording))))
    if json is None or str(json) != "-":
        terminal.print_results(found, chosen, Console(highlight=False))
    if json is not None:
        _write(json, documents.text(found, chosen))


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    stderr_console().print(f"wrote {path}")
