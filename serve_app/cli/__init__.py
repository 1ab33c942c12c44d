"""The command line, ``tagae``. Heavy imports (torch, Ray) wait inside the commands, so that help comes at once."""

import importlib.metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from serve_app.cli import (
    configure,
    demo,
    doctor,
    evaluate,
    record,
    report,
    rules,
    score,
    serve,
    sidecar,
    simulate,
    token,
    train,
)
from serve_app.cli.console import explain

__all__ = ["app", "main"]

FAILED = 1  # 2 is a wrong command line and 130 Ctrl-C, both typer's own


class _Translated(TyperGroup):
    """Commands whose errors end as one paragraph on stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            explain(error)
            raise typer.Exit(FAILED) from None


app = typer.Typer(
    name="tagae",
    cls=_Translated,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tagae {importlib.metadata.version('tagae')}")
        raise typer.Exit


@app.callback()
def _tagae(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find out when a service mesh stops behaving as it does, and whose doing it is.

    New here? [bold]tagae demo[/] shows all of it in a minute.

    Exit codes: 0 done; 1 failed, one paragraph on stderr says why; 2 wrong command line; 130 stopped by Ctrl-C.
    """


app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("sidecar")(sidecar.sidecar)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("record")(record.record)
app.command("report")(report.report)
app.command("rules")(rules.rules)
app.command("simulate", help=simulate.HELP)(simulate.simulate)
app.command("train")(train.train)
app.command("doctor")(doctor.doctor)
app.add_typer(configure.app, name="config")
app.add_typer(token.app, name="token")


def main() -> None:
    """Entry point of the console script."""
    app()
