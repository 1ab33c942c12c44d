"""What is drawn: scores over time, suspects over time, how probabilities came true.

Silences longer than two steps are drawn as long as two, with a gap in the line: recordings of issues are pieces of
days. What follows the last incident of a stream is not labelled and drawn closer together where it is long.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from model.evaluate.curves import Forecast
from model.evaluate.judged import RecordingResult
from model.evaluate.located import AlertRecord, is_true, outcomes
from model.evaluate.series import VerdictSeries
from model.evaluate.truth import NORMAL, TAIL, TICK, UNSCORED, Flags, Floats, Form, GroundTruth, Span
from serve_app.web.svg import Scale, curve, hint, instants, line, picture, rectangle, score_scale, tag, thinned, words

WIDTH, LEFT, RIGHT = 900.0, 46.0, 892.0
TOP, BOTTOM = 30.0, 200.0  # of the scores
SILENCE = 2.0  # steps that a longer gap is drawn as
TAIL_SHARE = 0.15  # of the width, at most, for what follows the last incident
NUMBER_WIDTH = 17.0  # of an incident's number
NAMES, HEAD = 190.0, 20.0  # room for services left of their cells, and for numbers above
MISSED = "label missed"
ROW, MOST_ROWS = 15.0, 24
MOST_COLUMNS = 40  # incidents in one picture of suspects
CELLS = 24  # of an incident at most; of several snapshots in one cell the best place counts
SHADES = {1: "first", 2: "third", 3: "third", 4: "fifth", 5: "fifth"}  # class by place among the suspects
OFTEN = 0.2  # of an incident: who was ranked first for so long has a row


@dataclass(frozen=True, slots=True)
class Axis:
    """Where the snapshots of a recording are drawn, ``[T]``, and before which of them the line is interrupted."""

    x: Floats
    breaks: tuple[int, ...]
    times: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """An incident in the picture of suspects: its number and label, the suspects of each of its snapshots, and whether
    it was found."""

    number: int
    span: Span
    suspects: Sequence[Sequence[tuple[str, float]]]
    found: bool

    @property
    def names(self) -> list[list[str]]:
        """Of each snapshot, best first."""
        return [[service for service, _ in ranked] for ranked in self.suspects]


def scores(truth: GroundTruth, series: VerdictSeries, judged: RecordingResult, name: str) -> str:
    """Score against threshold over time, incidents shaded, alarms and pages marked."""
    axis = _axis(truth)
    scale = score_scale(series.score, series.threshold, BOTTOM, TOP)
    found = found_incidents(judged)
    marks = [
        *_incidents(truth, axis, found),
        *_grid(scale, axis),
        _threshold(series, axis, scale),
        _score_line(series, axis, scale),
        *_alarms(truth, series, axis),
        *_pages(truth, judged, axis),
    ]
    share = f"{sum(found)} of {len(found)} incidents found" if found else "no incident"
    about = (
        f"{len(truth.times)} snapshots; {share}; scores from {series.score.min():.3g} to {series.score.max():.3g}; "
        f"anomalous in {int(series.alarm.sum())} snapshots."
    )
    return picture(WIDTH, BOTTOM + 52, f"Scores on {truth.name}", about, f"{name}-scores", *marks)


def suspects(truth: GroundTruth, series: VerdictSeries, judged: RecordingResult, name: str) -> list[str]:
    """Whom the detector suspected in each incident: a column for each incident, a row for each service, the culprit's
    cell framed; several pictures where there are many incidents."""
    columns = [
        ChartColumn(i, window.span, [series.suspects[at] for at in window.wide.tolist()], hit)
        for i, (window, hit) in enumerate(zip(truth.windows, found_incidents(judged), strict=True), 1)
        if len(window.wide)
    ]
    parts = [columns[i : i + MOST_COLUMNS] for i in range(0, len(columns), MOST_COLUMNS)]
    return [_suspects(truth.name, part, f"{name}-suspects-{i}") for i, part in enumerate(parts)]


def reliability(forecast: Forecast, title: str, name: str) -> str:
    """How often there was an incident where so much was said: on the diagonal, a probability means what it says."""
    x, y = Scale(0, 1, 44, 278), Scale(0, 1, 250, 10)
    marks = [line(x.one(0), y.one(0), x.one(1), y.one(1), "threshold")]
    base = y.one(forecast.base_rate)
    marks += [line(x.one(0), base, x.one(1), base, "grid"), words("base rate", x.one(1) - 4, base - 4, anchor="end")]
    for tick in x.ticks():
        marks += [
            words(f"{tick:.0%}", x.one(tick), 268, anchor="middle"),
            words(f"{tick:.0%}", 38, y.one(tick) + 4, anchor="end"),
        ]
    marks += [line(44, 250, 278, 250, "axis"), line(44, 10, 44, 250, "axis"), words("said", 161, 286, anchor="middle")]
    marks.append(tag("text", "was so", transform="translate(11 190) rotate(-90)", text_anchor="middle"))
    for b in forecast.bins:
        px, py = x.one(b.said), y.one(b.observed)
        marks.append(line(px, y.one(b.said), px, py, "stem"))
        radius = 2.5 + 6 * (b.snapshots / forecast.snapshots) ** 0.5
        told = f"said {b.said:.0%}, was so in {b.observed:.0%} of {b.snapshots:,} snapshots"
        marks.append(tag("circle", hint(told), cx=px, cy=py, r=radius, class_="dot"))
    about = (
        f"Brier score {forecast.brier:.3f}, {forecast.brier_of_base_rate:.3f} for saying the base rate "
        f"{forecast.base_rate:.0%} every time; " + "; ".join(f"{b.said:.0%}: {b.observed:.0%}" for b in forecast.bins)
    )
    return picture(300, 292, title, about, f"{name}-reliability", *marks)


def found_incidents(judged: RecordingResult) -> list[bool]:
    """Of each incident whether it was found: by a page at its place where there are such, else by an alarm in time."""
    if judged.form is Form.LOCATED and judged.watch is not None:
        return [outcome.page is not None for outcome in outcomes(judged.watch)]
    return [outcome.found for outcome in judged.outcomes]


def _axis(truth: GroundTruth) -> Axis:
    steps = np.diff(truth.times, prepend=truth.times[:1]) / (truth.step / TICK)
    breaks = np.flatnonzero(truth.breaks)
    strides = np.minimum(steps, SILENCE)
    tail = truth.labels == TAIL
    if strides[tail].sum() > TAIL_SHARE * strides.sum():
        strides[tail] *= TAIL_SHARE / (1 - TAIL_SHARE) * strides[~tail].sum() / strides[tail].sum()
    place = np.cumsum(strides)
    x = Scale(0.0, max(float(place[-1]), 1.0), LEFT, RIGHT).at(place)
    return Axis(x, tuple(breaks.tolist()), tuple(truth.instant(i) for i in range(len(truth.times))))


def _grid(scale: Scale, axis: Axis) -> list[str]:
    marks = []
    for tick in scale.ticks():
        y = scale.one(tick)
        marks += [line(LEFT, y, RIGHT, y, "grid"), words(f"{tick:,g}", LEFT - 5, y + 4, anchor="end")]
    for x, told in instants(axis.times, axis.x):
        marks += [line(x, BOTTOM + 14, x, BOTTOM + 19, "axis"), words(told, x, BOTTOM + 32, anchor="middle")]
    first, last = axis.times[0], axis.times[-1]
    days = f"{first:%d %b %Y}" + ("" if first.date() == last.date() else f" to {last:%d %b %Y}")
    marks += [words(f"{days}, UTC", LEFT, BOTTOM + 48), line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")]
    if scale.log:
        marks.append(words("logarithmic", LEFT, BOTTOM - 5))
    return marks


def _score_line(series: VerdictSeries, axis: Axis, scale: Scale) -> str:
    y = scale.at(series.score)
    kept = thinned(axis.x, y, axis.breaks)
    return curve(axis.x[kept], y[kept], np.flatnonzero(np.isin(kept, axis.breaks)).tolist(), "score")


def _threshold(series: VerdictSeries, axis: Axis, scale: Scale) -> str:
    known = np.flatnonzero(np.isfinite(series.threshold))
    if not len(known):
        return ""
    x, y = axis.x[known], scale.at(series.threshold[known])
    breaks = np.flatnonzero(np.diff(known, prepend=known[0]) > 1).tolist()
    kept = thinned(x, y, breaks)
    return curve(x[kept], y[kept], np.flatnonzero(np.isin(kept, breaks)).tolist(), "threshold", steps=True)


def _incidents(truth: GroundTruth, axis: Axis, found: Sequence[bool]) -> list[str]:
    """Shaded, numbered above; who was not found is struck through in another colour."""
    known = np.zeros(len(truth.times), bool)
    for window in truth.windows:
        known[window.wide] = True
    doubtful = (truth.labels == UNSCORED) & ~known & (truth.form is not Form.SEGMENTS)
    marks = [
        rectangle(float(axis.x[a]), TOP, float(axis.x[b] - axis.x[a]), BOTTOM - TOP, "doubt", "not judged")
        for a, b in _runs(doubtful)
    ]
    free = LEFT
    for number, (window, hit) in enumerate(zip(truth.windows, found, strict=True), 1):
        if not len(window.inside):
            continue
        span, left, right = window.span, float(axis.x[window.inside[0]]), float(axis.x[window.inside[-1]])
        told = f"{number}: {span.kind} at {span.culprit or 'an unknown service'}, {span.start:%H:%M:%S} to "
        told += f"{span.end:%H:%M:%S} UTC, {'found' if hit else 'not found'}"
        class_ = "incident" if hit else "incident missed"
        marks.append(rectangle(left - 1, TOP, right - left + 2, BOTTOM - TOP, class_, told))
        middle = (left + right) / 2
        if middle >= free:
            marks.append(words(f"{number}", middle, TOP - 16, "label" if hit else MISSED, "middle"))
            free = middle + NUMBER_WIDTH
    return marks


def _alarms(truth: GroundTruth, series: VerdictSeries, axis: Axis) -> list[str]:
    """The status below the scores: anomalous, in normal time in another colour; not knowing in grey."""
    by_time = truth.form is not Form.LOCATED  # in large meshes pages are right or wrong, not times
    normal = (truth.labels == NORMAL) & by_time
    kinds: tuple[tuple[str, Flags, str], ...] = (
        ("alarm", series.alarm & ~normal, "anomalous"),
        ("alarm false", series.alarm & normal, "anomalous, nothing wrong"),
        ("unknown", ~series.on_duty, "warming up or missing"),
    )
    marks = []
    for class_, where, told in kinds:
        for a, b in _runs(where):
            left, right = float(axis.x[a]) - 1, float(axis.x[b]) + 1
            title = f"{told} from {axis.times[a]:%H:%M:%S} to {axis.times[b]:%H:%M:%S} UTC"
            marks.append(rectangle(left, BOTTOM + 3, right - left, 8, class_, title))
    return marks


def _pages(truth: GroundTruth, judged: RecordingResult, axis: Axis) -> list[str]:
    """Where pages are judged by their place: a full triangle is a true page, a hollow one a false one."""
    if judged.watch is None:
        return []
    at = np.searchsorted(truth.times, [_micro(page) for page in judged.watch.pages])
    marks = []
    for page, i in zip(judged.watch.pages, np.minimum(at, len(axis.x) - 1), strict=True):
        true = any(is_true(page, fault, truth.step) for fault in truth.faults)
        x = float(axis.x[i])
        named = ", ".join(page.suspects[:3])
        told = f"{'true' if true else 'false'} page at {page.begin:%H:%M:%S} UTC: {named}"
        d = f"M{x - 4.5:.1f} {TOP - 11:.1f}H{x + 4.5:.1f}L{x:.1f} {TOP - 3:.1f}Z"
        marks.append(tag("path", hint(told), d=d, class_="page" if true else "page false"))
    return marks


def _suspects(recording: str, columns: Sequence[ChartColumn], name: str) -> str:
    """One picture: columns are incidents of equal width, and time runs to the right in each."""
    rows, more = _rows(columns)
    row_of = {service: r for r, service in enumerate(rows)}
    width, height = min((WIDTH - NAMES) / len(columns), 60.0), ROW * len(rows)
    marks = []
    for r, service in enumerate(rows):
        below = HEAD + ROW * (r + 1)
        marks.append(words(_short(service, rows), NAMES - 6, below - 4, anchor="end"))
        marks.append(line(NAMES, below, NAMES + width * len(columns), below, "grid"))
    every = max(1, round(NUMBER_WIDTH / width))
    for c, column in enumerate(columns):
        left = NAMES + width * c
        if c % every == 0:
            marks.append(words(f"{column.number}", left + width / 2, 13, "label" if column.found else MISSED, "middle"))
        marks += _cells(column.suspects, row_of, left, width)
        if column.span.culprit in row_of:
            told = f"{column.number}: {column.span.kind} at {column.span.culprit}"
            y = HEAD + 0.5 + ROW * row_of[column.span.culprit]
            marks.append(rectangle(left + 0.5, y, width - 1, ROW - 1, "culprit", told))
    if more:
        marks.append(words(f"and {more} more services", NAMES - 6, HEAD + height + 14, anchor="end"))
    first = [sum(named[:1] == [c.span.culprit] for named in c.names) / len(c.names) for c in columns]
    about = f"{len(columns)} incidents. The culprit was ranked first in this share of their snapshots: " + ", ".join(
        f"{c.number}: {share:.0%}" for c, share in zip(columns, first, strict=True)
    )
    return picture(WIDTH, HEAD + 4 + height + (18 if more else 0), f"Suspects on {recording}", about, name, *marks)


def _rows(columns: Sequence[ChartColumn]) -> tuple[list[str], int]:
    """Culprits by their first incident, then who else was ranked first for long, the longest first; and how many are
    left out."""
    culprits = dict.fromkeys(column.span.culprit for column in columns if column.span.culprit)
    longest: dict[str, float] = {}
    for names in (column.names for column in columns):
        for service, count in Counter(named[0] for named in names if named).items():
            longest[service] = max(longest.get(service, 0.0), count / len(names))
    others = [service for service in longest if longest[service] >= OFTEN and service not in culprits]
    rows = [*culprits, *sorted(others, key=lambda service: (-longest[service], service))]
    return rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)


def _cells(
    found: Sequence[Sequence[tuple[str, float]]], row_of: dict[str, int], left: float, width: float
) -> list[str]:
    """Of one incident, runs of cells alike put together."""
    count = min(CELLS, len(found))
    shade: dict[tuple[int, int], int] = {}
    for i, ranked in enumerate(found):
        for place, (service, _) in enumerate(ranked[: max(SHADES)], 1):
            if service in row_of:
                cell = row_of[service], i * count // len(found)
                shade[cell] = min(place, shade.get(cell, place))
    marks = []
    for row in sorted({row for row, _ in shade}):
        classes = [SHADES.get(shade.get((row, i), 0), "") for i in range(count)]
        for class_ in dict.fromkeys(filter(None, classes)):
            for a, b in _runs(np.array([one == class_ for one in classes])):
                x = left + 1 + (width - 2) * a / count
                marks.append(rectangle(x, HEAD + 1 + ROW * row, (width - 2) * (b + 1 - a) / count, ROW - 2, class_))
    return marks


def _short(service: str, among: Sequence[str]) -> str:
    """Without the namespace where all have the same one; the middle left out of long names."""
    if len({name.split("/")[0] for name in among}) == 1:
        service = service.split("/", 1)[-1]
    return service if len(service) <= 28 else f"{service[:13]}…{service[-14:]}"


def _runs(where: Flags) -> list[tuple[int, int]]:
    """First and last index of each run."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _micro(page: AlertRecord) -> int:
    return int(page.begin.timestamp() * 1_000_000)
