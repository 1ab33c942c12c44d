"""``tagae evaluate``: measure detectors on labelled recordings."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from serve_app.cli.console import print_note, progress
from serve_app.cli.options import Assignments, ConfigFile, read_settings


def evaluate(
    recording: Annotated[list[Path], typer.Argument(metavar="RECORDING...", help="Folders with labelled recordings.")],
    verdicts: Annotated[
        list[str],
        typer.Option(
            "--verdicts",
            "-v",
            metavar="NAME=FILE",
            help="A detector's verdicts, as `tagae score` writes them: a file, or for several recordings a folder with "
            "a file named after each (RECORDING.jsonl). Repeatable.",
        ),
    ],
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures as JSON; - is stdout.")
    ] = None,
    begin_after: Annotated[
        float, typer.Option(metavar="S", min=0, help="Ignore the first S seconds of each recording.")
    ] = 0.0,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Measure the quality of detectors on labelled recordings, by their verdicts.

    Recordings of the same form are pooled: streams of one application, segments, located incidents of large or
    simulated meshes, normal operation. The labels are in incidents.parquet; a file without rows means no incident.

    \b
    Example:
      tagae score out/shop -o out/tagae.jsonl
      tagae evaluate out/shop --verdicts tagae=out/tagae.jsonl
      tagae evaluate out/shop out/bank -v tagae=out/verdicts/tagae -v rules=out/verdicts/rules --json -
    """
    from lab.evaluation.figures import print_figures, rows
    from lab.evaluation.inputs import verdict_files
    from lab.evaluation.run import EvaluationOptions, evaluate_all, pool_by_form

    files = verdict_files(verdicts, recording)
    rules = EvaluationOptions(read_settings(config, assignments).alert, timedelta(seconds=begin_after))
    sheets = evaluate_all(recording, files, rules)
    pools = pool_by_form(list(progress(sheets, "evaluating", len(recording))))
    text = json.dumps(rows(pools), indent=1, allow_nan=False)
    if as_json == Path("-"):
        typer.echo(text)
        return
    print_figures(pools, Console(highlight=False))
    if as_json is not None:
        as_json.parent.mkdir(parents=True, exist_ok=True)
        as_json.write_text(text + "\n", encoding="utf-8")
        print_note(f"wrote {as_json}")
