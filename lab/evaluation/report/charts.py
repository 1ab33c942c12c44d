"""The charts of ``tagae evaluate``, drawn with matplotlib: scores and suspects over time, and reliability.

The x axis counts snapshots, so that a recording made of pieces of days has no empty stretches.
"""

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lab.evaluation.measures.curves import Forecast
from lab.evaluation.measures.located import fault_outcomes, is_true
from lab.evaluation.measures.recording import RecordingResult
from lab.evaluation.measures.series import VerdictSeries
from lab.evaluation.measures.truth import NORMAL, UNSCORED, Flags, Form, GroundTruth, Span, microseconds

SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "tagae", "font.size": 9.0}
WIDTH = 11.0  # inches
BLUE, ORANGE, GREY, SHADE, MISSED = "#0b62a8", "#c2410c", "#c9ced4", "#f6d98a", "#e9b7b0"
RANKS = ListedColormap(["#0b62a8", "#7fb2dc", "#cfe1f1"])  # first; second or third; fourth or fifth
RANK_LEVELS = np.array([0, 1, 1, 2, 2])  # level of the colour map by rank
LOGARITHMIC = 30.0  # times the median score, from which on the axis is logarithmic
MOST_NUMBERS = 40  # incidents that are numbered above the scores
MOST_COLUMNS, MOST_ROWS = 40, 24  # incidents and services in one picture of suspects
CELLS = 24  # of an incident; the best rank counts if a cell holds several snapshots
OFTEN = 0.2  # share of an incident for which another service is ranked first, from which on it has a row


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """An incident in the picture of suspects: its number, its label, the services suspected in each of its snapshots
    (best first), and whether it was found."""

    number: int
    span: Span
    suspects: Sequence[Sequence[str]]
    found: bool

    @property
    def culprit_first(self) -> float:
        """Share of the snapshots in which the culprit is ranked first."""
        return sum(list(ranked[:1]) == [self.span.culprit] for ranked in self.suspects) / len(self.suspects)


def draw_scores(truth: GroundTruth, series: VerdictSeries, result: RecordingResult) -> str:
    """Draw score and threshold over time, with incidents shaded and alerts marked; an HTML image."""
    figure = Figure((WIDTH, 3.2), layout="constrained")
    top, status = figure.subplots(2, 1, sharex=True, height_ratios=(12, 1))
    found = find_hits(result)
    _shade_incidents(top, truth, found)
    x = np.arange(len(truth.times))
    gaps = np.flatnonzero(truth.breaks)  # the line is interrupted before each
    top.plot(np.insert(x * 1.0, gaps, np.nan), np.insert(series.score, gaps, np.nan), color=BLUE, lw=1, label="score")
    top.step(x, series.threshold, color="black", lw=1, ls="--", where="post", label="threshold")
    positive = series.score[series.score > 0]
    if len(positive) and series.score.max() > LOGARITHMIC * np.median(positive):
        top.set_yscale("log", nonpositive="clip")
    top.grid(axis="y", alpha=0.4)
    _mark_alerts(top, truth, result)
    _draw_status(status, truth, series)
    status.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    status.xaxis.set_major_formatter(FuncFormatter(lambda at, _: _time(truth, at)))
    status.set_xlim(-1, len(truth.times))
    figure.legend(loc="outside right upper", frameon=False)
    share = f"{sum(found)} of {len(found)} incidents found" if found else "no incident"
    return _image(
        figure,
        f"Scores on {truth.name}: {len(truth.times)} snapshots; {share}; scores from {series.score.min():.3g} to "
        f"{series.score.max():.3g}; anomalous in {int(series.alarm.sum())} snapshots.",
    )


def draw_suspects(truth: GroundTruth, series: VerdictSeries, result: RecordingResult) -> list[str]:
    """Draw which services were suspected in each incident, as HTML images of at most ``MOST_COLUMNS`` incidents."""
    columns = [
        ChartColumn(i, window.span, [[name for name, _ in series.suspects[at]] for at in window.wide.tolist()], hit)
        for i, (window, hit) in enumerate(zip(truth.windows, find_hits(result), strict=True), 1)
        if len(window.wide)
    ]
    parts = [columns[i : i + MOST_COLUMNS] for i in range(0, len(columns), MOST_COLUMNS)]
    return [_draw_columns(truth.name, part) for part in parts]


