"""Keeps the snapshots around incidents while a recording is scored, since a whole recording may not fit in memory."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.web.report.case import rank
from serve_app.web.scored_snapshot import ScoredSnapshot

BEFORE, AFTER = 40, 20  # snapshots kept before and after an incident
LONGEST = 240  # snapshots kept of an incident; of a longer one, every second is dropped, repeatedly


@dataclass(slots=True)
class IncidentWindow:
    """An incident at its highest score, and the snapshots around it.

    Attributes:
        incident: as of ``strongest``.
        strongest: snapshot of its highest score.
        moments: oldest first.
        last: the last time that it was open.
        passed: snapshots since it began.
        after: snapshots since it was open.
        stride: every ``stride``-th snapshot of it is kept.
    """

    incident: IncidentDocument
    strongest: ScoredSnapshot
    moments: list[ScoredSnapshot]
    last: datetime
    passed: int = 0
    after: int = 0
    stride: int = 1


def worst_window(
    moments: Iterable[ScoredSnapshot], is_selected: Callable[[IncidentWindow], bool] = lambda _: True
) -> IncidentWindow | None:
    """Return the window of the worst selected incident; None if there is none.

    Args:
        moments: all snapshots, oldest first; those outside windows are dropped.
        is_selected: whether an incident that is over can be chosen.
    """
    recent: deque[ScoredSnapshot] = deque(maxlen=BEFORE)
    passing: dict[str, IncidentWindow] = {}
    worst: IncidentWindow | None = None
    for moment in moments:
        at = moment.verdict.observed_at
        open_now = {incident.id: incident for incident in moment.verdict.incidents}
        for name in open_now.keys() - passing.keys():
            passing[name] = IncidentWindow(open_now[name], moment, list(recent), at)
        for name, window in list(passing.items()):
            _add(window, moment, open_now.get(name))
            if window.after == AFTER:
                worst = _worse(worst, passing.pop(name), is_selected)
        recent.append(moment)
    for window in passing.values():
        worst = _worse(worst, window, is_selected)
    return worst


def _add(window: IncidentWindow, moment: ScoredSnapshot, incident: IncidentDocument | None) -> None:
    """Add a snapshot; ``incident`` is None if the incident is not open in it."""
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
    worst: IncidentWindow | None, window: IncidentWindow, is_selected: Callable[[IncidentWindow], bool]
) -> IncidentWindow | None:
    if not is_selected(window):
        return worst
    return window if worst is None or rank(window.incident) > rank(worst.incident) else worst
