"""What TAGAE knew when: state, score and first suspect of an incident over time, as rows and as a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from itertools import pairwise

import numpy as np

from model.names import readable
from serve_app.api.number_text import anomaly_text, score_text
from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.drawing.svg import Scale, curve, hint, instants, line, picture, rectangle, tag, words
from serve_app.web.report.case import ReportedIncident
from serve_app.web.report.timeline import HEIGHT, LEFT, LETTER, MARGIN, WIDE, pixels, seconds, time_scale

LANE, GAP, BELOW = 22.0, 6.0, 34.0  # pixels of the lanes of states and of first suspects, and of the axis
TOP = 14.0
SCORES = 0.6 * HEIGHT
FEW_LETTERS = 4  # of a name, below which it is left out
MOST_ROWS = 60  # of the table; of a longer incident, the first and the last


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What was known from one snapshot on, until the next one.

    Attributes:
        at: time of the snapshot.
        state: the severity, ``recovering``, or ``unknown`` if the first suspect sends no telemetry.
        suspect: the first one; empty if there is none.
        suspicion: its score, 0 to 1.
        score: of the incident, in decades.
        affected: number of services.
        zone: in which the time is written.
    """

    at: datetime
    state: str
    suspect: str
    suspicion: float
    score: float
    affected: int
    zone: tzinfo = UTC

    @property
    def time(self) -> str:
        """The time of the snapshot in the zone of the report."""
        return f"{self.at.astimezone(self.zone):%H:%M:%S}"

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table, see :func:`head`."""
        suspect = f"{self.suspect} ({score_text(self.suspicion)})" if self.suspect else "none"
        return self.time, self.state, suspect, anomaly_text(self.score), f"{self.affected:,}"


def head(case: ReportedIncident) -> tuple[str, ...]:
    """Return the names of the columns of :attr:`Knowledge.row`."""
    return f"time ({case.local(case.last):%Z})", "state", "first suspect", "score", "affected"


def all_knowledge(case: ReportedIncident) -> list[Knowledge]:
    """Return what was known in each kept snapshot with the incident, oldest first."""
    return [
        replace(_known(moment.verdict.observed_at, one), zone=case.zone)
        for moment in case.moments
        for one in moment.verdict.incidents
        if one.id == case.incident.id
    ]


def news(case: ReportedIncident) -> list[Knowledge]:
    """Return the snapshots in which the state or the first suspect changed, the one of the highest score, and the last
    one."""
    known = all_knowledge(case)
    top, last = case.worst.verdict.observed_at, known[-1].at
    found = [
        now
        for before, now in zip([None, *known], known, strict=False)
        if before is None or (before.state, before.suspect) != (now.state, now.suspect) or now.at in (top, last)
    ]
    half = MOST_ROWS // 2
    return found if len(found) <= MOST_ROWS else [*found[:half], *found[-half:]]


def knowledge_picture(case: ReportedIncident, width: float = WIDE) -> str:
    """Draw states, first suspects and the score of the incident, from the snapshot before it to the one after it."""
    case = _during(case)
    known, right = all_knowledge(case), width - MARGIN
    suspects, scores = TOP + LANE + GAP, TOP + 2 * (LANE + GAP) + GAP
    bottom = scores + SCORES
    marks = [*_lane(case, right, TOP, "state", "state"), *_lane(case, right, suspects, "first-suspect", "suspect")]
    marks += _scores(case, known, right, scores, bottom)
    about = "; ".join(f"{one.time} {one.state}, first suspect {one.suspect or 'none'}" for one in news(case))
    name = f"knowledge-{width:.0f}-{case.incident.id}"
    return picture(width, bottom + BELOW, "What was known when", f"{about}.", name, *marks)


def _during(case: ReportedIncident) -> ReportedIncident:
    """Keep the snapshots with the incident, and one on each side."""
    has = [
        i for i, moment in enumerate(case.moments) if case.incident.id in {one.id for one in moment.verdict.incidents}
    ]
    return replace(case, moments=case.moments[max(has[0] - 1, 0) : has[-1] + 2])


def _lane(case: ReportedIncident, right: float, y: float, name: str, of: str) -> Iterator[str]:
    """Draw one field of the knowledge as plates with its values, from change to change."""
    scale = time_scale(case, LEFT, right)
    times = [moment.verdict.observed_at for moment in case.moments]
    ends = {at: scale.one(seconds(case, following)) for at, following in pairwise(times)}
    for run in _runs(all_knowledge(case), of):
        value = getattr(run[0], of) or "none"
        class_ = f"{name} {value}" if of == "state" else name
        left, end = scale.one(seconds(case, run[0].at)), ends.get(run[-1].at, right)
        yield rectangle(
            left, y, max(end - left, 2.0), LANE, class_, f"{value}, from {case.local(run[0].at):%H:%M:%S %Z}"
        )
        if text := _truncate(readable(value.split("/", 1)[-1]), int((end - left - 8) / LETTER)):
            yield words(text, left + 5, y + 15, f"on-{class_}")


def _scores(
    case: ReportedIncident, known: Sequence[Knowledge], right: float, top: float, bottom: float
) -> Iterator[str]:
    """Draw the score of the incident with a dot at its highest, and the axes."""
    scale = time_scale(case, LEFT, right)
    y = Scale(0.0, 1.08 * max(1.0, *(one.score for one in known)), bottom, top)
    for level in y.ticks(3):
        yield line(LEFT, y.one(level), right, y.one(level), "grid")
        yield words(f"{level:,g}", LEFT - 5, y.one(level) + 4, anchor="end")
    at = np.array([scale.one(seconds(case, one.at)) for one in known])
    yield curve(at, y.at(np.array([one.score for one in known])), [], "score")
    highest, peak = case.incident.score, scale.one(seconds(case, case.worst.verdict.observed_at))
    yield tag(
        "circle", hint(f"highest score {anomaly_text(highest)}"), cx=peak, cy=y.one(highest), r=3.5, class_="peak"
    )
    yield line(LEFT, bottom, right, bottom, "axis")
    x, _ = pixels(case, scale)
    for place, label in instants([moment.verdict.observed_at for moment in case.moments], x):
        yield line(place, bottom, place, bottom + 5, "axis")
        middle = min(place, right + MARGIN - LETTER * len(label) / 2)
        yield words(label, middle, bottom + 18, anchor="middle")


def _truncate(text: str, most: int) -> str:
    """At most so many letters; empty if hardly any fit."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most >= FEW_LETTERS else ""


def _known(at: datetime, incident: IncidentDocument) -> Knowledge:
    first = incident.suspects[0] if incident.suspects else None
    state = "unknown" if incident.is_unseen else "recovering" if incident.recovering else incident.severity
    return Knowledge(
        at,
        state,
        first.service if first else "",
        first.score if first else 0.0,
        incident.score,
        len(incident.affected),
    )


def _runs(known: Sequence[Knowledge], of: str) -> Iterator[list[Knowledge]]:
    """Yield the snapshots in a row with the same value of a field."""
    run: list[Knowledge] = []
    for one in known:
        if run and getattr(run[-1], of) != getattr(one, of):
            yield run
            run = []
        run.append(one)
    if run:
        yield run
