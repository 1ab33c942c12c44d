"""``tagae serve``: runs the service on this machine."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, NoReturn

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import stderr_console

END_SECONDS = 8.0  # from a signal to a forced end


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
      tagae serve --port 9000 --set scorer.num_replicas=4
    """
    from serve_app.app import start, stop
    from serve_app.deployments.supervisor import adopt_orphans, watch
    from serve_app.settings import load

    chosen = load(config, overrides(settings, host=("serve.host", host), port=("serve.port", port)))
    console = stderr_console()
    adopt_orphans()
    ended = threading.Event()
    # Ray's processes end with the thread that started them (PR_SET_PDEATHSIG), so it lives as long as they do.
    beside = ThreadPoolExecutor(1, "Ray")
    with console.status("starting"):
        starting = beside.submit(start, chosen)
        while not starting.done():
            _end_on_signals(ended)  # repeatedly, since Ray installs its own handlers while it starts
            wait([starting], 0.1)
            if ended.is_set():
                _end_by_force()
        url = starting.result()
        _end_on_signals(ended)
    console.print(f"[bold green]ready[/]   Page: {url}/   API: {url}/openapi.json   Stop with Ctrl-C")
    if reason := watch(url, chosen.serve.recovery_seconds, ended):
        console.print(
            f"[bold red]ended[/]: {reason}; start the service again, or let systemd restart it", soft_wrap=True
        )
        _end_by_force(1)  # Ray's own shutdown would wait for processes that are gone
    with console.status("stopping"):
        beside.submit(stop).result()
        beside.shutdown()


def _end_on_signals(ended: threading.Event) -> None:
    """Make SIGINT and SIGTERM set ``ended``. The process is killed soon after, since calls of Ray may hang."""

    def end(*_: object) -> None:
        if not ended.is_set():
            ended.set()
            timer = threading.Timer(END_SECONDS, _end_by_force)
            timer.daemon = True
            timer.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _end_by_force(status: int = 0) -> NoReturn:
    """Kill this process and its descendants. Acknowledged data is stored."""
    from serve_app.deployments.local import remove_token
    from serve_app.deployments.supervisor import kill_all_below

    kill_all_below()
    remove_token()
    os._exit(status)
