"""The picture of an incident for messages: its headline, its score over time and its graph, as one SVG.

It has light colours, and every colour is written out, since programs that turn SVG into pixels know no variables.
"""

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from textwrap import wrap

from model.names import readable
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.report import sentences
from serve_app.web.report.case import ReportedIncident, find
from serve_app.web.report.graph import graph
from serve_app.web.report.svg import rectangle, tag, words
from serve_app.web.report.timeline import timeline

TEMPLATES = Path(__file__).parent / "templates"
WIDTH, MARGIN = 900.0, 24.0  # pixels; twice as many in a message
TALLEST = 620.0  # pixels; a taller graph is scaled down
TITLE, TITLE_LINE, TITLE_LETTERS, TITLE_LINES = 19.0, 26.0, 84, 3
CAPTION = 8.0
ROWS = 8  # services in a column, so that they can be read on a phone
BAR = 6.0  # pixels of the bar in the severity's colour
_VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_VARIABLE = re.compile(r"--([\w-]+): ([^;}]+?)\s*[;}]")
_SVG_RULE = re.compile(r"svg [^{}]*\{[^{}]*\}")


def incident_picture(
    mesh: str, moments: Sequence[ScoredSnapshot], incident: str | None = None, zone: tzinfo = UTC
) -> str:
    """Return the picture of an incident, as SVG.

    Args:
        moments: snapshots around the incident, oldest first.
        incident: its id; None: the most urgent of those that were open last.

    Raises:
        UnknownIncident: no snapshot has it.
    """
    case = find(mesh, moments, incident, zone)
    lines = _title_lines(case)
    y = MARGIN + TITLE
    parts = []
    for line in lines:
        parts.append(words(line, MARGIN + 2 * BAR, y, "title"))
        y += TITLE_LINE
    parts.append(words(_facts(case), MARGIN + 2 * BAR, y - 4, "facts"))
    parts.append(rectangle(MARGIN, MARGIN - 2, BAR, y - MARGIN + 4, f"severity {case.incident.severity}"))
    y += MARGIN
    for caption, svg, tallest in (
        ("Score of the mesh over time (dashed: threshold, shaded: the incident)", timeline(case), float("inf")),
        ("How it spread (ringed: the first suspect, dashed: disappeared)", graph(case, ROWS), TALLEST),
    ):
        parts.append(words(caption, MARGIN, y, "facts"))
        part, height = _place(svg, y + CAPTION, tallest)
        parts.append(part)
        y += CAPTION + height + MARGIN
    style = tag("style", _style())
    paper = rectangle(0, 0, WIDTH, y, "paper")
    return tag(
        "svg", style, paper, *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:g} {y:g}",
        width=f"{WIDTH:g}", height=f"{y:g}",
    )  # fmt: skip


def _title_lines(case: ReportedIncident) -> list[str]:
    lines = wrap(readable(sentences.title(case)), TITLE_LETTERS, break_long_words=True)
    return [*lines[: TITLE_LINES - 1], f"{lines[TITLE_LINES - 1]}…"] if len(lines) > TITLE_LINES else lines


def _facts(case: ReportedIncident) -> str:
    incident = case.incident
    kind = incident.severity if incident.is_notice else f"{incident.severity} incident"
    since = f"{case.local(incident.since):%Y-%m-%d %H:%M %Z}"
    return f"{kind} in {case.mesh}, since {since} · {sentences.duration(case)} · {incident.id}"


def _place(svg: str, y: float, tallest: float) -> tuple[str, float]:
    """Return a picture placed at ``y``, as wide as there is room, and its height."""
    view = _VIEW.search(svg)
    assert view is not None  # all of our pictures have one
    width, height = map(float, view.groups())
    scale = min((WIDTH - 2 * MARGIN) / width, tallest / height)
    x = (WIDTH - scale * width) / 2
    size = f'x="{x:.1f}" y="{y:.1f}" width="{scale * width:.1f}" height="{scale * height:.1f}"'
    return svg.replace("<svg ", f"<svg {size} ", 1), scale * height


def _style() -> str:
    """Return the rules for pictures, with the light colours in place of variables."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    light = dict(_VARIABLE.findall(style[: style.index("}") + 1]))
    rules = "\n".join(_SVG_RULE.findall(style)) + _OWN
    return re.sub(r"var\(--([\w-]+)\)", lambda variable: light[variable[1]], rules)


_OWN = """
.paper { fill: var(--paper) } svg .title { font: 700 17px sans-serif }
svg .facts { font: 13px sans-serif; fill: var(--soft) }
.severity { fill: var(--soft) } .severity.minor { fill: var(--warn) } .severity.major { fill: var(--major) }
.severity.critical { fill: var(--alarm) }
"""
