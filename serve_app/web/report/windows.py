"""The moments around incidents, kept while they pass by: a report needs some of before, and not a whole day."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.moments import Moment
from serve_app.web.report.case import rank

BEFORE, AFTER = 40, 20  # moments kept around an incident
LONGEST = 240  # moments kept of an incident; where it is longer, every second one is let go, as often as it takes


@dataclass(slots=True)
class IncidentWindow:
    """An incident as it was at its strongest, and what is kept around it.

    Attributes:
        incident: as of ``strongest``.
        strongest: the moment of its highest score.
        moments: oldest first.
        last: the last time that it was open.
        passed: moments since it began.
        after: moments since it was open.
        stride: each how manieth moment of it is kept.
    """

    incident: IncidentDocument
    strongest: Moment
    moments: list[Moment]
    last: datetime
    passed: int = 0
    after: int = 0
    stride: int = 1


def worst_window(
    moments: Iterable[Moment], wanted: Callable[[IncidentWindow], bool] = lambda _: True
) -> IncidentWindow | None:
    """The window of the worst incident that is wanted; None where there is none.

    Args:
        moments: all, oldest first; those outside windows are let go.
        wanted: whether an incident that is over may be the one.
    """
    recent: deque[Moment] = deque(maxlen=BEFORE)
    passing: dict[str, IncidentWindow] = {}
    worst: IncidentWindow | None = None
    for moment in moments:
        at = moment.verdict.observed_at
        told = {incident.id: incident for incident in moment.verdict.incidents}
        for name in told.keys() - passing.keys():
            passing[name] = IncidentWindow(told[name], moment, list(recent), at)
        for name, window in list(passing.items()):
            _pass(window, moment, told.get(name))
            if window.after == AFTER:
                worst = _worse(worst, passing.pop(name), wanted)
        recent.append(moment)
    for window in passing.values():
        worst = _worse(worst, window, wanted)
    return worst


def _pass(window: IncidentWindow, moment: Moment, incident: IncidentDocument | None) -> None:
    """One more moment, in which the incident is open, or is not."""
    window.passed += 1
    window.after = 0 if incident else window.after + 1
    if incident:
        window.last = moment.verdict.observed_at
        if incident.score > window.incident.score:
            window.incident, window.strongest = incident, moment
    if window.after or window.passed % window.stride == 0 or moment is window.strongest:
        window.moments.append(moment)
    if len(window.moments) > BEFORE + LONGEST + AFTER:
        window.stride *= 2
        window.moments = [
            one for i, one in enumerate(window.moments) if i < BEFORE or i % 2 == 0 or one is window.strongest
        ]


def _worse(
    worst: IncidentWindow | None, window: IncidentWindow, wanted: Callable[[IncidentWindow], bool]
) -> IncidentWindow | None:
    if not wanted(window):
        return worst
    return window if worst is None or rank(window.incident) > rank(worst.incident) else worst
