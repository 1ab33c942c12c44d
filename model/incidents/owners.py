"""Owners of services: by the settings' patterns, else by the snapshot's policies."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from model.names import readable
from model.snapshot import Owner, ServicePolicy, namespace_of
from model.verdict import Incident, Suspect, Verdict


class Owners:
    """Finds the owner of a service.

    Args:
        patterns: from the settings, each ``namespace/name`` with ``*`` for any characters. The most specific one
            counts, which is the one with the most other characters.
        policies: of the snapshot. A policy of the service counts before one of its namespace.
    """

    def __init__(self, patterns: Sequence[tuple[str, Owner]], policies: Iterable[ServicePolicy]) -> None:
        by_specificity = sorted(patterns, key=lambda item: (item[0].count("*") - len(item[0]), item[0].count("*")))
        self._pattern = _compile(tuple(pattern for pattern, _ in by_specificity))
        self._of_patterns = [owner for _, owner in by_specificity]
        self._of_policies = {policy.service: policy.owner for policy in policies if policy.owner is not None}

    def find(self, service: str) -> Owner | None:
        """Return a service's owner by its id; None if it has none."""
        if self._of_patterns:
            for name in {readable(service): None, service: None}:  # settings may have either
                if (match := self._pattern.fullmatch(name)) and match.lastindex:
                    return self._of_patterns[match.lastindex - 1]
        return self._of_policies.get(service) or self._of_policies.get(f"{namespace_of(service)}/*")


@lru_cache(64)
def _compile(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression with a group for each pattern, the first of which counts: an incident may have a thousand
    services, and the settings a hundred patterns."""
    return re.compile("|".join(f"({'.*'.join(map(re.escape, pattern.split('*')))})" for pattern in patterns))


def add_owners(verdict: Verdict, owners: Owners) -> Verdict:
    """Return the verdict with its suspects' owners and its incidents' teams."""
    return replace(
        verdict,
        suspects=tuple(_own(suspect, owners) for suspect in verdict.suspects),
        incidents=tuple(_own_incident(incident, owners) for incident in verdict.incidents),
    )


def _own(suspect: Suspect, owners: Owners) -> Suspect:
    owner = owners.find(suspect.service)
    return suspect if owner is None else replace(suspect, owner=owner)


def _own_incident(incident: Incident, owners: Owners) -> Incident:
    suspects = tuple(_own(suspect, owners) for suspect in incident.suspects)
    affected = [owners.find(service) for service in incident.affected]
    first = [*(suspect.owner for suspect in suspects[:1]), *affected[:1]]
    teams = Counter(owner.team for owner in affected if owner is not None and owner.team)
    return replace(
        incident,
        suspects=suspects,
        owner=first[0] if first else None,
        teams=tuple(team for team, _ in teams.most_common()),
    )
