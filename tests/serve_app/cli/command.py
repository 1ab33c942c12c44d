"""The command line, run once in this process."""

from typer.testing import CliRunner, Result

from serve_app.cli import app


def tagae(*arguments: object, columns: int = 1000) -> Result:
    """Run a command on a terminal of this width, with separate output streams."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})
