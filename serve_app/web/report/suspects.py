"""The suspects that a report lists, and the metric of each reason over time."""

import numpy as np

from serve_app.api.number_text import unit
from serve_app.api.reason_text import metric_words
from serve_app.api.schemas.verdict import ReasonDocument, SuspectDocument
from serve_app.drawing.svg import Scale, curve, line, picture, words
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.series import metric_series
from serve_app.web.report.timeline import pixels, seconds, shade_incident, time_scale

MAX = 5  # suspects with a card
MIN = 0.01  # score of a suspect with a card, except the first one
CHARTED = 3  # suspects with charts
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 340.0, 74.0, 334.0, 18.0, 74.0


def listed_suspects(case: ReportedIncident) -> list[tuple[int, SuspectDocument]]:
    """Return the likely suspects, with their ranks; the first one always."""
    ranked = enumerate(case.incident.suspects, 1)
    return [(place, one) for place, one in ranked if place == 1 or one.score >= MIN][:MAX]


def other_suspects(case: ReportedIncident) -> list[str]:
    """Return the services of the unlikely suspects."""
    listed = {one.service for _, one in listed_suspects(case)}
    return [one.service for one in case.incident.suspects if one.service not in listed]


def arrows(text: str) -> str:
    """Write the calls in a text with arrows, without a line break before the arrow."""
    return text.replace(" -> ", "\u00a0→ ")


def chart(case: ReportedIncident, place: int, number: int, service: str, reason: ReasonDocument) -> str:
    """Draw the metric over time, the expected value dashed, and the time when the deviation began; empty for unlikely
    suspects, and for the numbers of a whole scope."""
    if place > CHARTED or case.incident.is_of_scope(service):
        return ""
    values = metric_series((moment.snapshot for moment in case.moments), service, reason)
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return '<p class="about">not measured in the kept snapshots</p>'
    expected = reason.expected
    high = max(float(values[known].max()), expected or 0.0, 1e-9)
    shown = unit(reason.metric, high)
    x, y = time_scale(case, LEFT, RIGHT), Scale(0.0, high * 1.08, BOTTOM, TOP)
    px, breaks = pixels(case, x)
    gaps = {*breaks, *(i for i in known.tolist() if i and not np.isfinite(values[i - 1]))}
    since = x.one(seconds(case, reason.since))
    marks = [shade_incident(case, x, TOP, BOTTOM), line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")]
    marks += [
        line(since, TOP - 4, since, BOTTOM, "since"),
        words(f"since {case.local(reason.since):%H:%M:%S}", *_label_place(since)),
    ]
    if expected is not None:
        level = y.one(expected)
        marks += [line(LEFT, level, RIGHT, level, "threshold")]
        if abs(level - y.one(high)) > 11:
            marks.append(words(shown.words(expected), LEFT - 4, level + 4, anchor="end"))
    marks.append(words(shown.words(high), LEFT - 4, y.one(high) + 4, anchor="end"))
    marks.append(curve(px[known], y.at(values[known]), np.flatnonzero(np.isin(known, list(gaps))).tolist(), "score"))
    name = metric_words(reason.metric)
    about = f"up to {shown.words(high)}" + ("" if expected is None else f", expected {shown.words(expected)}")
    return picture(
        WIDTH, BOTTOM + 6, f"{name} of {service}", about, f"reason-{place}-{number}-{case.incident.id}", *marks
    )


def _label_place(x: float) -> tuple[float, float, str, str]:
    """Return the place of a label beside a vertical line."""
    return (x - 3, 11.0, "label", "end") if x > (LEFT + RIGHT) / 2 else (x + 3, 11.0, "label", "start")
