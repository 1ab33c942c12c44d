"""The graph of an incident: its services in columns, by the number of calls from the first suspect."""

import numpy as np

from model.names import readable
from serve_app.api.number_text import anomaly_text
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.svg import hint, picture, tag, words

MAX_ROWS = 14  # services of a column; the text below says how many more there are
SUSPECTS = 3  # drawn even if they are not affected
SHADES = (3.0, 6.0)  # anomaly scores (log10) from which a service is unusual, and very unusual, as on the page
WIDTH, COLUMN, ROW = 820.0, 250.0, 34.0  # pixels; a picture of many columns is wider
SIDE, HEAD = 26.0, 44.0  # left of the first column, and above its first service
RADIUS, FIRST_RADIUS = 8.0, 13.0
LONGEST = 30  # letters in a label
LETTER, FIRST_LETTER = 6.6, 8.8  # pixels of a letter


def shade(deviation: float) -> str:
    """Return the CSS class of an anomaly score (log10)."""
    return "s-" if deviation != deviation else f"s{int(np.searchsorted(SHADES, deviation, side='right'))}"


def columns(case: ReportedIncident) -> list[list[str]]:
    """Return the services by distance from the first suspect; the last column has those that no call leads to."""
    distances: dict[str, int] = {} if case.incident.first_suspect is None else {case.incident.first_suspect: 0}
    distances |= {hop.far: hop.distance for hop in case.hops}
    spread: list[list[str]] = [[] for _ in range(1 + max(distances.values(), default=-1))]
    for name, distance in distances.items():  # breadth first, so that services stay beside those they were reached from
        spread[distance].append(name)
    suspects = [suspect.service for suspect in case.incident.suspects[:SUSPECTS]]
    remaining = [name for name in dict.fromkeys([*case.incident.affected, *suspects]) if name not in distances]
    return [*spread, remaining] if remaining else spread


def graph(case: ReportedIncident, max_rows: int = MAX_ROWS) -> str:
    """Draw the first suspect, the services that the incident reached, and the calls along which it spread; at most
    ``max_rows`` services in a column."""
    scores = dict(zip(case.worst.snapshot.node_ids, case.worst.deviations.services.tolist(), strict=True))
    all_columns = columns(case)
    last = max((hop.distance for hop in case.hops), default=0)
    at: dict[str, tuple[float, float]] = {}
    marks: list[str] = []
    for number, names in enumerate(all_columns):
        x = SIDE + number * COLUMN
        head = "first suspect" if number == 0 else f"{number} call{'s' * (number > 1)} away"
        marks.append(words(head if number <= last else "also affected or suspected", x - RADIUS, 16.0, "of-space"))
        for row, name in enumerate(names[:max_rows]):
            at[name] = x, HEAD + row * ROW
        if len(names) > max_rows:
            more = f"and {len(names) - max_rows} more"
            marks.append(words(more, x - RADIUS, HEAD + max_rows * ROW, "name aside"))
    width = max(WIDTH, SIDE + len(all_columns) * COLUMN)
    height = HEAD + min(max(map(len, all_columns), default=1), max_rows + 1) * ROW
    name = f"graph-{case.incident.id}"
    spread_text = ", ".join(f"{hop.far} through {hop.near}" for hop in case.hops) or "no other service"
    about = f"First suspect: {case.incident.first_suspect or 'none'}. It reached {spread_text}."
    services = [_service(case, service, scores, *place) for service, place in at.items()]
    elements = [_arrow_head(name), *_hops(case, at, name), *services, *marks]
    return picture(width, height, "Spread of the incident", about, name, *elements)


def _arrow_head(name: str) -> str:
    """Return the arrows' head. Each picture on a page has its own."""
    return tag(
        "defs",
        tag(
            "marker",
            tag("path", d="M0 0L10 5L0 10Z", class_="head"),
            id=f"{name}-head", viewBox="0 0 10 10", refX="9", refY="5", markerWidth="13", markerHeight="13",
            markerUnits="userSpaceOnUse", orient="auto",
        ),
    )  # fmt: skip


def _hops(case: ReportedIncident, at: dict[str, tuple[float, float]], name: str) -> list[str]:
    """Draw the calls of the spread as curves from the end of a label to the next column."""
    marks = []
    for hop in case.hops:
        if hop.near not in at or hop.far not in at:
            continue
        (x1, y1), (x2, y2) = at[hop.near], at[hop.far]
        is_first = hop.near == case.incident.first_suspect
        wide = len(_label(hop.near)) * (FIRST_LETTER if is_first else LETTER)
        begin = min(x1 + (FIRST_RADIUS if is_first else RADIUS) + 12 + wide, x2 - 60)
        end = x2 - RADIUS - 4
        middle = (begin + end) / 2
        path = f"M{begin:.1f} {y1:.1f}C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {end:.1f} {y2:.1f}"
        caller, callee = hop.call
        text = hint(f"{caller} calls {callee}")
        marks.append(tag("path", text, d=path, class_="hop", marker_end=f"url(#{name}-head)"))
    return marks


def _service(case: ReportedIncident, name: str, scores: dict[str, float], x: float, y: float) -> str:
    deviation, is_first = scores.get(name, np.nan), name == case.incident.first_suspect
    is_gone = name not in scores
    score = "not scored" if deviation != deviation else f"anomaly score {anomaly_text(deviation)}"
    text = "disappeared" if is_gone else score
    class_ = f"service {'culprit' if is_first else 'affected'} {'gone' if is_gone else shade(deviation)}"
    circle = tag("circle", hint(f"{name}: {text}"), cx=x, cy=y, r=FIRST_RADIUS if is_first else RADIUS, class_=class_)
    return circle + words(
        _label(name), x + (FIRST_RADIUS if is_first else RADIUS) + 6, y + 4, "name first" if is_first else "name"
    )


def _label(service: str) -> str:
    """Return a service's name without its namespace, and without the middle of a long name."""
    name, half = readable(service.split("/", 1)[1]), LONGEST // 2 - 1
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"
