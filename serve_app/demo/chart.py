"""The mesh score over time, drawn with blocks."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from rich.text import Text

from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.demo.show import JudgedSnapshot, Show
from serve_app.demo.story import begins
from serve_app.simulator.events.faults import Fault

BLOCKS = " ▁▂▃▄▅▆▇█"
MARGIN = 8  # cells left of the bars


def chart(show: Show, width: int, height: int) -> list[Text]:
    """``height`` lines: bars of the mesh score, newest on the right, against the threshold; below them what was done.

    Red: an incident is open. Yellow: above the threshold, which alone pages nobody. Below stand the key of what began
    in a snapshot, and a double line for as long as a fault acts, unless that is hidden.
    """
    columns, rows = max(1, width - MARGIN), max(1, height - 1)
    shown = show.scenes[-columns:]
    empty = columns - len(shown)
    threshold = shown[-1].verdict.threshold if shown else None
    top = max([scene.verdict.mesh_score for scene in shown] + [1.3 * (threshold or 1.0), 1.0])
    level = None if threshold is None else min(rows - 1, math.floor(threshold / top * rows))
    lines = []
    for row in range(rows - 1, -1, -1):
        at_threshold = row == level
        label = f"{threshold:6.1f} ┤" if at_threshold else f"{top:6.1f} ┤" if row == rows - 1 else "       │"
        line = Text().append(label + ("┈" if at_threshold else " ") * empty, "dim")
        filled = ((scene.verdict, scene.verdict.mesh_score / top * rows - row) for scene in shown)
        lines.append(line.append_text(_joined(_cell(verdict, part, at_threshold) for verdict, part in filled)))
    return [*lines, _axis(show, shown, empty)]


def _axis(show: Show, shown: Sequence[JudgedSnapshot], empty: int) -> Text:
    line = Text().append("       └" + "─" * empty, "dim")
    visible = [deed for deed in show.deeds if not (show.controls.hidden and isinstance(deed, Fault))]
    marks = {begins(deed): (show.mark(deed), _style(isinstance(deed, Fault))) for deed in visible}
    faults = [deed for deed in visible if isinstance(deed, Fault)]
    acting = {index for fault in faults for index in range(fault.start, fault.end)}
    bare = {scene.index: ("═", "yellow") if scene.index in acting else ("─", "dim") for scene in shown}
    return line.append_text(_joined(marks.get(index, cell) for index, cell in bare.items()))


def _joined(cells: Iterable[tuple[str, str]]) -> Text:
    """Characters and their styles as a text with a span for each run of one style, which is much quicker to print."""
    runs = groupby(cells, key=itemgetter(1))
    return Text.assemble(*(("".join(character for character, _ in run), style) for style, run in runs))


def _style(is_fault: bool) -> str:
    return "bold yellow" if is_fault else "bold cyan"


def _cell(verdict: VerdictDocument, filled: float, at_threshold: bool) -> tuple[str, str]:
    """Character and style of one cell, of which ``filled`` (0 and less: nothing, 1 and more: all) is covered."""
    eighths = max(0, min(8, round(filled * 8)))
    if not eighths:
        return ("┈" if at_threshold else " "), "dim"
    if verdict.status == "anomalous":
        return BLOCKS[eighths], "red"
    above = verdict.threshold is not None and verdict.mesh_score > verdict.threshold
    return BLOCKS[eighths], "yellow" if above else "green"