def draw_reliability(forecast: Forecast, title: str) -> str:
    """Draw how often there was an incident by predicted probability; an HTML image."""
    figure = Figure((3.4, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="black", lw=1, ls="--")
    axes.axhline(forecast.base_rate, color="grey", lw=0.8)
    axes.annotate("base rate", (1, forecast.base_rate), ha="right", va="bottom", color="grey")
    said = [b.said for b in forecast.bins]
    size = [15 + 300 * b.snapshots / forecast.snapshots for b in forecast.bins]
    axes.scatter(said, [b.observed for b in forecast.bins], size, color=BLUE, alpha=0.6)
    axes.set(xlabel="predicted probability", ylabel="share with an incident", xlim=(0, 1), ylim=(0, 1), title=title)
    return _image(
        figure,
        f"{title}: Brier score {forecast.brier:.3f}, {forecast.brier_of_base_rate:.3f} for a constant prediction of "
        f"the base rate {forecast.base_rate:.0%}; "
        + "; ".join(f"{b.said:.0%}: {b.observed:.0%}" for b in forecast.bins),
    )


def find_hits(result: RecordingResult) -> list[bool]:
    """Return whether each incident was found: by an alert that names its place if it has one, else by an alarm in
    time."""
    if result.form is Form.LOCATED and result.run is not None:
        return [outcome.page is not None for outcome in fault_outcomes(result.run)]
    return [outcome.found for outcome in result.outcomes]


def _image(figure: Figure, alt: str) -> str:
    """An HTML image that holds its data, so that the page needs no other file."""
    with io.BytesIO() as buffer, mpl.rc_context(SETTINGS):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}">'


def _time(truth: GroundTruth, position: float) -> str:
    inside = 0 <= position < len(truth.times)
    return f"{truth.instant(int(position)):%d %b %Y\n%H:%M} UTC" if inside else ""


def _shade_incidents(axes: Axes, truth: GroundTruth, found: Sequence[bool]) -> None:
    """Shade and number the incidents; grey where snapshots do not count."""
    known = np.zeros(len(truth.times), bool)
    for window in truth.windows:
        known[window.wide] = True
    unscored = (truth.labels == UNSCORED) & ~known & (truth.form is not Form.SEGMENTS)
    for i, (a, b) in enumerate(_runs(unscored)):
        axes.axvspan(a - 0.5, b + 0.5, color=GREY, alpha=0.4, lw=0, label=None if i else "not evaluated")
    labels = {True: "incident", False: "missed incident"}
    above = axes.get_xaxis_transform()  # heights as shares of the axes
    every = 1 + len(truth.windows) // MOST_NUMBERS
    for number, (window, hit) in enumerate(zip(truth.windows, found, strict=True), 1):
        if not len(window.inside):
            continue
        first, last = window.inside[0] - 0.5, window.inside[-1] + 0.5
        axes.axvspan(first, last, color=SHADE if hit else MISSED, lw=0, label=labels.pop(hit, None))
        if number % every == 0:
            colour = "black" if hit else ORANGE
            axes.text((first + last) / 2, 1.06, f"{number}", color=colour, ha="center", transform=above)


def _mark_alerts(axes: Axes, truth: GroundTruth, result: RecordingResult) -> None:
    """Mark alerts and notices that are judged by the place they name: filled if true, hollow if false."""
    run = result.run
    for word, shape, records in (("alert", "v", run.pages), ("notice", "s", run.notices)) if run is not None else ():
        begins = [microseconds(record.begin) for record in records]
        at = np.minimum(np.searchsorted(truth.times, begins), len(truth.times) - 1)
        true = np.array([any(is_true(record, fault, truth.step) for fault in truth.faults) for record in records], bool)
        for label, colour, face, which in (("true", BLUE, BLUE, true), ("false", ORANGE, "none", ~true)):
            if which.any():
                height = np.full(int(which.sum()), 1.03)
                (marks,) = axes.plot(at[which], height, shape, color=colour, label=f"{label} {word}")
                marks.set(markerfacecolor=face, transform=axes.get_xaxis_transform(), clip_on=False)


