"""What a person sees of the demo: a live picture in a terminal, plain lines elsewhere."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from serve_app.schemas import VerdictDocument

STYLES = {"normal": "black on green", "anomalous": "white on red", "warming_up": "black on cyan"}
BLOCKS = " ▁▂▃▄▅▆▇█"
CHART_HEIGHT, CHART_WIDTH = 7, 72
EVENTS_SHOWN = 8
LINES_EVERY = 10  # snapshots between two plain lines


@dataclass(frozen=True, slots=True)
class Event:
    """Something done to the mesh, or said of it, at a snapshot.

    Attributes:
        mark: one letter below the chart; empty where the chart needs none.
        text: for people.
        style: of the text, in rich's words.
    """

    mark: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """One snapshot of the demo, scored.

    Attributes:
        index: of the snapshot.
        verdict: on it.
        milliseconds: from POST to verdict.
        events: of this snapshot.
    """

    index: int
    verdict: VerdictDocument
    milliseconds: float
    events: tuple[Event, ...] = ()


class View(Protocol):
    """Shows scenes as they come; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, scene: Scene) -> None:
        """One more scene."""


@dataclass
class LiveView:
    """A picture that renews itself: status, score against threshold, suspects with reasons, what was done."""

    console: Console
    title: str
    scenes: deque[Scene] = field(default_factory=lambda: deque(maxlen=CHART_WIDTH))
    events: deque[tuple[str, Event]] = field(default_factory=lambda: deque(maxlen=EVENTS_SHOWN))

    def __enter__(self) -> Self:
        self._live = Live(console=self.console, auto_refresh=False)
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, scene: Scene) -> None:
        """One more scene."""
        self.scenes.append(scene)
        self.events.extend((_clock(scene), event) for event in scene.events)
        self._live.update(picture(self.title, list(self.scenes), list(self.events)), refresh=True)


@dataclass
class LineView:
    """Plain lines: each event, each change of status, and now and then the score."""

    console: Console
    title: str
    status: str = ""

    def __enter__(self) -> Self:
        self.console.print(self.title, soft_wrap=True)
        return self

    def __exit__(self, *_: object) -> None:
        return

    def show(self, scene: Scene) -> None:
        """One more scene."""
        for event in scene.events:
            self.console.print(f"{_clock(scene)}  {event.text}", markup=False, soft_wrap=True)
        if scene.verdict.status != self.status or scene.index % LINES_EVERY == 0:
            self.status = scene.verdict.status
            self.console.print(line(scene), markup=False, soft_wrap=True)


def view(console: Console, title: str) -> View:
    """A live picture where there is a terminal for it, else plain lines."""
    return LiveView(console, title) if console.is_terminal else LineView(console, title)


def line(scene: Scene) -> str:
    """A scene in one line."""
    verdict = scene.verdict
    first = verdict.incidents[0].suspects[:3] if verdict.incidents else []
    suspects = f"  suspects {', '.join(s.service for s in first)}" if first else ""
    return (
        f"{_clock(scene)}  snapshot {scene.index}: {verdict.status}, score {verdict.mesh_score:.1f}, threshold "
        f"{_number(verdict.threshold)}, verdict in {scene.milliseconds:.0f} ms{suspects}"
    )


def picture(title: str, scenes: Sequence[Scene], events: Sequence[tuple[str, Event]]) -> RenderableType:
    """The live picture of the newest scene and what came before it."""
    scene = scenes[-1]
    verdict = scene.verdict
    head = Text.assemble(
        (f" {verdict.status.replace('_', ' ').upper()} ", STYLES.get(verdict.status, "black on yellow")),
        f"  snapshot {scene.index}  {_clock(scene)} UTC  score {verdict.mesh_score:.1f}, "
        f"threshold {_number(verdict.threshold)}  probability {verdict.probability:.0%}  "
        f"POST to verdict {scene.milliseconds:.0f} ms",
    )
    return Group(Text(title, "bold"), Text(), head, Text(), chart(scenes), Text(), _suspects(verdict), _done(events))


def chart(scenes: Sequence[Scene], width: int = CHART_WIDTH, height: int = CHART_HEIGHT) -> Text:
    """Bars of the mesh score, newest on the right, against the threshold; below them a letter for what was done.

    Red: an incident is open. Yellow: above the threshold, which alone pages nobody.
    """
    shown = list(scenes)[-width:]
    threshold = shown[-1].verdict.threshold
    top = max([scene.verdict.mesh_score for scene in shown] + [1.3 * (threshold or 1.0), 1.0])
    level = None if threshold is None else min(height - 1, math.floor(threshold / top * height))
    text = Text()
    for row in range(height - 1, -1, -1):
        text.append(f"{threshold:5.1f} ┤" if row == level and threshold is not None else "      │", "dim")
        text.append(("┈" if row == level else " ") * (width - len(shown)), "dim")
        for scene in shown:
            text.append(*_cell(scene.verdict, scene.verdict.mesh_score / top * height - row, row == level))
        text.append("\n")
    text.append("      └" + "─" * (width - len(shown)), "dim")
    for scene in shown:
        marks = [event for event in scene.events if event.mark]
        text.append(marks[-1].mark if marks else "─", marks[-1].style if marks else "dim")
    return text


def _cell(verdict: VerdictDocument, filled: float, at_threshold: bool) -> tuple[str, str]:
    """Character and style of one cell, of which ``filled`` (0 and less: nothing, 1 and more: all) is covered."""
    eighths = max(0, min(8, round(filled * 8)))
    if not eighths:
        return ("┈" if at_threshold else " "), "dim"
    if verdict.status == "anomalous":
        return BLOCKS[eighths], "red"
    above = verdict.threshold is not None and verdict.mesh_score > verdict.threshold
    return BLOCKS[eighths], "yellow" if above else "green"


def _suspects(verdict: VerdictDocument) -> RenderableType:
    if not verdict.incidents:
        return Text("no incident\n", "dim")
    table = Table(box=None, pad_edge=False, title_justify="left", title_style="bold red")
    for name in ("suspect", "", "score", "why"):
        table.add_column(name, no_wrap=name != "why", justify="right" if name == "score" else "left")
    for incident in verdict.incidents:
        for suspect in incident.suspects[:3]:
            bar = "█" * math.ceil(suspect.score * 10)
            why = "; ".join(reason.text for reason in suspect.reasons[:2])
            table.add_row(escape(suspect.service), Text(f"{bar:<10}", "red"), f"{suspect.score:.2f}", escape(why))
    worst = verdict.incidents[0]
    table.title = (
        f"{worst.severity} incident {worst.id} since {worst.since:%H:%M:%S}, {len(worst.affected)} services affected"
    )
    return table


def _done(events: Sequence[tuple[str, Event]]) -> Text:
    text = Text("\n")
    for clock, event in events:
        text.append(f"{clock}  ", "dim").append(f"{event.mark or ' '}  {event.text}\n", event.style)
    return text


def _clock(scene: Scene) -> str:
    return f"{scene.verdict.observed_at:%H:%M:%S}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"
