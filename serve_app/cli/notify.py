"""``tagae notify``: tests a running service's receivers of notifications."""

from typing import TYPE_CHECKING, Annotated

import typer

from serve_app.cli.options import of_service

if TYPE_CHECKING:
    from serve_app.api.client import Client

app = typer.Typer(no_args_is_help=True, help="Try the receivers of notifications of a running service.")


@app.command("test")
@of_service
def send_test(
    client: "Client",
    receiver: Annotated[
        str | None, typer.Argument(metavar="[RECEIVER]", help="Kind or address of receivers. Default: all.")
    ] = None,
) -> None:
    """Send a test alert, and report which receivers accepted it.

    The service sends it in the same way as an incident's alert. The exit code is 1 if a receiver did not accept it, or
    if there is none.

    \b
    Example:
      tagae notify test
      tagae notify test slack --token-file admin.token
    """
    from serve_app.cli.console import print_state

    results = client.send_test_alert(receiver)
    if not results:
        print_state("no receivers:", "add some to [notify] in the settings", "bold red")
    for one in results:
        if one.failed:
            print_state("failed:", f"{one.kind} {one.name}: {one.detail or one.failed}", "bold red")
        else:
            print_state("sent:", f"{one.kind} {one.name}", "bold green")
    if not results or any(one.failed for one in results):
        raise typer.Exit(1)
