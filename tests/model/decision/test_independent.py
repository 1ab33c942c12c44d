"""Two faults at once: the weaker one is found beside the stronger one, and victims are not treated as faults."""

from dataclasses import replace

import numpy as np
import pytest

from model.decision.independent import MAX_EXPLAINED, MAX_LOAD, find_independent, independent_of
from model.evidence.attribution import Attribution
from model.evidence.gather import Evidence
from model.evidence.kinds import EvidenceKind
from model.incidents.open_incident import LIKELY_SHARE
from model.incidents.threshold import Track, Tracks
from tests.model.decision.verdict_cases import LEVEL, POLICY, evidence, judge
from tests.model.model_cases import at

CALLER, FIRST, SECOND = range(3)
CALLS = ((CALLER, FIRST), (CALLER, SECOND), (SECOND, FIRST))
ROWS = np.arange(3)
Kinds = dict[tuple[int, EvidenceKind], float]


def scene(kinds: Kinds, explained: float = 0.0, *, load: float = 1.0, gone: int = 0) -> Evidence:
    """Return two services that deviate, the second of which calls the first, and a caller of both.

    Args:
        kinds: evidence, by service and kind, beside the errors of the first service.
        explained: share of the symptoms of the second service that the first one explains.
        load: of the second service, relative to usual.
        gone: snapshots for which the second service has been gone.
    """
    found = evidence(4.0, 15.0, 6.0, calls=CALLS)
    table = np.zeros_like(found.kinds)
    table[FIRST, [EvidenceKind.ERROR, EvidenceKind.ERROR_RAW]] = 15.0
    for place, value in kinds.items():
        table[place] = value
    loads, absent = np.ones(3, np.float32), np.zeros(3, np.int64)
    loads[SECOND], absent[SECOND] = load, gone
    share = np.array([0.5, 0.4, explained], np.float32)
    explanation = replace(found.explanation, load=loads, gone=absent)
    return replace(
        found, kinds=table, explanation=explanation, inbound_load=loads, attribution=Attribution(share, share)
    )


SLOW: Kinds = {(SECOND, EvidenceKind.LATENCY): 8.0, (SECOND, EvidenceKind.LATENCY_RAW): 8.0}
SLOW_BY_ITSELF: Kinds = {**SLOW, (SECOND, EvidenceKind.OWN_TIME): 6.0}
FAILS: Kinds = {(SECOND, EvidenceKind.ERROR): 8.0, (SECOND, EvidenceKind.ERROR_RAW): 8.0}


def above(found: Evidence, *scores: float) -> Tracks:
    """Return tracks in which every candidate has these page scores, the newest first."""
    return {name: Track(scores, at(0), at(0)) for name in found.names}


def is_independent(found: Evidence) -> bool:
    independent = find_independent(found, above(found, 9.0, 9.0), LEVEL, POLICY)
    return bool(SECOND in independent_of(found, ROWS, independent))


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("it is slow, and its callee only fails", scene(SLOW_BY_ITSELF)),
        ("it fails far more than its callee explains", scene(FAILS, MAX_EXPLAINED / 2)),
        (
            "it has disappeared",
            scene({(SECOND, EvidenceKind.VANISHED): 4.0, (SECOND, EvidenceKind.CALLERS): 9.0}, gone=4),
        ),
    ],
)
def test_a_fault_beside_another_one_is_found(what: str, found: Evidence) -> None:
    assert is_independent(found), what


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("its callee explains its errors", scene(FAILS, 0.9)),
        ("what its callee explains is not known", scene(FAILS)),
        ("it retries what fails", scene(SLOW)),
        ("its callee is slow, too", scene({**SLOW_BY_ITSELF, (FIRST, EvidenceKind.LATENCY_RAW): 9.0}, 0.9)),
        ("it waits for a slow callee in vain", scene({**FAILS, (FIRST, EvidenceKind.LATENCY_RAW): 9.0}, 0.1)),
        ("its callee has disappeared", scene({**SLOW_BY_ITSELF, (FIRST, EvidenceKind.VANISHED): 4.0})),
        ("it has too many requests", scene(SLOW_BY_ITSELF, load=MAX_LOAD)),
        ("a caller makes more calls than usual", scene({**SLOW_BY_ITSELF, (CALLER, EvidenceKind.CALLS_OUT): 6.0})),
        ("traffic has moved", scene({**SLOW_BY_ITSELF, (CALLER, EvidenceKind.VANISHED): 6.0})),
    ],
)
def test_a_victim_of_another_fault_is_not_a_fault_of_its_own(what: str, found: Evidence) -> None:
    assert not is_independent(found), what


def test_nothing_is_independent_before_it_is_confirmed_or_if_calls_are_unknown() -> None:
    found = scene(SLOW_BY_ITSELF)
    assert not find_independent(found, {}, LEVEL, POLICY).any()
    assert not find_independent(found, above(found, 9.0), LEVEL, POLICY).any(), "it takes two snapshots"
    assert not find_independent(found, above(found, 9.0, LEVEL - 0.1), LEVEL, POLICY).any()
    assert find_independent(found, above(found, 9.0, LEVEL), LEVEL, POLICY).any()
    assert not find_independent(replace(found, attribution=None), above(found, 9.0, 9.0), LEVEL, POLICY).any()


def test_the_second_fault_is_a_likely_suspect_of_the_incident() -> None:
    verdicts, _ = judge(*[scene(SLOW_BY_ITSELF)] * 8)
    (incident,) = verdicts[-1].alerts
    likely = [suspect.service for suspect in incident.suspects if suspect.score >= LIKELY_SHARE]
    assert likely == ["a/s1", "a/s2"]
    assert incident.suspects[1].reasons
    assert sum(suspect.score for suspect in incident.suspects) == pytest.approx(1, abs=1e-5)


def test_a_victim_is_no_likely_suspect() -> None:
    verdicts, _ = judge(*[scene(FAILS, 0.9)] * 8)
    (incident,) = verdicts[-1].alerts
    assert [suspect.service for suspect in incident.suspects if suspect.score >= LIKELY_SHARE] == ["a/s1"]
