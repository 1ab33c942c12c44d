"""Keeps the snapshots around incidents while a recording is scored, since a whole recording may not fit in memory."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from serve_app.api.schemas.verdict import IncidentDocument
from serve_app.stores.scored_snapshot import ScoredSnapshot
from serve_app.web.report.case import rank

BEFORE, AFTER = 40, 20  # snapshots kept before and after an incident
LONGEST = 300  # snapshots of a window; of a longer incident, the last ones are left out


@dataclass(slots=True)
class IncidentWindow:
    """An incident at its highest score, and the snapshots around it.

    Attributes:
        last: the last time that it was open.
        moments: oldest first, with the one of the highest score.
        after: snapshots since it was open.
    """

    incident: IncidentDocument
    last: datetime
    moments: list[ScoredSnapshot]
    after: int = 0


def worst_window(
    moments: Iterable[ScoredSnapshot], is_selected: Callable[[IncidentWindow], bool] = lambda _: True
) -> IncidentWindow | None:
    """Return the window of the worst selected incident among all snapshots, oldest first; None if there is none."""
    recent: deque[ScoredSnapshot] = deque(maxlen=BEFORE)
    passing: dict[str, IncidentWindow] = {}
    over: list[IncidentWindow] = []  # the worst one so far, if there is one
    for moment in moments:
        open_now = {incident.id: incident for incident in moment.verdict.incidents}
        for name, incident in open_now.items():
            window = passing.get(name)
            is_higher = window is None or incident.score > window.incident.score
            if window is None or (is_higher and len(window.moments) >= LONGEST):
                window = passing[name] = IncidentWindow(incident, moment.verdict.observed_at, list(recent))
            window.incident = incident if is_higher else window.incident
            window.last = moment.verdict.observed_at
        for name, window in list(passing.items()):
            if len(window.moments) < LONGEST:
                window.moments.append(moment)
            window.after = 0 if name in open_now else window.after + 1
            if window.after == AFTER:
                over = _worst([*over, passing.pop(name)], is_selected)
        recent.append(moment)
    return next(iter(_worst([*over, *passing.values()], is_selected)), None)


def _worst(windows: Iterable[IncidentWindow], is_selected: Callable[[IncidentWindow], bool]) -> list[IncidentWindow]:
    return sorted(filter(is_selected, windows), key=lambda window: rank(window.incident), reverse=True)[:1]
