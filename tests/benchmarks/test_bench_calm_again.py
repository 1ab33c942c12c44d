"""The mesh of calm again draws the same each time, its scenarios change what they say, and its lines judge verdicts."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.calm_again.cases import BEGIN, LATER, LENGTHS, NIGHT_SPACING, Case, Night, cases, scenario
from benchmarks.calm_again.judge import Alert, Line, Mark, decision, judge, new_alerts
from benchmarks.calm_again.mesh import CALLS, NAMES, OWN_MS, USUAL_RATES, World, snapshots
from benchmarks.calm_again.score import mark, verdicts
from model.snapshot import NodeMetric

CALM = Mark((), 1.0, 2.0, True)


def case(name: str, seed: int = 5) -> Case:
    return Case(name, seed, LENGTHS[name])


def alarm(id: str = "1", suspect: str = "web", headline: str = "shop/web is slow") -> Mark:
    return Mark((Alert(id, headline, suspect),), 3.0, 2.0, False)


def marks(name: str, changes: Mapping[int, Mark]) -> list[Mark]:
    """Calm marks of a case, except for these positions."""
    return [changes.get(k, CALM) for k in range(LENGTHS[name])]


def in_range(first: int, last: int, mark: Mark) -> dict[int, Mark]:
    return dict.fromkeys(range(first, last), mark)


def verdict(lines: Sequence[Line]) -> list[tuple[float, bool]]:
    return [(line.value, line.holds) for line in lines]


def test_callers_come_before_what_they_call() -> None:
    assert all(NAMES.index(caller) < NAMES.index(callee) for caller in CALLS for callee in CALLS[caller])
    assert set(CALLS) <= set(OWN_MS)


def test_equal_seeds_draw_equal_snapshots() -> None:
    first, again, third = (
        [snapshot.node_features for snapshot in snapshots(lambda position, world: None, 3, seed)] for seed in (5, 5, 6)
    )
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], third[0], equal_nan=True)


def test_callers_are_slow_because_of_what_they_call() -> None:
    def slow(position: int, world: World) -> None:
        world.own_ms["bank"] += 1000

    column = NodeMetric.P50_LATENCY
    usual, slower = (
        next(snapshots(scenario, 1, 5)).node_features[:, column] for scenario in (lambda k, world: None, slow)
    )
    rise = dict(zip(NAMES, slower - usual, strict=True))
    assert rise["bank"] > 0.8
    assert rise["pay"] > 0.7
    assert rise["web"] > 0.05
    assert abs(rise["cart"]) < 0.02


@pytest.mark.parametrize("name", LENGTHS)
def test_a_scenario_changes_nothing_before_its_fault(name: str) -> None:
    change, before, after = scenario(case(name)), World(100.0), World(100.0)
    change(BEGIN - 1, before)
    change(BEGIN, after)
    assert before == World(100.0)
    assert after != World(100.0)


def test_a_night_is_the_same_with_the_same_seed_and_has_quiet_between_its_faults() -> None:
    assert Night(5).faults == Night(5).faults != Night(6).faults
    assert all(b.at - a.at == NIGHT_SPACING for a, b in pairwise(Night(5).faults))
    assert all(USUAL_RATES[fault.service] >= 8 for fault in Night(5).faults)
    assert max(case.snapshots for case in cases(5)) == cases(5)[0].snapshots


def test_an_alert_that_stays_after_its_fault_is_a_fault() -> None:
    good = marks(
        "residue", in_range(BEGIN, BEGIN + 36, alarm()) | {LATER + 2: alarm("2", "pay", "shop/pay is failing")}
    )
    assert verdict(judge(case("residue"), good)) == [(0, True), (1, True)]
    lasting = marks("residue", in_range(BEGIN, LATER + 16, alarm(headline="shop/pay is failing")))
    assert verdict(judge(case("residue"), lasting)) == [(84, False), (0, False)]
    (late, _) = judge(case("residue"), lasting)
    assert str(late).startswith(
        "FAULT residue: 84 of 84 snapshots in alarm from 6 minutes after the fault on 'shop/pay"
    )


def test_a_shift_of_a_millisecond_is_no_alert() -> None:
    assert verdict(judge(case("step"), marks("step", {}))) == [(0, True)]
    assert verdict(judge(case("step"), marks("step", in_range(BEGIN, BEGIN + 5, alarm())))) == [(5, False)]


def test_a_fall_of_traffic_is_an_alert_until_the_traffic_is_back() -> None:
    fell = alarm(headline="requests of the mesh fell")
    assert verdict(judge(case("swing"), marks("swing", in_range(BEGIN + 11, BEGIN + 24, fell)))) == [
        (1, True),
        (0, True),
    ]
    assert verdict(judge(case("swing"), marks("swing", {BEGIN + 30: fell}))) == [(0, False), (1, False)]


@pytest.mark.parametrize("name", ["network", "cpu"])
def test_the_first_suspect_of_most_alerts_counts(name: str) -> None:
    alarms = in_range(BEGIN, BEGIN + 24, alarm()) | in_range(BEGIN + 4, BEGIN + 10, alarm(suspect="search"))
    assert verdict(judge(case(name), marks(name, alarms))) == [(1, True)]
    assert verdict(judge(case(name), marks(name, in_range(BEGIN, BEGIN + 24, alarm(suspect="search"))))) == [(0, False)]
    assert verdict(judge(case(name), marks(name, {}))) == [(0, False)]


def test_each_fault_of_a_night_is_found_and_named_and_it_is_quiet_between_them() -> None:
    faults = Night(5).faults
    perfect = {fault.at + 3: alarm(f"{fault.at}", fault.service) for fault in faults}
    assert verdict(judge(case("night"), marks("night", perfect))) == [(0, True), (40, True), (40, True)]
    one_alert = marks("night", in_range(BEGIN, LENGTHS["night"], alarm(suspect="nothing")))
    (share, count, right) = judge(case("night"), one_alert)
    assert share.value > 0.8
    assert (count.value, right.value) == (1, 0)
    assert not any(line.holds for line in (share, count, right))


def test_the_score_and_the_threshold_shown_are_what_decides() -> None:
    calm = marks("cpu", {})
    assert verdict(decision(case("cpu"), calm)) == [(0, True), (0, True), (1, True)]
    below = Mark(alarm().alerts, 1.9, 2.0, False)
    high = Mark((), 2.4, 2.0, True)
    far = Mark((), 1.0, 3.2, True)
    scores = {10: below, 11: below} | in_range(20, 26, high) | in_range(40, 44, high) | {70: far}
    below_line, above_line, moved_line = decision(case("cpu"), marks("cpu", scores))
    assert (below_line.value, below_line.holds) == (1, False), "an incident opens once"
    assert (above_line.value, above_line.holds) == (1, False), "four snapshots are too few"
    assert (moved_line.value, moved_line.holds) == (1.6, False)


def test_an_alert_is_new_once() -> None:
    assert [len(fresh) for fresh in new_alerts([alarm("1"), CALM, alarm("1"), alarm("2")])] == [1, 0, 0, 1]


def test_marks_are_scored_in_process() -> None:
    step_marks = [mark(verdict) for verdict in verdicts(scenario(Case("step", 5, 12)), 12, 5)]
    assert len(step_marks) == 12
    assert not step_marks[0].is_normal, "the detector warms up"
    assert step_marks[-1].is_normal
    assert 0 <= step_marks[-1].score < step_marks[-1].threshold
