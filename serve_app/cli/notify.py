"""``tagae notify``: test a running service's receivers of notifications."""

from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.options import of_service

if TYPE_CHECKING:
    from serve_app.api.client import Client

app = typer.Typer(no_args_is_help=True, help="Test a running service's receivers of notifications.")


@app.command("test")
@of_service
def send_test(
    client: "Client",
    receiver: Annotated[
        str | None, typer.Argument(metavar="[RECEIVER]", help="Receivers of this kind or address. Default: all.")
    ] = None,
) -> None:
    """Send a test alert, and report which receivers accepted it.

    The service sends it like an incident's alert. The exit code is 1 if a receiver did not accept it, or if there is
    no receiver.

    \b
    Example:
      tagae notify test
      tagae notify test slack --token-file admin.token
    """
    from serve_app.cli.console import print_state

    results = client.send_test_alert(receiver)
    if not results:
        print_state("no receivers:", "add some to [notify] in the settings", "bold red")
    for result in results:
        if result.failed:
            print_state("failed:", f"{result.kind} {result.name}: {result.detail or result.failed}", "bold red")
        else:
            print_state("sent:", f"{result.kind} {result.name}", "bold green")
    if not results or any(result.failed for result in results):
        raise typer.Exit(1)
