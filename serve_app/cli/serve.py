"""``tagae serve``: runs the service on this machine."""

from functools import partial
from typing import Annotated

import typer

from serve_app.cli.configure import Assignments, ConfigFile, overrides
from serve_app.cli.console import Steps, print_state, spinner, write_json


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
    from serve_app.settings import load

    given = overrides(settings, host=("serve.host", host), port=("serve.port", port))
    chosen = load(config, given)
    if chosen.logs.format == "json":
        write_json("serve")
    steps = Steps()
    steps("loading the program")
    from serve_app.runtime import fork_server
    from serve_app.runtime.other_clusters import leave_other_clusters

    leave_other_clusters()  # before Python imports Ray, which reads some of the variables then
    fork_server.start()  # its imports take as long as ours, on another core
    from serve_app.app import roles_on_demand, start, stop
    from serve_app.runtime.lifetime import Lifetime
    from serve_app.runtime.supervisor import watch

    lifetime = Lifetime(partial(start, chosen, report=steps), stop)
    with spinner("starting"):
        url = lifetime.start()
    links = f"  Page: {url}/\n  API:  {url}/docs\n  Stop with Ctrl-C"
    print_state("ready", f"after {steps.seconds:.0f} s\n{links}", "bold green")
    if reason := watch(url, chosen.serve.recovery_seconds, lifetime.ended, roles_on_demand(chosen)):
        print_state("ended:", f"{reason}; start the service again, or let systemd restart it", "bold red")
        lifetime.end_by_force(1)  # Ray's own shutdown would wait for processes that are gone
    with spinner("stopping"):
        lifetime.stop()
