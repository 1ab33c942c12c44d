"""Headlines are compared with the truth. The code that writes them does not know it."""

from dataclasses import replace

import pytest

from benchmarks.bench_headlines import BEGINS, ENDS, RIGHT, Trial, draw, find_headline, score
from lab.simulator.events.faults import KINDS, Fault
from model.checkpoint import load
from model.verdict import IncidentKind


def test_every_kind_of_fault_has_a_right_answer() -> None:
    assert set(RIGHT) == set(KINDS)
    assert all(RIGHT.values())


def test_a_seed_gives_one_truth() -> None:
    assert draw(3) == draw(3)
    assert len({draw(seed).fault.kind for seed in range(12)}) > 3


@pytest.fixture(scope="module")
def trial() -> Trial:
    drawn = draw(3)
    culprit = drawn.fault.service
    truth = replace(drawn, fault=Fault("error_burst", culprit, BEGINS, ENDS, 0.5), culprits=frozenset({culprit}))
    return Trial(truth, *find_headline(list(score(load(), truth))))


def test_a_gross_fault_is_named(trial: Trial) -> None:
    assert trial.names_culprit
    assert trial.names_kind
    assert trial.text.startswith(f"{trial.truth.fault.service} is failing: ")


def test_a_wrong_culprit_or_kind_or_none_is_seen(trial: Trial) -> None:
    other = replace(trial, truth=replace(trial.truth, culprits=frozenset({"a/other"})))
    assert (other.names_culprit, other.names_kind) == (False, True)
    assert trial.incident is not None
    slow = replace(trial, incident=replace(trial.incident, kind=IncidentKind.SLOW))
    assert (slow.names_culprit, slow.names_kind) == (True, False)
    unnamed = replace(trial, text="it deviates")
    assert not unnamed.names_culprit
    nothing = Trial(trial.truth, *find_headline([]))
    assert (nothing.names_culprit, nothing.names_kind) == (False, False)
