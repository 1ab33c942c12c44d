"""The demo's progress as lines in a terminal."""

from rich.console import Console
from rich.text import Text

from lab.demo.state import DemoState, ScoredSnapshot

EVERY = 10  # snapshots between two verdicts that are printed although the status is the same
STYLES = {
    "learning": "cyan",
    "change": "cyan",
    "fault": "yellow",
    "ended": "yellow",
    "ALERT": "bold red",
    "notice": "yellow",
    "paused": "bold cyan",
    "PASS": "bold green",
    "FAIL": "bold red",
    "normal": "dim",
    "anomalous": "red",
}
WIDTH = max(map(len, (*STYLES, "warming_up")))


def print_progress(console: Console, before: DemoState, state: DemoState) -> None:
    """Print new events, alerts, notices, outcomes and statuses, and a verdict every ``EVERY`` snapshots."""
    if before.snapshots[-1:] == state.snapshots[-1:]:
        return
    newest = state.snapshots[-1]
    for label, text in state.news:
        _print(console, newest, label, text)
    status = before.snapshots[-1].verdict.status if before.snapshots else ""
    if newest.verdict.status != status or newest.index % EVERY == 0:
        _print(console, newest, newest.verdict.status, describe(newest))


def describe(snapshot: ScoredSnapshot) -> str:
    verdict = snapshot.verdict
    first = verdict.alerts[0].suspects[:3] if verdict.alerts else []
    suspects = f", suspects {', '.join(s.service for s in first)}" if first else ""
    if verdict.watching and not verdict.alerts:
        suspects = f", watching {', '.join(watched.service for watched in verdict.watching[:3])}"
    return (
        f"snapshot {snapshot.index}: score {verdict.mesh_score:.1f}, "
        f"verdict in {snapshot.milliseconds:.0f} ms{suspects}"
    )


def _print(console: Console, snapshot: ScoredSnapshot, label: str, text: str) -> None:
    line = Text.assemble((f"{snapshot.verdict.observed_at:%H:%M:%S}  ", "dim"), f"{label:<{WIDTH}}  {text}")
    line.stylize(STYLES.get(label, ""), 10)
    console.print(line, soft_wrap=True)
