"""The timeline of an incident: the score of the mesh, the incident and planned changes."""

from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np

from model.names import readable
from model.snapshot import PlannedChange
from serve_app.api.number_text import anomaly_text
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.svg import Scale, curve, hint, instants, line, picture, rectangle, score_scale, tag, words

WIDTH = 900.0  # pixels
LEFT, MARGIN = 40.0, 8.0
LANE, LANES = 15.0, 6  # for the names of planned changes, above the scores
HEIGHT, BELOW = 150.0, 34.0
LETTER = 6.3
SILENCE = 2.5  # steps without a snapshot, above which a line has a gap


def timeline(case: ReportedIncident) -> str:
    """Draw score and threshold over the kept snapshots, the time of the incident, and planned changes."""
    right, first = WIDTH - MARGIN, case.moments[0].verdict.observed_at
    at = np.array([(moment.verdict.observed_at - first).total_seconds() for moment in case.moments])
    scale = Scale(0.0, max(float(at[-1]), 1.0), LEFT, right)

    def pixel(time: datetime) -> float:
        return scale.pixel((time - first).total_seconds())

    flags, top = _changes(case, pixel)
    bottom, x = top + HEIGHT, scale.at(at)
    score = np.array([moment.verdict.mesh_score for moment in case.moments])
    thresholds = [moment.verdict.threshold for moment in case.moments]
    threshold = np.array([np.nan if value is None else value for value in thresholds])
    y = score_scale(score, threshold, bottom, top)
    start = pixel(case.incident.since)
    width = max(pixel(case.ended or case.last) - start, 2)
    marks = [rectangle(start, top, width, HEIGHT, "incident", "the incident")]
    for tick in y.ticks(4):
        height = y.pixel(tick)
        marks += [line(LEFT, height, right, height, "grid"), words(f"{tick:,g}", LEFT - 5, height + 4, anchor="end")]
    has_threshold = np.flatnonzero(np.isfinite(threshold))
    if len(has_threshold):
        marks.append(curve(x[has_threshold], y.at(threshold[has_threshold]), [], "threshold", steps=True))
    steps = np.diff(at)
    gaps: list[int] = (1 + np.flatnonzero(steps > SILENCE * np.median(steps))).tolist() if len(steps) else []
    marks += [curve(x, y.at(score), gaps, "score"), *flags, line(LEFT, bottom, right, bottom, "axis")]
    begin, end = (case.local(moment.verdict.observed_at) for moment in (case.moments[0], case.moments[-1]))
    for place, label in instants(begin, end, scale):
        middle = min(place, WIDTH - LETTER * len(label) / 2)
        marks += [line(place, bottom, place, bottom + 5, "axis"), words(label, middle, bottom + 18, anchor="middle")]
    about = (
        f"{len(case.moments)} snapshots from {begin:%Y-%m-%d %H:%M} to {end:%H:%M %Z}; scores up to "
        f"{anomaly_text(float(score.max()))}; the incident began at {case.local(case.incident.since):%H:%M:%S}."
    )
    return picture(WIDTH, bottom + BELOW, "Score over time", about, f"timeline-{case.incident.id}", *marks)


def _changes(case: ReportedIncident, pixel: Callable[[datetime], float]) -> tuple[list[str], float]:
    """Draw planned changes, those near the incident with names, others as ticks. Also return the top of the scores."""
    near = {(PlannedChange(c.kind, c.service, c.reason), c.at) for c in case.incident.changes}
    changes = {(change, moment.snapshot.observed_at) for moment in case.moments for change in moment.snapshot.changes}
    ends = [0.0] * LANES  # used width of each lane
    names: list[tuple[float, int, str]] = []
    ticks: list[tuple[float, str]] = []
    first = case.moments[0].verdict.observed_at - timedelta(seconds=1)
    for change, at in sorted(changes | near, key=lambda entry: (entry[1], entry not in near, entry[0].service)):
        if at < first:
            continue
        name = readable(change.service.split("/", 1)[1])
        x, text = pixel(at), f"{change.kind.replace('_', ' ')} {name}"
        start = min(x, WIDTH - len(text) * LETTER)
        free = [lane for lane in range(LANES) if ends[lane] <= start]
        if (change, at) in near and free:
            ends[free[0]] = start + len(text) * LETTER + 8
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
