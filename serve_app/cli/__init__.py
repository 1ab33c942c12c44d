"""The command line, ``tagae``.

Each command imports torch and Ray itself, so that help is fast, and ``lab``, which an installation that only serves
lacks.
"""

import importlib.metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from serve_app.cli import (
    configure,
    demo,
    doctor,
    embeddings,
    evaluate,
    export,
    incidents,
    models,
    notify,
    record,
    report,
    rules,
    score,
    serve,
    simulate,
    store,
    token,
    train,
)
from serve_app.cli.console import print_error
from serve_app.cli.serve import OWNS_PROCESS
from serve_app.errors import BadSettings

__all__ = ["app", "main"]

FAILED = 1  # typer uses 2 for a wrong command line and 130 for Ctrl-C


class _CommandGroup(TyperGroup):
    """A group of commands that prints an error as one paragraph on stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.TyperException, typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            print_error(_explain_missing_lab(error, ctx.invoked_subcommand) or error)
            raise typer.Exit(FAILED) from None


def _explain_missing_lab(error: Exception, command: str | None) -> BadSettings | None:
    """Return the remedy if a command needs ``lab`` and it is not installed; None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or error.name != "lab":
        return None
    return BadSettings(
        f"tagae {command}: the package lab is not installed, as in a container image; "
        "run this command where the wheel is installed (pip install tagae)"
    )


app = typer.Typer(
    name="tagae",
    cls=_CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(print_version: bool) -> None:
    if print_version:
        typer.echo(f"tagae {importlib.metadata.version('tagae')}")
        raise typer.Exit


@app.callback()
def _tagae(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find out when a service mesh stops behaving normally, and which service caused it.

    New here? [bold]tagae demo[/] shows it in a minute.

    Exit codes: 0 success; 1 failure, explained on stderr; 2 wrong command line; 130 stopped by Ctrl-C.
    """


app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("score")(score.score)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
app.command("record")(record.record)
app.command("report")(report.report)
app.command("rules")(rules.rules)
app.command("simulate", cls=simulate.SimulateCommand)(simulate.simulate)
app.command("train")(train.train)
app.command("doctor")(doctor.doctor)
app.add_typer(configure.app, name="config")
app.add_typer(embeddings.app, name="embeddings")
app.add_typer(incidents.app, name="incidents")
app.add_typer(models.app, name="models")
app.add_typer(notify.app, name="notify")
app.add_typer(store.app, name="store")
app.add_typer(token.app, name="token")


def main() -> None:
    app(obj=OWNS_PROCESS)
