"""Output of the command line during a wait."""

import io

from rich.console import Console

from serve_app.cli.console import spinner


def show_wait(*, terminal: bool) -> str:
    file = io.StringIO()
    with spinner("starting", Console(file=file, force_terminal=terminal, width=80)):
        pass
    return file.getvalue()


def test_a_wait_shows_its_reason_and_the_time_elapsed() -> None:
    assert "starting" in show_wait(terminal=True)
    assert "0:00:0" in show_wait(terminal=True)


def test_a_wait_shows_nothing_without_a_terminal() -> None:
    assert show_wait(terminal=False) == ""
