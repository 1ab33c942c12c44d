"""The graph of an incident: its services, and how it spread."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.names import readable
from model.snapshot import namespace_of
from serve_app.api.number_text import anomaly_text
from serve_app.drawing.svg import hint, picture, rectangle, tag, words
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.incident_graph import MAX_INVOLVED, MAX_NEIGHBOURS, IncidentGraph, build_graph

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, top, right, bottom

WIDTH, MARGIN = 820.0, 62.0
CLOSEST, FARTHEST = 46.0, 110.0  # pixels between nearest neighbours
SHADES = (3.0, 6.0)  # anomaly scores (log10) from which a service is unusual, and very unusual, as on the page
RIM = 14.0  # padding inside the disc of a namespace
SIDE, ABOVE, BELOW = 24.0, 22.0, 16.0  # padding of the picture
LETTER, LINE = 6.1, 13.0  # pixels of a label
PHONE, PHONE_MARGIN = 360.0, 40.0
MAX_ON_PHONE = 18  # services
ROOM = 86.0  # pixels for each service on a phone, squared
COVERED = 0.3  # share of a name that others may cover before it is left out
BADGED = 90.0  # pixels between two services, above which the arrow has a number
FEW = 8  # hops, up to which they are thick
LONGEST = 24  # letters in a label


def shade(deviation: float) -> str:
    """Return the CSS class of an anomaly score (log10)."""
    return "s-" if deviation != deviation else f"s{int(np.searchsorted(SHADES, deviation, side='right'))}"


def graph(case: ReportedIncident, involved: int = MAX_INVOLVED, neighbours: int = MAX_NEIGHBOURS) -> str:
    """Draw the first suspect, the affected services, and the calls along which the incident spread: at most so many
    involved services, and so many neighbours."""
    shown = build_graph(case, involved, neighbours)
    radius = np.where(np.arange(len(shown.layout.names)) < shown.num_involved, 9.0, 5.0)
    radius[0] = 15.0
    return _draw(case, shown, radius, *_pixels(shown, radius), "graph")


def narrow_graph(case: ReportedIncident) -> str:
    """Draw the same for a phone: the services at the centre of the incident, without their neighbours."""
    shown = build_graph(case, MAX_ON_PHONE, 0)
    radius = np.full(len(shown.layout.names), 8.0)
    radius[0] = 13.0
    at, height = _narrow_pixels(shown)
    return _draw(case, shown, radius, at, {}, PHONE, height, "narrow-graph")


def _draw(
    case: ReportedIncident,
    shown: IncidentGraph,
    radius: Floats,
    at: Floats,
    spaces: dict[str, tuple[float, float, float]],
    width: float,
    height: float,
    name: str,
) -> str:
    """Draw services of this ``radius`` at these pixels; ``name`` is unique among the pictures of an incident."""
    name = f"{name}-{case.incident.id}"
    hops, ways = _hops(case, shown, at, radius, name)
    marks = [_arrow(name), *_spaces(spaces), *_calls(case, shown, at), *hops]
    marks += [_service(case, shown, i, at[i], float(radius[i])) for i in reversed(range(len(at)))]
    marks += _labels(shown, at, radius, width, ways)
    reached = ", ".join(f"{hop.far} through {hop.near}" for hop in case.hops) or "no other service"
    about = f"First suspect: {case.first or 'none'}. It reached {reached}."
    return picture(width, height, "Spread of the incident", about, name, *marks)


def _pixels(shown: IncidentGraph, radius: Floats) -> tuple[Floats, dict[str, tuple[float, float, float]], float, float]:
    """Return the pixels of services, the longer side horizontal; the discs of namespaces (x, y, radius); the size."""
    at = shown.layout.positions.astype(np.float64)
    if np.ptp(at[:, 1]) > np.ptp(at[:, 0]):
        at = at[:, ::-1]
    at = at * float(np.clip((WIDTH - 2 * MARGIN) / max(float(np.ptp(at[:, 0])), 1e-9), CLOSEST, FARTHEST))
    namespaces = np.array([namespace_of(name) for name in shown.layout.names])
    discs = np.empty((0, 3))
    for space in dict.fromkeys(namespaces.tolist()):
        rows = namespaces == space
        middle = (at[rows].min(axis=0) + at[rows].max(axis=0)) / 2
        reach = (np.hypot(*(at[rows] - middle).T) + radius[rows]).max() + RIM
        discs = np.vstack([discs, [*middle, reach]])
    low = (discs[:, :2] - discs[:, 2:]).min(axis=0) - np.array([SIDE, ABOVE])
    size = (discs[:, :2] + discs[:, 2:]).max(axis=0) - low + np.array([SIDE, BELOW])
    width = max(WIDTH, float(size[0]))
    shift = low - np.array([(width - size[0]) / 2, 0])
    discs[:, :2] -= shift
    spaces = {
        space: (x, y, r) for space, (x, y, r) in zip(dict.fromkeys(namespaces.tolist()), discs.tolist(), strict=True)
    }
    return at - shift, spaces, width, float(size[1])


def _narrow_pixels(shown: IncidentGraph) -> tuple[Floats, float]:
    """Return the pixels of services on a phone, the longer side vertical and each side stretched, and the height."""
    at = shown.layout.positions.astype(np.float64)
    if np.ptp(at[:, 0]) > np.ptp(at[:, 1]):
        at = at[:, ::-1]
    height = max(len(at) * ROOM**2 / PHONE, PHONE / 2)
    low, size = at.min(axis=0), np.maximum(np.ptp(at, axis=0), 1e-9)
    inside = np.array([PHONE - 2 * PHONE_MARGIN, height - 2 * (ABOVE + BELOW)])
    share = np.where(np.ptp(at, axis=0) < 1e-6, 0.5, (at - low) / size)
    placed: Floats = share * inside + np.array([PHONE_MARGIN, ABOVE + BELOW])
    return placed, height


def _arrow(name: str) -> str:
    """The head of arrows; hidden pictures hide theirs, so each has its own."""
    return tag(
        "defs",
        tag(
            "marker",
            tag("path", d="M0 0L10 5L0 10Z", class_="head"),
            id=f"{name}-head", viewBox="0 0 10 10", refX="9", refY="5", markerWidth="13", markerHeight="13",
            markerUnits="userSpaceOnUse", orient="auto",
        ),
    )  # fmt: skip


def _spaces(spaces: dict[str, tuple[float, float, float]]) -> list[str]:
    """Draw each namespace as a disc with its name above."""
    discs = [tag("circle", cx=x, cy=y, r=r, class_="space") for x, y, r in spaces.values()]
    return [*discs, *(words(space, x, y - r - 5, "of-space", "middle") for space, (x, y, r) in spaces.items())]


def _calls(case: ReportedIncident, shown: IncidentGraph, at: Floats) -> list[str]:
    """Draw the calls outside the spread; more unusual ones are thicker."""
    names, ways = shown.layout.names, {hop.call for hop in case.hops}
    marks = []
    for e in np.argsort(np.nan_to_num(shown.calls), kind="stable").tolist():
        source, destination = shown.edge_index[:, e].tolist()
        if (names[source], names[destination]) in ways:
            continue
        (x1, y1), (x2, y2) = at[[source, destination]].tolist()
        text = f"{names[source]} calls {names[destination]}"
        class_ = f"call {shade(float(shown.calls[e]))}"
        marks.append(tag("path", hint(text), d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=class_))
    return marks


def _hops(
    case: ReportedIncident, shown: IncidentGraph, at: Floats, radius: Floats, name: str
) -> tuple[list[str], list[Box]]:
    """Draw the spread as curved arrows with the distance from the first suspect; also return the boxes they cover."""
    row = {name: i for i, name in enumerate(shown.layout.names)}
    marks: list[str] = []
    ways: list[Box] = []
    for hop in case.hops:
        if hop.near not in row or hop.far not in row:
            continue
        a, b = row[hop.near], row[hop.far]
        way = at[b] - at[a]
        way /= max(float(np.hypot(*way)), 1e-9)
        bend = np.hypot(*(at[b] - at[a])) * 0.12 * np.array([-way[1], way[0]])
        (x1, y1), (x2, y2) = (at[a] + way * radius[a]).tolist(), (at[b] - way * (radius[b] + 3)).tolist()
        cx, cy = ((at[a] + at[b]) / 2 + bend).tolist()
        mx, my = ((at[a] + at[b]) / 2 + bend / 2).tolist()
        marks.append(
            tag(
                "path",
                d=f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}",
                class_="hop" if len(case.hops) <= FEW else "hop many",
                marker_end=f"url(#{name}-head)",
            )
        )
        if float(np.hypot(*(at[b] - at[a]))) > BADGED:
            marks.append(tag("circle", cx=mx, cy=my, r=8.0, class_="badge"))
            marks.append(words(f"{hop.distance}", mx, my + 4, "number", "middle"))
            ways.append((mx - 8, my - 8, mx + 8, my + 8))
        for t in np.linspace(0.1, 0.9, 9).tolist():
            x = (1 - t) ** 2 * x1 + 2 * t * (1 - t) * cx + t**2 * x2
            y = (1 - t) ** 2 * y1 + 2 * t * (1 - t) * cy + t**2 * y2
            ways.append((x - 3, y - 3, x + 3, y + 3))
    return marks, ways


def _service(case: ReportedIncident, shown: IncidentGraph, i: int, at: Floats, radius: float) -> str:
    name, deviation = shown.layout.names[i], float(shown.services[i])
    role = "culprit" if name == case.first else "affected" if i < shown.num_involved else "neighbour"
    score = "not scored" if deviation != deviation else f"anomaly score {anomaly_text(deviation)}"
    text = "disappeared" if shown.gone[i] else score
    class_ = f"service {role} " + ("gone" if shown.gone[i] else shade(deviation))
    x, y = at.tolist()
    return tag("circle", hint(f"{name}: {text}"), cx=x, cy=y, r=radius, class_=class_)


def _labels(shown: IncidentGraph, at: Floats, radius: Floats, width: float, ways: Sequence[Box]) -> list[str]:
    """Draw the names at the freest places: of the first suspect always, of others only if little covers them."""
    room = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(at.tolist(), radius.tolist(), strict=True)]
    marks = []
    for i, name in enumerate(shown.layout.names):
        text = _truncate(readable(name.split("/", 1)[1]))
        wide = len(text) * LETTER * (1.25 if i == 0 else 1.0)
        places = _places(wide, float(at[i, 0]), float(at[i, 1]), float(radius[i]))
        inside = [place for place in places if place[2][0] >= 0 and place[2][2] <= width]
        taken = [*ways, *(box for j, box in enumerate(room) if j != i)]
        x, y, box, anchor = min(inside or places, key=lambda place: _overlap(place[2], taken))
        if i and _overlap(box, taken) > (COVERED * wide * LINE if i < shown.num_involved else 0.0):
            continue
        room.append(box)
        class_ = "name first" if i == 0 else "name" if i < shown.num_involved else "name aside"
        left, top, right, _ = box
        more = 4.0 if i == 0 else 0.0  # its name is larger
        size = right - left + 6 + 2 * more, LINE + 3 + more
        marks.append(rectangle(left - 3 - more, top - 1 - more, *size, "plate"))
        marks.append(words(text, x, y, class_, anchor))
    return marks


def _places(wide: float, x: float, y: float, radius: float) -> list[tuple[float, float, Box, str]]:
    """Return the places for a label: below, above, right, left of its service."""
    near = radius + 3
    return [
        (x, y + near + 10, (x - wide / 2, y + near, x + wide / 2, y + near + LINE), "middle"),
        (x, y - near - 2, (x - wide / 2, y - near - LINE, x + wide / 2, y - near), "middle"),
        (x + near, y + 4, (x + near, y - LINE / 2, x + near + wide, y + LINE / 2), "start"),
        (x - near, y + 4, (x - near - wide, y - LINE / 2, x - near, y + LINE / 2), "end"),
    ]


def _overlap(box: Box, taken: Sequence[Box]) -> float:
    """Return the overlap of a box with other boxes, square pixels."""
    left, top, right, bottom = box
    return sum(max(0.0, min(right, c) - max(left, a)) * max(0.0, min(bottom, d) - max(top, b)) for a, b, c, d in taken)


def _truncate(name: str) -> str:
    """Leave out the middle of a long name."""
    half = LONGEST // 2 - 1
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"
