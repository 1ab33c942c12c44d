"""Calls that go elsewhere than usual, by caller, and two callers that have each other's callees."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from model.names import list_first
from model.verdict import LOST, MOVED, NEW, Incident, Suspect
from serve_app.api.reason_text import facts

PARTIAL = 0.1  # share of the usual calls; if more remain, only some of them go elsewhere


@dataclass(slots=True)
class Route:
    """The destinations of a service's calls, now and before.

    Attributes:
        partial_callees: the ``lost_callees`` that still get some of the calls.
    """

    new_callees: list[str] = field(default_factory=list)
    lost_callees: list[str] = field(default_factory=list)
    partial_callees: set[str] = field(default_factory=set)

    def words(self) -> str:
        """``now go to shop/new instead of shop/old``; the subject is the calls."""
        if self.new_callees and self.lost_callees:
            adverb = "partly" if self.partial_callees.issuperset(self.lost_callees) else "now"
            return f"{adverb} go to {list_first(self.new_callees, 2)} instead of {list_first(self.lost_callees, 2)}"
        if self.new_callees:
            return f"also go to {list_first(self.new_callees, 2)} now"
        return f"no longer go to {list_first(self.lost_callees, 2)} as usual"


def swapped_callers(incident: Incident) -> dict[str, Route]:
    """Two callers of which one now has callees that the other lost, with the routes of these callees alone; first one
    that the first suspect shows. Empty if there are no two."""
    routes = routes_of(incident.suspects)
    for caller in routes_of(incident.suspects[:1]):
        mine = routes[caller]
        for other_caller, theirs in routes.items():
            outgoing = [callee for callee in mine.lost_callees if callee in theirs.new_callees]
            incoming = [callee for callee in mine.new_callees if callee in theirs.lost_callees]
            if other_caller != caller and (outgoing or incoming):
                return {
                    caller: Route(incoming or mine.new_callees, outgoing or mine.lost_callees, mine.partial_callees),
                    other_caller: Route(
                        outgoing or theirs.new_callees, incoming or theirs.lost_callees, theirs.partial_callees
                    ),
                }
    return {}


def routes_of(suspects: Iterable[Suspect]) -> dict[str, Route]:
    """The routes by caller, from the suspects' reasons, strongest first."""
    routes: dict[str, Route] = {}
    for suspect in suspects:
        for fact in facts(suspect):
            if fact.metric in (NEW, MOVED):
                caller, callee = fact.source or suspect.service, fact.destination or suspect.service
                callees = routes.setdefault(caller, Route()).new_callees
            elif fact.metric == LOST:
                caller, callee = fact.source, suspect.service
                route = routes.setdefault(caller, Route())
                callees = route.lost_callees
                if fact.observed > PARTIAL * fact.expected:
                    route.partial_callees.add(callee)
            else:
                continue
            if callee not in callees:
                callees.append(callee)
    return routes
