"""Effects of planned changes are counted separately."""

import numpy as np

from model.features import EDGE_CHANNELS, NODE_CHANNELS
from model.state.change_impact import (
    ABOVE,
    BEGUN,
    BESIDE,
    EXCESS,
    IMPACT_MEMORY,
    KEPT,
    OWN,
    SEEN,
    UNEXPOSED,
    exposures,
    no_impact,
    settled_series,
    update_impact,
)
from model.state.filters import TAIL_START, Deviation
from tests.model.filter_cases import Series

QUIET = np.zeros(4, bool)


def deviation_of(*values: float) -> Deviation:
    """Return deviations of one series per value, after 100 snapshots of noise around 0."""
    return Series(len(values)).settle(100).see(*values)


def test_a_change_exposes_its_service_its_callers_and_the_calls_to_both() -> None:
    calls = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])  # 0 calls 1 calls 2 calls 3 calls 0
    changed = np.array([False, False, True, False])
    node, edge = exposures(changed, QUIET, calls)
    np.testing.assert_array_equal(node, [UNEXPOSED, BESIDE, OWN, UNEXPOSED])
    np.testing.assert_array_equal(edge, [BESIDE, OWN, BESIDE, UNEXPOSED])
    assert not np.concatenate(exposures(QUIET, QUIET, calls)).any()
    node, edge = exposures(changed, changed, calls)
    np.testing.assert_array_equal(node, [UNEXPOSED, UNEXPOSED, OWN, UNEXPOSED])
    np.testing.assert_array_equal(edge, [UNEXPOSED, OWN, UNEXPOSED, UNEXPOSED])


def test_latency_and_resources_settle_after_a_change_and_traffic_and_errors_do_not() -> None:
    rows, paused = np.array([UNEXPOSED, BESIDE, OWN, OWN]), np.array([False, False, False, True])
    for channels, kept in ((NODE_CHANNELS, {"request_rate", "error_rate"}), (EDGE_CHANNELS, KEPT - {"request_rate"})):
        series = settled_series(rows, paused, channels)
        assert not series[[0, 3]].any()
        for row in (1, 2):
            assert {c.name for c, settles in zip(channels, series[row], strict=True) if not settles} == kept


def test_exposed_rows_are_counted_by_exposure_and_others_are_not() -> None:
    deviation = deviation_of(0.0, 2.0, 2.0, 2.0)
    before = no_impact(1)
    impact = update_impact(before, deviation, np.array([OWN, OWN, BESIDE, UNEXPOSED]), QUIET)
    assert not before.any()
    assert impact[SEEN, :, 0, 0].tolist() == [0, 1, 2]
    assert impact[BEGUN, :, 0, 0].tolist() == impact[ABOVE, :, 0, 0].tolist() == [0, 1, 1]
    np.testing.assert_allclose(impact[EXCESS, OWN, 0], deviation.level[0, 1] - TAIL_START, rtol=1e-6)


def test_rows_in_an_open_incident_and_quiet_meshes_count_nothing() -> None:
    deviation, impact = deviation_of(2.0), no_impact(1)
    assert update_impact(impact, deviation, np.array([OWN]), np.array([True])) is impact
    assert update_impact(impact, deviation, np.array([UNEXPOSED]), np.array([False])) is impact


def test_old_impacts_are_forgotten() -> None:
    impact, calm = no_impact(1), deviation_of(0.0, 0.0, 0.0, 0.0)
    impact[:, OWN] = 4 * IMPACT_MEMORY
    for _ in range(3 * IMPACT_MEMORY // 4):
        impact = update_impact(impact, calm, np.full(4, OWN), QUIET)
    assert abs(impact[SEEN, OWN, 0, 0] / IMPACT_MEMORY - 1) < 0.2
    assert (impact[BEGUN, OWN] < 0.25 * IMPACT_MEMORY).all()
