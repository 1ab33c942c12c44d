"""Output that the commands share: progress, errors, the summary of scored snapshots."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from model.errors import ModelError
from serve_app.api.schemas.verdict import IncidentDocument, VerdictDocument, WatchedDocument
from serve_app.errors import ServeError
from serve_app.observability.logs import stderr_handler

T = TypeVar("T")
UNFOLDED = 10_000  # columns
NOTE_SECONDS = 60.0  # time between two lines about long work
log = logging.getLogger(__name__)
STATUS_STYLE = {"normal": "green", "anomalous": "bold red", "warming_up": "cyan", "partial": "yellow"}


@cache
def stderr_console() -> Console:
    """Return the only console on stderr, so that lines and progress bars do not overwrite each other. Stdout is for
    results that programs read."""
    return Console(stderr=True, highlight=False)


def print_note(text: str) -> None:
    """Print a line on stderr, above any progress bar."""
    stderr_console().print(escape(text), soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table on stdout. Lines are not folded at the terminal's width, so that ids can be copied."""
    Console(highlight=False, width=UNFOLDED).print(table)


def write_json(component: str) -> None:
    """Switch this command's states and errors to JSON lines."""
    log.handlers = [stderr_handler(component)]
    log.propagate = False
    log.setLevel(logging.INFO)


def print_state(state: str, text: str, style: str) -> None:
    """Print a state of a command that keeps running, such as ``ready``, on stderr."""
    if log.handlers:
        log.info("%s %s", state, " ".join(text.split()))  # a record is one line
    else:
        stderr_console().print(f"[{style}]{state}[/] {escape(text)}", soft_wrap=True)


def print_error(error: Exception) -> None:
    """Print an error as one paragraph on stderr."""
    if log.handlers:
        log.error("%s", _message(error))
        return
    stderr_console().print(f"[bold red]tagae:[/] {escape(_message(error))}", soft_wrap=True)


