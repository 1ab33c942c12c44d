"""The timeline of an incident: the score of the mesh, the incident and planned changes."""

from datetime import UTC, datetime, timedelta

import numpy as np

from model.names import readable
from model.snapshot import PlannedChange
from serve_app.api.number_text import anomaly_text
from serve_app.drawing.svg import (
    Floats,
    Scale,
    curve,
    hint,
    instants,
    line,
    picture,
    rectangle,
    score_scale,
    tag,
    words,
)
from serve_app.web.report.case import ReportedIncident

WIDTH = 900.0  # pixels
LEFT, MARGIN = 40.0, 8.0
LANE, LANES = 15.0, 6  # for the names of planned changes, above the scores
HEIGHT, BELOW = 150.0, 34.0
LETTER = 6.3
SILENCE = 2.5  # steps without a snapshot, above which a line has a gap


def time_scale(case: ReportedIncident, start: float, end: float) -> Scale:
    """Return the scale of the kept snapshots, in seconds after the first snapshot."""
    return Scale(0.0, max(seconds(case, case.moments[-1].verdict.observed_at), 1.0), start, end)


def seconds(case: ReportedIncident, at: datetime) -> float:
    """Return the seconds after the first snapshot."""
    return (at - case.moments[0].verdict.observed_at).total_seconds()


def pixels(case: ReportedIncident, scale: Scale) -> tuple[Floats, list[int]]:
    """Return the pixel of each snapshot, ``[T]``, and the snapshots before which a line has a gap."""
    at = np.array([seconds(case, moment.verdict.observed_at) for moment in case.moments])
    steps = np.diff(at, prepend=at[0])
    usual = float(np.median(steps[1:])) if len(steps) > 1 else 1.0
    return scale.at(at), np.flatnonzero(steps > SILENCE * usual).tolist()


def shade_incident(case: ReportedIncident, scale: Scale, top: float, bottom: float) -> str:
    """Draw the time of the incident."""
    left = scale.one(seconds(case, case.incident.since))
    right = scale.one(seconds(case, case.ended or case.last))
    return rectangle(left, top, max(right - left, 2), bottom - top, "incident", "the incident")


def timeline(case: ReportedIncident) -> str:
    """Draw score and threshold over the kept snapshots."""
    right = WIDTH - MARGIN
    scale = time_scale(case, LEFT, right)
    x, breaks = pixels(case, scale)
    flags, top = _changes(case, scale)
    bottom = top + HEIGHT
    score = np.array([moment.verdict.mesh_score for moment in case.moments])
    thresholds = [moment.verdict.threshold for moment in case.moments]
    threshold = np.array([np.nan if value is None else value for value in thresholds])
    y = score_scale(score, threshold, bottom, top)
    marks = [shade_incident(case, scale, top, bottom)]
    for tick in y.ticks(4):
        at = y.one(tick)
        marks += [line(LEFT, at, right, at, "grid"), words(f"{tick:,g}", LEFT - 5, at + 4, anchor="end")]
    known = np.flatnonzero(np.isfinite(threshold))
    if len(known):
        marks.append(curve(x[known], y.at(threshold[known]), [], "threshold", steps=True))
    marks += [curve(x, y.at(score), breaks, "score"), *flags, line(LEFT, bottom, right, bottom, "axis")]
    times = [case.local(moment.verdict.observed_at) for moment in case.moments]
    for at, label in instants([time.replace(tzinfo=UTC) for time in times], x):  # round times of the zone
        middle = min(at, WIDTH - LETTER * len(label) / 2)
        marks += [line(at, bottom, at, bottom + 5, "axis"), words(label, middle, bottom + 18, anchor="middle")]
    about = (
        f"{len(case.moments)} snapshots from {times[0]:%Y-%m-%d %H:%M} to {times[-1]:%H:%M %Z}; scores up to "
        f"{anomaly_text(float(score.max()))}; the incident began at {case.local(case.incident.since):%H:%M:%S}."
    )
    return picture(WIDTH, bottom + BELOW, "Score over time", about, f"timeline-{case.incident.id}", *marks)


def _changes(case: ReportedIncident, scale: Scale) -> tuple[list[str], float]:
    """Draw planned changes, those near the incident with names, others as ticks; also return the top of the scores."""
    near = {(PlannedChange(c.kind, c.service, c.reason), c.at) for c in case.incident.changes}
    planned = sorted(
        {(change, moment.snapshot.observed_at) for moment in case.moments for change in moment.snapshot.changes} | near,
        key=lambda one: (one not in near, one[1], one[0].service),
    )
    ends = [0.0] * LANES  # used width of each lane
    names: list[tuple[float, int, str]] = []
    ticks: list[tuple[float, str]] = []
    first = case.moments[0].verdict.observed_at - timedelta(seconds=1)
    for change, at in sorted(planned, key=lambda one: one[1]):
        if at < first:
            continue
        name = readable(change.service.split("/", 1)[1])
        x, text = scale.one(seconds(case, at)), f"{change.kind.replace('_', ' ')} {name}"
        left = min(x, WIDTH - len(text) * LETTER)
        free = [lane for lane in range(LANES) if ends[lane] <= left]
        if (change, at) in near and free:
            ends[free[0]] = left + len(text) * LETTER + 8
            names.append((x, free[0], text))
        else:
            ticks.append((x, f"{text}, {case.local(at):%H:%M:%S %Z}"))
    top = 14 + LANE * (1 + max((lane for _, lane, _ in names), default=-1))
    marks = []
    for x, lane, text in names:
        y = 11 + LANE * lane
        marks += [
            line(x, y - 8, x, top + HEIGHT, "flag"),
            words(text, min(x + 4, WIDTH - len(text) * LETTER), y, "planned"),
        ]
    for x, text in ticks:
        marks.append(tag("path", hint(text), d=f"M{x:.1f} {top + HEIGHT - 9:.1f}V{top + HEIGHT:.1f}", class_="tick"))
    return marks, top
