"""What is remembered of incidents, planned changes and mesh scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.incidents.memory import IncidentMemory
from model.snapshot import PlannedChange
from tests.model.incidents.incident_cases import LEVEL, NAMES, POLICY, Watch, at, group


def test_services_of_an_open_incident_are_not_learned_from() -> None:
    watch = Watch()
    watch.see(group(1, 3))
    np.testing.assert_array_equal(watch.memory.is_in_incident(NAMES), [i in (1, 3) for i in range(8)])
    assert not IncidentMemory().is_in_incident(NAMES).any()


def test_a_service_is_above_its_level_if_it_was_so_lately() -> None:
    memory = IncidentMemory(above_level={NAMES[2]: (0b100, at(0))})
    np.testing.assert_array_equal(memory.is_above_level(NAMES), [i == 2 for i in range(8)])


def test_changes_are_remembered_for_a_number_of_snapshots() -> None:
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    memory = IncidentMemory().advance_changes([deploy], 3)
    assert memory.changes == ((deploy, 0),)
    memory = memory.advance_changes([scale], 3)
    assert memory.changes == ((deploy, 1), (scale, 0))
    assert memory.advance_changes([], 3).advance_changes([], 3).changes == ((scale, 2),)


def test_a_change_settles_in_the_last_snapshot_in_which_it_is_remembered() -> None:
    deploy, retire = PlannedChange("deploy", NAMES[0]), PlannedChange("deletion", NAMES[2])
    memory = IncidentMemory().advance_changes([deploy, retire], 3)
    settled = []
    for _ in range(4):
        settled.append(memory.has_expiring_change(NAMES).nonzero()[0].tolist())
        memory = memory.advance_changes([], 3, 10)
    assert settled == [[], [], [0], []]


def test_a_change_that_may_bring_a_new_version_is_remembered_longer() -> None:
    """Scalings are soon over. A rollout restarts one replica after the other, which its callers hardly notice."""
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[1])
    memory = IncidentMemory().advance_changes([deploy, scale], 3, 0, 6)
    remembered, late, settled = [], [], []
    for _ in range(7):
        remembered.append(memory.has_planned_change(NAMES).nonzero()[0].tolist())
        late.append(memory.has_late_change(NAMES).nonzero()[0].tolist())
        settled.append(memory.has_expiring_change(NAMES).nonzero()[0].tolist())
        memory = memory.advance_changes([], 3, 0, 6)
    assert remembered == [[0, 1]] * 3 + [[0]] * 3 + [[]]
    assert late == [[]] * 3 + [[0]] * 3 + [[]]
    assert settled == [[], [], [0, 1], [], [], [0], []], "once for its neighbours, and once for itself"


def test_a_scaling_after_a_deploy_is_early_again() -> None:
    deploy, scale = PlannedChange("deploy", NAMES[0]), PlannedChange("scale_out", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 2, 0, 6)
    for changes in ([], [], [scale]):
        memory = memory.advance_changes(changes, 2, 0, 6)
    assert not memory.has_late_change(NAMES).any()
    for _ in range(2):
        memory = memory.advance_changes([], 2, 0, 6)
    assert memory.late == {NAMES[0]}, "the deploy is still remembered"


def test_a_change_settles_after_the_newest_of_its_service() -> None:
    deploy = PlannedChange("deploy", NAMES[0])
    memory = IncidentMemory().advance_changes([deploy], 3).advance_changes([], 3).advance_changes([deploy], 3)
    settled = [(memory := memory.advance_changes([], 3)).expiring_changes for _ in range(3)]
    assert settled == [frozenset(), {NAMES[0]}, frozenset()]


def test_deletions_are_remembered_while_the_service_counts_as_missing() -> None:
    memory = IncidentMemory().advance_changes(
        [PlannedChange("deletion", NAMES[0]), PlannedChange("deploy", NAMES[1])], 2, 5
    )
    lengths = []
    for _ in range(6):
        lengths.append(len(memory.changes))
        memory = memory.advance_changes([], 2, 5)
    assert lengths == [2, 2, 1, 1, 1, 0]


def test_the_threshold_is_a_percentile_of_scores_without_alerts() -> None:
    assert IncidentMemory().threshold(99, LEVEL) == 0
    scores = np.random.default_rng(0).permutation(101)
    assert IncidentMemory(scores=tuple(scores.astype(float))).threshold(99, suspicious=100.0) == 99


@pytest.mark.parametrize(
    ("scores", "highest"),
    [
        ((1, 9, 1), 9),  # by chance
        ((1, 9, 8, 1), 9),
        ((1, 9, 8, 7, 1), 1),  # an anomaly that raised no alert
        ((1, LEVEL, LEVEL, LEVEL, 1), LEVEL),  # not above it
        ((2, 1, 9), 2),  # it may become one
        ((2, 1, 9, 8), 2),
        ((9, 9, 9, 2, 9, 1), 9),
        ((9, 9), 0),
    ],
)
def test_runs_of_suspicious_scores_and_the_newest_run_do_not_count_for_the_threshold(
    scores: tuple[float, ...], highest: float
) -> None:
    assert IncidentMemory(scores=tuple(map(float, scores))).threshold(100, LEVEL) == highest


@given(st.lists(st.floats(0, 4), min_size=1, max_size=30), st.integers(1, 40))
def test_the_threshold_holds_still_during_an_anomaly(usual: list[float], length: int) -> None:
    before = IncidentMemory(scores=tuple(usual)).threshold(99, LEVEL)
    assert IncidentMemory(scores=(*usual, *[9.0] * length)).threshold(99, LEVEL) == before


def test_a_planned_change_exposes_its_service_while_it_is_remembered() -> None:
    memory = IncidentMemory().advance_changes([PlannedChange("deploy", "shop/b", "v2")], POLICY.change_memory)
    names = ["shop/a", "shop/b"]
    exposed = []
    for _ in range(POLICY.change_intervals + 2):
        exposed.append(memory.has_planned_change(names).tolist())
        memory = memory.advance_changes((), POLICY.change_memory)
    assert exposed == [[False, True]] * (POLICY.change_intervals + 1) + [[False, False]]
    retired = IncidentMemory().advance_changes([PlannedChange("deletion", "shop/b", "")], POLICY.change_memory)
    assert not retired.has_planned_change(names).any()