def _draw_status(axes: Axes, truth: GroundTruth, series: VerdictSeries) -> None:
    """Draw the status of each snapshot as a strip."""
    by_time = truth.form is not Form.LOCATED  # in located recordings alerts are right or wrong, not times
    normal = (truth.labels == NORMAL) & by_time
    strips: tuple[tuple[str, str, Flags], ...] = (
        ("anomalous", BLUE, series.alarm & ~normal),
        ("false alarm", ORANGE, series.alarm & normal),
        ("warming up or missing", GREY, ~series.on_duty),
    )
    for label, colour, where in strips:
        if where.any():
            axes.broken_barh([(a - 0.5, b - a + 1) for a, b in _runs(where)], (0, 1), color=colour, label=label)
    axes.set(yticks=(), ylim=(0, 1))


def _draw_columns(recording: str, columns: Sequence[ChartColumn]) -> str:
    """Draw incidents side by side, each of the same width, with time running to the right."""
    rows, more = _choose_rows(columns)
    row_of = {service: r for r, service in enumerate(rows)}
    ranks = np.full((len(rows), CELLS * len(columns)), np.nan)
    figure = Figure((WIDTH, 0.7 + 0.2 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for c, column in enumerate(columns):
        count = len(column.suspects)
        for i, ranked in enumerate(column.suspects):
            cells = slice(CELLS * c + i * CELLS // count, CELLS * c + -(-(i + 1) * CELLS // count))
            for level, service in zip(RANK_LEVELS, ranked, strict=False):
                if service in row_of:
                    ranks[row_of[service], cells] = np.fmin(ranks[row_of[service], cells], level)
        if column.span.culprit in row_of:
            corner = (CELLS * c - 0.5, row_of[column.span.culprit] - 0.5)
            axes.add_patch(Rectangle(corner, CELLS, 1, fill=False, edgecolor=ORANGE, lw=1.4))
    axes.imshow(ranks, cmap=RANKS, vmin=0, vmax=2, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(rows)), [_label_row(service, rows) for service in rows])
    axes.set_xticks([CELLS * (c + 0.5) - 0.5 for c in range(len(columns))], [str(c.number) for c in columns])
    axes.set_xticks([CELLS * c - 0.5 for c in range(len(columns) + 1)], minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", axis="both", color=GREY, lw=0.5)
    axes.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
    for label, column in zip(axes.get_xticklabels(), columns, strict=True):
        label.set_color("black" if column.found else ORANGE)
    if more:
        axes.set_xlabel(f"and {more} more services", loc="left")
    names = ("ranked first", "second or third", "fourth or fifth")
    keys = [Patch(color=RANKS(level), label=name) for level, name in enumerate(names)]
    keys.append(Patch(fill=False, edgecolor=ORANGE, label="culprit"))
    figure.legend(handles=keys, loc="outside right upper", frameon=False)
    about = (
        f"Suspects on {recording}: {len(columns)} incidents. Share of snapshots in which the culprit is ranked first: "
    )
    return _image(figure, about + ", ".join(f"{c.number}: {c.culprit_first:.0%}" for c in columns))


def _choose_rows(columns: Sequence[ChartColumn]) -> tuple[list[str], int]:
    """The culprits in the order of their incidents, then other services that were often ranked first, and how many
    services are left out."""
    culprits = dict.fromkeys(column.span.culprit for column in columns if column.span.culprit)
    longest: dict[str, float] = {}
    for column in columns:
        for service, count in Counter(ranked[0] for ranked in column.suspects if ranked).items():
            longest[service] = max(longest.get(service, 0.0), count / len(column.suspects))
    others = [service for service in longest if longest[service] >= OFTEN and service not in culprits]
    rows = [*culprits, *sorted(others, key=lambda service: (-longest[service], service))]
    return rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)


def _label_row(service: str, rows: Sequence[str]) -> str:
    """The name without its namespace if all have the same one; the middle of long names is left out."""
    if len({name.split("/")[0] for name in rows}) == 1:
        service = service.split("/", 1)[-1]
    return service if len(service) <= 28 else f"{service[:13]}…{service[-14:]}"


def _runs(where: Flags) -> list[tuple[int, int]]:
    """First and last index of each run."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], where, [False]]).astype(np.int8)))
    return [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
