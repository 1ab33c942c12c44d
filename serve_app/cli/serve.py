"""``tagae serve``: runs the service on this machine."""

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

from serve_app.cli.console import Steps, print_state, spinner, write_json
from serve_app.cli.options import Assignments, ConfigFile, overrides
from serve_app.observability.logs import stderr_handler
from serve_app.runtime.environment import leave_other_clusters
from serve_app.runtime.kept import Kept

LOST = 75  # exit code of a service that cannot go on (EX_TEMPFAIL)
OWNS_PROCESS = "owns the process"  # what the console script passes to its commands


def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: loopback.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. Default: 8000.")] = None,
    single: Annotated[
        bool, typer.Option("--single", help="One process without Ray, such as beside a workload; also serves gRPC.")
    ] = False,
    config: ConfigFile = None,
    settings: Assignments = None,
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
        _serve_single(config, overrides(settings, {"serve.host": host, "serve.port": port}))
        return
    # A program that calls this command in its own process would be replaced by the keeper.
    kept = Kept.begin() if context.obj == OWNS_PROCESS else Kept.without_keeper()
    given = overrides(settings, {"serve.host": host, "serve.port": kept.port or port})
    leave_other_clusters()  # before Python imports Ray, which reads some of the variables then
    _serve_on_ray(config, given, kept)


def _serve_on_ray(config: Path | None, given: dict[str, Any], kept: Kept) -> None:
    """Run the service until it is stopped. If it cannot go on, end this process, and the keeper starts another."""
    from serve_app.settings import load

    chosen = load(config, given)
    if chosen.logs.format == "json":
        write_json("serve")
    if kept.number:
        print_state("starting again", "with the same address and all data", "bold yellow")
    steps = Steps()
    steps("loading the program")
    from serve_app.runtime import fork_server

    fork_server.start()  # its imports take as long as ours, on another core
    from serve_app.app import start, stop
    from serve_app.runtime.lifetime import Lifetime
    from serve_app.runtime.supervisor import watch

    lifetime = Lifetime(partial(start, chosen, report=steps), stop)
    with spinner("starting"):
        url = lifetime.start()
    kept.report(urlsplit(url).port or 0)
    print_state("ready", f"after {steps.seconds:.0f} s\n  {_links(url)}\n  Stop with Ctrl-C", "bold green")
    if reason := watch(url, lifetime.ended, _print_receivers):
        print_state("lost:", f"{reason}; the service starts again", "bold yellow")
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # Ray prints pages of its log about it
            lifetime.end_by_force(LOST)  # Ray's own shutdown would wait for processes that are gone
    with spinner("stopping"):
        lifetime.stop()


def _print_receivers(problems: tuple[str, ...]) -> None:
    for problem in problems:
        print_state("notifications:", problem, "bold red")
    if not problems:
        print_state("notifications:", "all receivers take them again", "bold green")


def _links(url: str) -> str:
    return f"Page: {url}/\n  API:  {url}/docs"


def _serve_single(config: Path | None, given: dict[str, Any]) -> None:
    """Run the service in this process, and end the process."""
    from serve_app.settings import load

    settings, steps = load(config, given), Steps()
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

    # asyncio.run would wait for a poll under way.
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run(settings, print_ready))
    # All state is saved. A query that hangs would delay the end of the interpreter.
    logging.shutdown()
    os._exit(0)
