"""``tagae serve``: the service on this machine."""

import signal
import threading
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import for_people


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; loopback by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. 8000 by default.")] = None,
    config: ConfigFile = None,
    settings: Assignments = None,
) -> None:
    """Start the service on this machine and stay until Ctrl-C.

    It needs no cluster: Ray Serve is started and ended with it. On a cluster use
    [bold]serve run serve_app.app:build[/].

    \b
    Example:
      tagae serve
      tagae serve --port 9000 --set scorer.num_replicas=4
    """
    from serve_app.app import start, stop
    from serve_app.settings import load

    chosen = load(config, overrides(settings, host=("serve.host", host), port=("serve.port", port)))
    console = for_people()
    with console.status("starting"):
        url = start(chosen)
    try:
        console.print(f"[bold green]ready[/] at {url}   routes {url}/openapi.json   Ctrl-C ends it")
        _until_told()
    finally:
        with console.status("stopping"):
            stop()


def _until_told() -> None:
    """Wait for SIGINT or SIGTERM."""
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        told.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
