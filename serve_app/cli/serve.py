"""``tagae serve``: runs the service on this machine."""

from functools import partial
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import print_state, spinner, write_json


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. Default: 8000.")] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Run the service on this machine until Ctrl-C.

    It starts and stops Ray Serve itself. On a cluster, use
    [bold]serve run serve_app.app:build[/].

    \b
    Example:
      tagae serve
      tagae serve --port 9000 --set scorer.device=cpu
    """
    from serve_app.app import start, stop
    from serve_app.runtime.lifetime import Lifetime
    from serve_app.runtime.supervisor import watch
    from serve_app.settings import load

    chosen = load(config, overrides(settings, host=("serve.host", host), port=("serve.port", port)))
    if chosen.logs.format == "json":
        write_json("serve")
    lifetime = Lifetime(partial(start, chosen), stop)
    with spinner("starting"):
        url = lifetime.start()
    print_state("ready", f"Page: {url}/   API: {url}/openapi.json   Stop with Ctrl-C", "bold green")
    if reason := watch(url, chosen.serve.recovery_seconds, lifetime.ended):
        print_state("ended:", f"{reason}; start the service again, or let systemd restart it", "bold red")
        lifetime.end_by_force(1)  # Ray's own shutdown would wait for processes that are gone
    with spinner("stopping"):
        lifetime.stop()
