"""``tagae serve``: the service on this machine."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import for_people

END_SECONDS = 8.0  # after a signal, for an orderly end


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
    from serve_app.deployments.supervisor import adopt_orphans, kill_all_below, watch
    from serve_app.settings import load

    chosen = load(config, overrides(settings, host=("serve.host", host), port=("serve.port", port)))
    console = for_people()
    adopt_orphans()
    with _ended_by_signals() as ended:
        with console.status("starting"):
            url = start(chosen)
        console.print(f"[bold green]ready[/] at {url}   routes {url}/openapi.json   Ctrl-C ends it")
        if reason := watch(url, chosen.serve.recovery_seconds, ended):
            console.print(
                f"[bold red]ended[/]: {reason}; start the service again, or let systemd do it", soft_wrap=True
            )
            kill_all_below()
            os._exit(1)  # Ray's own shutdown would wait for processes that are gone
        with console.status("stopping"):
            stop()


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. The process ends soon after in any state, since Ray's calls may hang."""
    from serve_app.deployments.supervisor import kill_all_below

    ended = threading.Event()

    def end_by_force() -> None:
        kill_all_below()
        os._exit(0)

    def end(*_: object) -> None:
        if ended.is_set():
            return
        ended.set()
        timer = threading.Timer(END_SECONDS, end_by_force)
        timer.daemon = True
        timer.start()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
