"""Calls that go elsewhere than usual: by caller, and two callers that have each other's callees."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from model.names import list_first
from model.verdict import LOST, MOVED, NEW, Incident, Suspect
from serve_app.api.reason_text import facts

REST = 0.1  # of the usual calls; if more are left, only a part of them goes elsewhere


@dataclass(slots=True)
class Route:
    """Where the calls of a service go now, and where they went before.

    Attributes:
        partial_callees: where a part of the calls still goes, of ``lost_callees``.
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
    """Two callers, of which one now has callees that the other one lost, each with these alone. It begins with a caller
    that the first suspect shows; empty if there are no two."""
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
    """By caller, what the reasons of the suspects say about its calls, strongest first."""
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
                if fact.observed > REST * fact.expected:
                    route.partial_callees.add(callee)
            else:
                continue
            if callee not in callees:
                callees.append(callee)
    return routes
