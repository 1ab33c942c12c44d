"""``tagae serve``: the service on this machine."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, NoReturn

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
    from serve_app.deployments.supervisor import adopt_orphans, watch
    from serve_app.settings import load

    chosen = load(config, overrides(settings, host=("serve.host", host), port=("serve.port", port)))
    console = for_people()
    adopt_orphans()
    ended = threading.Event()
    # Ray's processes end with the thread that started them (PR_SET_PDEATHSIG), so it lives as long as they do.
    beside = ThreadPoolExecutor(1, "Ray")
    with console.status("starting"):
        starting = beside.submit(start, chosen)
        while not starting.done():
            _end_on_signals(ended)  # again and again, since Ray installs handlers of its own as it starts
            wait([starting], 0.1)
            if ended.is_set():
                _end_by_force()
        url = starting.result()
        _end_on_signals(ended)
    console.print(f"[bold green]ready[/] at {url}   routes {url}/openapi.json   Ctrl-C ends it")
    if reason := watch(url, chosen.serve.recovery_seconds, ended):
        console.print(f"[bold red]ended[/]: {reason}; start the service again, or let systemd do it", soft_wrap=True)
        _end_by_force(1)  # Ray's own shutdown would wait for processes that are gone
    with console.status("stopping"):
        beside.submit(stop).result()
        beside.shutdown()


def _end_on_signals(ended: threading.Event) -> None:
    """Let SIGINT and SIGTERM set ``ended``. Soon after, the process ends in any state, since Ray's calls may hang."""

    def end(*_: object) -> None:
        if not ended.is_set():
            ended.set()
            timer = threading.Timer(END_SECONDS, _end_by_force)
            timer.daemon = True
            timer.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _end_by_force(status: int = 0) -> NoReturn:
    """End this process and all below it. What was acknowledged is stored."""
    from serve_app.deployments.local import remove_token
    from serve_app.deployments.supervisor import kill_all_below

    kill_all_below()
    remove_token()
    os._exit(status)
