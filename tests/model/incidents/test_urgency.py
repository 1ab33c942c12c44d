"""The order of open incidents in a verdict."""

from datetime import timedelta
from itertools import permutations

from model.verdict import Impact, Incident, Severity, sort_by_urgency
from tests.builders import AT, incident, verdict


def open_since(
    name: str,
    severity: Severity = Severity.MAJOR,
    share: float | None = None,
    *,
    age: int = 5,
    recovering: bool = False,
) -> Incident:
    impact = None if share is None else Impact(3, share)
    since = AT - timedelta(minutes=age)
    return incident("a/x", id=name, since=since, severity=severity, recovering=recovering, impact=impact)


def order(*incidents: Incident) -> list[str]:
    return [one.id for one in sort_by_urgency(verdict(*incidents)).incidents]


def test_the_most_urgent_comes_first_whatever_the_order_was() -> None:
    expected = [
        open_since("critical", Severity.CRITICAL, 0.1),
        open_since("half of the requests", share=0.5),
        open_since("older", share=0.1, age=9),
        open_since("younger", share=0.1, age=2),
        open_since("minor", Severity.MINOR, 0.9),
        open_since("critical, recovering", Severity.CRITICAL, 0.9, recovering=True),
        open_since("notice", Severity.NOTICE, age=90),
    ]
    for shuffled in permutations(expected):
        assert order(*shuffled) == [one.id for one in expected]


def test_a_small_change_of_the_share_swaps_nothing() -> None:
    for share in (0.26, 0.3, 0.34):
        assert order(open_since("younger", share=share, age=2), open_since("older", share=0.3)) == ["older", "younger"]


def test_an_unknown_share_counts_as_none() -> None:
    assert order(open_since("unknown", age=9), open_since("some", share=0.2)) == ["some", "unknown"]
