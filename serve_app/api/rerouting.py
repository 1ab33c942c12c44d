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
        kept: where a part of the calls still goes, of ``lost``.
    """

    new: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)

    def words(self) -> str:
        """``now go to shop/new instead of shop/old``; the subject is the calls."""
        if self.new and self.lost:
            how = "partly" if self.kept.issuperset(self.lost) else "now"
            return f"{how} go to {list_first(self.new, 2)} instead of {list_first(self.lost, 2)}"
        if self.new:
            return f"also go to {list_first(self.new, 2)} now"
        return f"no longer go to {list_first(self.lost, 2)} as usual"


def swapped_callers(incident: Incident) -> dict[str, Route]:
    """Two callers, of which one now has callees that the other one lost, each with these alone. It begins with a caller
    that the first suspect shows; empty if there are no two."""
    routes = routes_of(incident.suspects)
    for caller in routes_of(incident.suspects[:1]):
        mine = routes[caller]
        for other, theirs in routes.items():
            given = [callee for callee in mine.lost if callee in theirs.new]
            taken = [callee for callee in mine.new if callee in theirs.lost]
            if other != caller and (given or taken):
                return {
                    caller: Route(taken or mine.new, given or mine.lost, mine.kept),
                    other: Route(given or theirs.new, taken or theirs.lost, theirs.kept),
                }
    return {}


def routes_of(suspects: Iterable[Suspect]) -> dict[str, Route]:
    """By caller, what the reasons of the suspects say about its calls, strongest first."""
    found: dict[str, Route] = {}
    for suspect in suspects:
        for fact in facts(suspect):
            if fact.metric in (NEW, MOVED):
                caller, callee = fact.source or suspect.service, fact.destination or suspect.service
                listed = found.setdefault(caller, Route()).new
            elif fact.metric == LOST:
                caller, callee = fact.source, suspect.service
                route = found.setdefault(caller, Route())
                listed = route.lost
                if fact.observed > REST * fact.expected:
                    route.kept.add(callee)
            else:
                continue
            if callee not in listed:
                listed.append(callee)
    return found