class _Rate(ProgressColumn):
    """Steps per second in the last half minute."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.1f}/s" if task.speed else "")


class ProgressLines:
    """Print a line about long work each minute, if stderr is not a terminal that can show a bar; a ``total`` of None is
    unknown."""

    def __init__(self, label: str, total: int | None) -> None:
        self._label, self._total, self._steps = label, total, 0
        self._is_shown = not stderr_console().is_terminal
        self._began = self._noted = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        """Count finished steps, and print a line if the last line was a minute ago."""
        self._steps += steps
        now = time.monotonic()
        if self._is_shown and now - self._noted >= NOTE_SECONDS:
            self._noted = now
            rate = self._steps / (now - self._began)
            of = f" of {self._total:,}, {(self._total - self._steps) / rate / 60:,.0f} min left" if self._total else ""
            print_note(f"{self._label}: {self._steps:,}{of}, {rate:,.1f}/s")


def bars() -> Progress:
    """Return progress bars on stderr; they are hidden if stderr is not a terminal."""
    console = stderr_console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def spinner(words: str, console: Console | None = None) -> Iterator[None]:
    """During the block, show the activity and its duration, by default on stderr; nothing if the console is not a
    terminal."""
    console = console or stderr_console()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(words, total=None)
        yield


class Steps:
    """Print each step of long work on stderr when it begins, with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Elapsed time."""
        return time.monotonic() - self._began

    def __call__(self, words: str) -> None:
        print_state(f"{self.seconds:4.0f} s", words, "cyan")


def reporter(bars: Progress) -> Callable[[str, int, int], None]:
    """Return a function that shows a bar for each phase of training."""

    def report(phase: str, steps: int, total: int) -> None:
        task_ids = {task.description: task.id for task in bars.tasks}
        bars.update(task_ids[phase] if phase in task_ids else bars.add_task(phase, total=total), completed=steps)

    return report


def progress(items: Iterable[T], label: str, total: int | None) -> Iterator[T]:
    """Yield ``items`` with a progress bar; a ``total`` of None is unknown."""
    lines = ProgressLines(label, total)
    with bars() as bar:
        for item in bar.track(items, total=total, description=label):
            yield item
            lines.advance()


class Tally:
    """A run's summary: status counts, each incident at its highest score and whether it recovers in the last snapshot;
    without an incident, the services watched in the last snapshot."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.incidents: dict[str, IncidentDocument] = {}
        self._newest: dict[str, IncidentDocument] = {}  # open incidents
        self._watching: list[WatchedDocument] = []  # in the last snapshot
        self._highest: VerdictDocument | None = None  # among verdicts with a threshold

    def add(self, verdict: VerdictDocument) -> None:
        self.statuses[verdict.status] += 1
        if verdict.threshold and (self._highest is None or verdict.mesh_score > self._highest.mesh_score):
            self._highest = verdict
        self._watching = verdict.watching
        self._newest = {incident.id: incident for incident in verdict.incidents}
        for incident in verdict.incidents:
            strongest = self.incidents.get(incident.id)
            if strongest is None or incident.score > strongest.score:
                self.incidents[incident.id] = incident

    def show(self, limit: int = 20) -> None:
        console = stderr_console()
        counts = ", ".join(f"[{STATUS_STYLE.get(s, '')}]{n} {s}[/]" for s, n in self.statuses.most_common())
        console.print(f"{self.statuses.total()} snapshots: {counts or 'nothing to score'}")
        if not self.incidents:
            console.print(self._explain_no_incident(), soft_wrap=True)
            for watched in self._watching[:limit]:
                console.print(escape(f"watching {watching_line(watched)}"), soft_wrap=True)
            return
        alerts_first = sorted(self.incidents.values(), key=lambda incident: incident.is_notice)
        notices = sum(incident.is_notice for incident in alerts_first)
        title = f"incidents: {len(alerts_first) - notices}" + (f", notices: {notices}" if notices else "")
        console.print(title, style="bold")
        for incident in alerts_first[:limit]:
            _print_scored(console, incident, self._newest.get(incident.id))
        if len(self.incidents) > limit:
            console.print(f"and {len(self.incidents) - limit} more")

    def _explain_no_incident(self) -> str:
        total = self.statuses.total()
        if not total:
            return "no incidents: the recording has no snapshots"
        if self.statuses["warming_up"] == total:
            return (
                "no incidents: all snapshots were needed to learn what is normal; score a longer recording, or give "
                "one of normal traffic with --warmup"
            )
        if self._highest is None:
            return "no incidents"
        return (
            f"no incidents: nothing was unusual enough to raise an alert; highest score "
            f"{self._highest.mesh_score:.1f}, threshold {self._highest.threshold:.1f}, at "
            f"{self._highest.observed_at:%Y-%m-%d %H:%M:%S} UTC"
        )


def watching_line(watched: WatchedDocument) -> str:
    """Describe how a service without an alert is unusual, and the condition for an alert."""
    reasons = [reason.text for reason in watched.reasons[:2]]
    return f"{watched.service}: {'; '.join([*reasons, watched.text])}"


def print_incident(console: Console, incident: IncidentDocument, facts: Sequence[str], *notes: str) -> None:
    """Print an incident as a paragraph: id and facts, the headline, further notes. No line is cut or wrapped, so that
    ids and names can be copied."""
    console.print(f"[bold]{escape(incident.id)}[/]  {escape('  '.join(facts))}", soft_wrap=True)
    for line in filter(None, (incident.headline, *notes)):
        console.print(f"  {escape(line)}", soft_wrap=True)


def what_to_do(incident: IncidentDocument) -> str:
    """Return the next step as a line; empty in verdicts of earlier versions."""
    return f"What to do: {incident.next_step}" if incident.next_step else ""


def _message(error: Exception) -> str:
    if isinstance(error, (ServeError, ModelError)):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"unexpected {type(error).__name__}: {error}. `tagae --debug COMMAND ...` shows where; please report it"


def _print_scored(console: Console, incident: IncidentDocument, newest: IncidentDocument | None) -> None:
    """Print an incident; ``newest``: its state in the last snapshot, if it is still open."""
    recovers = newest is not None and newest.recovering and not newest.is_unseen
    facts = (
        f"{incident.since:%Y-%m-%d %H:%M} UTC",
        f"{incident.severity}, recovering" if recovers else incident.severity,
        f"score {incident.score:.1f}",
    )
    suspects = f"suspects: {', '.join(suspect.service for suspect in incident.suspects[:3])}"
    print_incident(console, incident, facts, what_to_do(incident), suspects)
