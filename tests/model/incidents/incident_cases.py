"""Incidents that are tracked from snapshot to snapshot."""

from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from model.incidents.feedback import Feedback, PastIncident
from model.incidents.matching import Culprit, FoundGroup, Group, match_incidents
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident
from model.verdict import Severity, Suspect
from tests.model.decision.verdict_cases import POLICY
from tests.model.model_cases import at

NAMES = tuple(f"a/s{i}" for i in range(8))
CLEAR = POLICY.at_interval(15.0).clear


def group(*rows: int, confirmed: bool = True) -> Group:
    return Group(np.array(rows), confirmed)


class Watch:
    """Incidents that are tracked from snapshot to snapshot."""

    def __init__(self, names: tuple[str, ...] = NAMES) -> None:
        self.names = names
        self.memory = IncidentMemory()
        self.index = 0
        self.now: dict[str, Group] = {}
        self.ended: tuple[OpenIncident, ...] = ()

    def see(
        self,
        *found: Group,
        severity: Severity = Severity.MINOR,
        culprits: tuple[Culprit, ...] = (),
        deviating: AbstractSet[str] = frozenset(),
        unseen: AbstractSet[str] = frozenset(),
    ) -> tuple[OpenIncident, ...]:
        """Follow these groups. ``deviating``: services that are not back to normal; ``unseen``: ids of incidents."""
        ordered = sorted(found, key=lambda g: not g.is_confirmed)
        now = at(self.index)
        matched = match_incidents(
            self.memory.open,
            [
                FoundGroup(group, now, severity, culprit)
                for group, culprit in zip(ordered, culprits or [Culprit()] * len(found), strict=True)
            ],
            self.names,
            CLEAR,
            deviating=deviating,
            unseen=unseen,
            lately=self.memory.ended_lately(now),
        )
        self.now, self.ended = matched.groups, matched.ended
        self.memory = replace(self.memory.end(matched.ended, now), open=matched.open)
        self.index += 1
        return matched.open


def suspects(service: str) -> tuple[Suspect, ...]:
    return (Suspect(service, 1.0),)


def feedback_on(incident: PastIncident, was_incident: bool, culprit: str = "", given: float = 20) -> Feedback:
    """Feedback on an incident that was listed."""
    return Feedback(
        incident=incident.id, was_incident=was_incident, services=incident.members, since=incident.since,
        until=incident.until, given_at=at(given), moves={} if was_incident else incident.excess, culprit=culprit,
    )  # fmt: skip
