"""``tagae demo``: run the whole system on a simulated mesh."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from serve_app.cli.console import spinner
from serve_app.cli.options import TokenFile, read_token


def demo(
    services: Annotated[
        int, typer.Option(metavar="N", min=20, help="Services in the mesh; above 2,000 it is split into parts.")
    ] = 60,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed for the mesh and its events.")] = 0,
    once: Annotated[
        bool, typer.Option("--once", help="Stop after the first fault; the exit code is 0 if TAGAE found it.")
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0,
            help="Speed relative to real time, after the warm-up; 0: as fast as possible. Default: 60; 0 with --once.",
        ),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Simulate a mesh, and send it over HTTP to a service on this machine.

    Two harmless changes come first, which must not raise an alert. Then comes a fault, which must, with its culprit
    named. The terminal shows the progress. The demo's page shows the mesh, and its panel starts faults and changes of
    each kind at any time. Stop with Ctrl-C. No files remain.

    With --once there is no panel. The exit code is 0 only if the fault raised an alert, each of its alerts has the
    faulty service among the first three suspects, and no other alert came; otherwise it is 1.

    \b
    Example:
      tagae demo
      tagae demo --services 3000 --once
    """
    from lab.demo.run import demonstrate

    pace = speed if speed is not None else 0.0 if once else 60.0
    console = Console(highlight=False)
    try:
        passed = demonstrate(
            console,
            partial(spinner, console=console),
            services=services,
            seed=seed,
            once=once,
            speed=pace,
            token=read_token(token_file),
        )
    except KeyboardInterrupt:  # before the service starts; later, a signal ends the demo in order
        return
    if once and not passed:
        raise typer.Exit(1)
