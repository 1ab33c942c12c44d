"""``tagae serve``: run the service on this machine."""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.progress import TaskID

from serve_app.cli.console import Steps, bars, print_state, spinner, write_json
from serve_app.cli.options import Assignments, ConfigFile, overrides
from serve_app.observability.logs import stderr_handler
from serve_app.runtime.environment import leave_other_clusters
from serve_app.runtime.service_start import ServiceStart
from serve_app.runtime.supervisor import News, watch

LINES = 4  # for reading a mesh's past, if there is no bar
LOST = 75  # exit code of a service that cannot continue (EX_TEMPFAIL)
OWNS_PROCESS = "owns the process"  # the context object in the console script


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. Default: 8000.")] = None,
    single: Annotated[
        bool, typer.Option("--single", help="One process without Ray, such as beside a workload; also serves gRPC.")
    ] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Run the service on this machine until Ctrl-C.

    It starts and stops Ray Serve itself, and starts again on the same port if it loses Ray. On a cluster, use
    [bold]serve run serve_app.app:build[/].

    \b
    Example:
      tagae serve
      tagae serve --port 9000 --set scorer.device=cpu
      tagae serve --single --set meshes.shop.prometheus=http://127.0.0.1:9090
    """
    if single:
        _serve_single(config, overrides(assignments, {"serve.host": host, "serve.port": port}))
        return
    # The keeper would replace a program that calls this command in its own process.
    service_start = ServiceStart.begin() if context.obj == OWNS_PROCESS else ServiceStart()
    values = overrides(assignments, {"serve.host": host, "serve.port": service_start.port or port})
    leave_other_clusters()  # before Python imports Ray, which then reads some of the variables
    _serve_on_ray(config, values, service_start)


def _serve_on_ray(config: Path | None, values: dict[str, Any], service_start: ServiceStart) -> None:
    """Run the service until it is stopped. If it cannot continue, end this process; the keeper then starts another."""
    from serve_app.settings import load

    settings = load(config, values)
    if settings.logs.format == "json":
        write_json("serve")
    if service_start.number:
        print_state("starting again", "with the same address and all data", "bold yellow")
    steps = Steps()
    steps("loading the program")
    from serve_app.runtime import fork_server

    fork_server.start()  # its imports take as long as ours, on another core
    from serve_app.app import start, stop
    from serve_app.runtime.lifetime import Lifetime

    lifetime = Lifetime(partial(start, settings, report=steps), stop)
    with spinner("starting"):
        url = lifetime.start()
    service_start.report(urlsplit(url).port or 0)
    print_state("ready", f"after {steps.seconds:.0f} s\n  {_links(url)}\n  Stop with Ctrl-C", "bold green")
    with closing(Terminal()) as terminal:
        reason = watch(url, lifetime.ended, terminal.tell)
    if reason:
        print_state("lost:", f"{reason}; the service starts again", "bold yellow")
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # Ray prints pages of logs about it
            lifetime.end_by_force(LOST)  # Ray's own shutdown would wait for processes that are gone
    with spinner("stopping"):
        lifetime.stop()


class Terminal:
    """Show changes while the service runs: failing receivers, and the share of new meshes' past that has been read, as
    a bar per mesh on a terminal, otherwise as lines."""

    def __init__(self) -> None:
        self._bars, self._news = bars(), News()
        self._tasks: dict[str, TaskID] = {}

    def close(self) -> None:
        self._bars.stop()

    def tell(self, news: News) -> None:
        before, self._news = self._news, news
        if news.receivers != before.receivers:
            for problem in news.receivers:
                print_state("notifications:", problem, "bold red")
            if not news.receivers:
                print_state("notifications:", "all receivers accept them again", "bold green")
        for mesh, share in news.replays:
            self._show_replay(mesh, share, dict(before.replays).get(mesh))
        for mesh in dict(before.replays).keys() - dict(news.replays).keys():
            self._bars.remove_task(self._tasks.pop(mesh))
            print_state("reading:", f"the past of {mesh} has been read", "bold green")
        if not self._tasks:
            self._bars.stop()

    def _show_replay(self, mesh: str, share: float, before: float | None) -> None:
        if mesh not in self._tasks:
            self._bars.start()
            self._tasks[mesh] = self._bars.add_task(f"reading the past of {mesh}, %", total=100)
        self._bars.update(self._tasks[mesh], completed=round(100 * share))
        if self._bars.disable and (before is None or int(LINES * share) > int(LINES * before)):
            print_state("reading:", f"the past of {mesh}, {share:.0%}", "cyan")


def _links(url: str) -> str:
    return f"Page: {url}/\n  API:  {url}/docs"


def _serve_single(config: Path | None, values: dict[str, Any]) -> None:
    """Run the service in this process, and end the process."""
    from serve_app.settings import load

    settings, steps = load(config, values), Steps()
    if settings.logs.format == "json":
        write_json("single")
        logging.basicConfig(handlers=[stderr_handler("single")])
    else:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    for package in ("serve_app", "model"):
        logging.getLogger(package).setLevel(logging.INFO)
    steps("loading the program")
    from serve_app.sidecar.single import run

    def print_ready(url: str, grpc: Sequence[str]) -> None:
        places = "".join(f"\n  gRPC: {address}" for address in grpc)
        print_state("ready", f"after {steps.seconds:.0f} s\n  {_links(url)}{places}\n  Stop with Ctrl-C", "bold green")

    # asyncio.run would wait for a running poll.
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run(settings, print_ready))
    # All state is saved. A query that hangs would delay the end of the interpreter.
    logging.shutdown()
    os._exit(0)
