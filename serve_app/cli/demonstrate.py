"""``tagae demo``: the whole path in a terminal and on a page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from serve_app.cli.asking import TokenFile, token_of


def demo(
    services: Annotated[
        int, typer.Option(metavar="N", min=20, help="Of the mesh; above 2,000 it is cut into parts.")
    ] = 60,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the mesh and of what happens to it.")] = 0,
    once: Annotated[
        bool, typer.Option("--once", help="End after the first fault; the exit code says how it went.")
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X", min=0, help="Times real time, after the warm-up; 0: as it goes. Default 60, with --once 0."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the last screen on which a fault acts, as SVG.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, where there are windows; not with --once.")
    ] = True,
    token_file: TokenFile = None,
) -> None:
    """Watch it work: a simulated mesh, sent over HTTP to a service started for it.

    Two benign changes, which must not page; then a fault, which must, with the culprit named; then on to the next
    one. Each kind of fault and of benign change has a button on the page, whose address is printed, and a key in the
    terminal; ? tells all keys, q ends it. Where there is no terminal, or with NO_COLOR set, the story is told in plain
    lines until Ctrl-C. Nothing is left behind.

    With --once no key is read, not on the page either, and the exit code is 0 only if the fault was found, its
    service was among the first three suspects, and nothing else paged; otherwise 1, with the reason.

    \b
    Example:
      tagae demo
      tagae demo --services 3000 --once
      tagae demo --once --picture demo.svg
    """
    from serve_app.demo import demonstrate

    console = Console(highlight=False)
    pace = speed if speed is not None else 0.0 if once else 60.0
    try:
        judgement = demonstrate(
            console,
            services=services,
            seed=seed,
            once=once,
            speed=pace,
            picture=picture,
            browser=browser,
            token=token_of(token_file),
        )
    except KeyboardInterrupt:
        return
    if judgement is None or not once:
        return
    console.print(judgement.reason, style="bold green" if judgement.passed else "bold red", soft_wrap=True)
    if not judgement.passed:
        raise typer.Exit(1)
