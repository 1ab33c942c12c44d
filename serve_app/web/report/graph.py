"""The services of an incident and how it spread among them, as a picture."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from model.snapshot import namespace_of
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.scene import IncidentGraph, scene
from serve_app.web.svg import hint, picture, tag, words

Floats = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, top, right, bottom

WIDTH, MARGIN = 820.0, 62.0
CLOSEST, FARTHEST = 46.0, 110.0  # pixels between nearest neighbours
SHADES = (1.5, 3.0, 4.5, 6.0)  # decades from which on the next darker shade is used
RIM = 14.0  # room inside the disc of a namespace
SIDE, ABOVE, BELOW = 24.0, 22.0, 16.0  # and around all
LETTER, LINE = 6.1, 13.0  # pixels of a label
FEW = 8  # hops that are drawn thick
LONGEST = 24  # letters of a label


def shade(deviation: float) -> str:
    """The class of a strangeness in decades."""
    return "s-" if deviation != deviation else f"s{int(np.searchsorted(SHADES, deviation, side='right'))}"


def graph(case: ReportedIncident) -> str:
    """Who is wrong, who suffers from it, and along which calls."""
    shown = scene(case)
    radius = np.where(np.arange(len(shown.layout.names)) < shown.involved, 9.0, 5.0)
    radius[0] = 15.0
    at, spaces, width, height = _pixels(shown, radius)
    hops, ways = _hops(case, shown, at, radius)
    marks = [_ARROW, *_spaces(spaces), *_calls(case, shown, at), *hops]
    marks += [_service(case, shown, i, at[i], float(radius[i])) for i in reversed(range(len(at)))]
    marks += _labels(shown, at, radius, width, ways)
    reached = ", ".join(f"{hop.caller} through {hop.callee}" for hop in case.hops) or "no other service"
    about = f"First suspect: {case.first or 'none'}. It reached {reached}."
    return picture(width, height, "How it spread", about, "graph", *marks)


def _pixels(shown: IncidentGraph, radius: Floats) -> tuple[Floats, dict[str, tuple[float, float, float]], float, float]:
    """Where services are drawn, the longer side across; the disc of each namespace (x, y, radius); width and height."""
    at = shown.layout.positions.astype(np.float64)
    if np.ptp(at[:, 1]) > np.ptp(at[:, 0]):
        at = at[:, ::-1]
    at = at * float(np.clip((WIDTH - 2 * MARGIN) / max(float(np.ptp(at[:, 0])), 1e-9), CLOSEST, FARTHEST))
    named = np.array([namespace_of(name) for name in shown.layout.names])
    discs = np.empty((0, 3))
    for space in dict.fromkeys(named.tolist()):
        rows = named == space
        middle = (at[rows].min(axis=0) + at[rows].max(axis=0)) / 2
        reach = (np.hypot(*(at[rows] - middle).T) + radius[rows]).max() + RIM
        discs = np.vstack([discs, [*middle, reach]])
    low = (discs[:, :2] - discs[:, 2:]).min(axis=0) - np.array([SIDE, ABOVE])
    size = (discs[:, :2] + discs[:, 2:]).max(axis=0) - low + np.array([SIDE, BELOW])
    width = max(WIDTH, float(size[0]))
    shift = low - np.array([(width - size[0]) / 2, 0])
    discs[:, :2] -= shift
    spaces = {space: (x, y, r) for space, (x, y, r) in zip(dict.fromkeys(named.tolist()), discs.tolist(), strict=True)}
    return at - shift, spaces, width, float(size[1])


_HEAD = "url(#head)"
_ARROW = tag(
    "defs",
    tag(
        "marker",
        tag("path", d="M0 0L10 5L0 10Z", class_="head"),
        id="head", viewBox="0 0 10 10", refX="9", refY="5", markerWidth="13", markerHeight="13",
        markerUnits="userSpaceOnUse", orient="auto",
    ),
)  # fmt: skip


def _spaces(spaces: dict[str, tuple[float, float, float]]) -> list[str]:
    """Each namespace as a disc with its name above."""
    discs = [tag("circle", cx=x, cy=y, r=r, class_="space") for x, y, r in spaces.values()]
    return [*discs, *(words(space, x, y - r - 5, "of-space", "middle") for space, (x, y, r) in spaces.items())]


def _calls(case: ReportedIncident, shown: IncidentGraph, at: Floats) -> list[str]:
    """Calls that trouble did not go along, the stranger the thicker; a mouse that rests on one is told whose it is."""
    names, ways = shown.layout.names, {(hop.caller, hop.callee) for hop in case.hops}
    marks = []
    for e in np.argsort(np.nan_to_num(shown.calls), kind="stable").tolist():
        source, destination = shown.edge_index[:, e].tolist()
        if (names[source], names[destination]) in ways:
            continue
        (x1, y1), (x2, y2) = at[[source, destination]].tolist()
        told = f"{names[source]} calls {names[destination]}"
        class_ = f"call {shade(float(shown.calls[e]))}"
        marks.append(tag("path", hint(told), d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=class_))
    return marks


def _hops(case: ReportedIncident, shown: IncidentGraph, at: Floats, radius: Floats) -> tuple[list[str], list[Box]]:
    """The way it went, as bent arrows with their distance from the first suspect; and what they cover."""
    row = {name: i for i, name in enumerate(shown.layout.names)}
    marks: list[str] = []
    ways: list[Box] = []
    for hop in case.hops:
        if hop.caller not in row or hop.callee not in row:
            continue
        a, b = row[hop.callee], row[hop.caller]
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
                marker_end=_HEAD,
            )
        )
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
    role = "culprit" if name == case.first else "affected" if i < shown.involved else "neighbour"
    known = "not scored" if deviation != deviation else f"strange by {deviation:.1f} decades"
    told = "gone" if shown.gone[i] else known
    class_ = f"service {role} " + ("gone" if shown.gone[i] else shade(deviation))
    x, y = at.tolist()
    return tag("circle", hint(f"{name}: {told}"), cx=x, cy=y, r=radius, class_=class_)


def _labels(shown: IncidentGraph, at: Floats, radius: Floats, width: float, ways: Sequence[Box]) -> list[str]:
    """Names, those involved wherever there is most room, their neighbours' only where nothing is hidden by them."""
    room = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(at.tolist(), radius.tolist(), strict=True)]
    marks = []
    for i, name in enumerate(shown.layout.names):
        text = _short(name.split("/", 1)[1])
        wide = len(text) * LETTER * (1.25 if i == 0 else 1.0)
        places = _places(wide, float(at[i, 0]), float(at[i, 1]), float(radius[i]))
        inside = [place for place in places if place[2][0] >= 0 and place[2][2] <= width]
        taken = [*ways, *(box for j, box in enumerate(room) if j != i)]
        x, y, box, anchor = min(inside or places, key=lambda place: _hidden(place[2], taken))
        if i >= shown.involved and _hidden(box, taken):
            continue
        room.append(box)
        class_ = "name first" if i == 0 else "name" if i < shown.involved else "name aside"
        marks.append(words(text, x, y, class_, anchor))
    return marks


def _places(wide: float, x: float, y: float, radius: float) -> list[tuple[float, float, Box, str]]:
    """Where a label can stand: below, above, right, left of its service."""
    near = radius + 3
    return [
        (x, y + near + 10, (x - wide / 2, y + near, x + wide / 2, y + near + LINE), "middle"),
        (x, y - near - 2, (x - wide / 2, y - near - LINE, x + wide / 2, y - near), "middle"),
        (x + near, y + 4, (x + near, y - LINE / 2, x + near + wide, y + LINE / 2), "start"),
        (x - near, y + 4, (x - near - wide, y - LINE / 2, x - near, y + LINE / 2), "end"),
    ]


def _hidden(box: Box, taken: Sequence[Box]) -> float:
    """How much of what is there a box would hide, square pixels."""
    left, top, right, bottom = box
    return sum(max(0.0, min(right, c) - max(left, a)) * max(0.0, min(bottom, d) - max(top, b)) for a, b, c, d in taken)


def _short(name: str) -> str:
    """The middle left out of a long name."""
    half = LONGEST // 2 - 1
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half:]}"
