"""The order of open incidents in a verdict."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

from model.incidents.urgency import sort_by_urgency
from model.verdict import Impact, Incident, Severity, Status, Verdict

NOW = datetime(2026, 3, 1, 3, 12, tzinfo=UTC)


def incident(
    name: str,
    severity: Severity = Severity.MAJOR,
    share: float | None = None,
    *,
    age: int = 5,
    recovering: bool = False,
) -> Incident:
    impact = None if share is None else Impact(3, share)
    since = NOW - timedelta(minutes=age)
    return Incident(
        id=name,
        since=since,
        severity=severity,
        score=9.0,
        suspects=(),
        affected=("a/x",),
        recovering=recovering,
        impact=impact,
    )


def order(*incidents: Incident) -> list[str]:
    verdict = Verdict(
        observed_at=NOW,
        sequence=20,
        status=Status.ANOMALOUS,
        mesh_score=9.0,
        threshold=4.0,
        probability=0.9,
        suspects=(),
        incidents=incidents,
    )
    return [one.id for one in sort_by_urgency(verdict).incidents]


def test_the_most_urgent_comes_first_whatever_the_order_was() -> None:
    expected = [
        incident("critical", Severity.CRITICAL, 0.1),
        incident("half of the requests", share=0.5),
        incident("older", share=0.1, age=9),
        incident("younger", share=0.1, age=2),
        incident("minor", Severity.MINOR, 0.9),
        incident("critical, recovering", Severity.CRITICAL, 0.9, recovering=True),
        incident("notice", Severity.NOTICE, age=90),
    ]
    for shuffled in permutations(expected):
        assert order(*shuffled) == [one.id for one in expected]


def test_a_small_change_of_the_share_swaps_nothing() -> None:
    for share in (0.26, 0.3, 0.34):
        assert order(incident("younger", share=share, age=2), incident("older", share=0.3)) == ["older", "younger"]


def test_an_unknown_share_counts_as_none() -> None:
    assert order(incident("unknown", age=9), incident("some", share=0.2)) == ["some", "unknown"]
