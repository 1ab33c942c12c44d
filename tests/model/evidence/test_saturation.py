"""Resources at their limit, with and without harm to users."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.evidence.kinds import RESOURCES, EvidenceKind
from model.evidence.materiality import Floors
from model.evidence.saturation import HARMFUL, HARMLESS_SHARE, MIN, MIN_SHARE, MOST_HARM, weigh_resources
from model.features import CPU, ERROR, P50, P99
from model.state.mesh_state import MeshState, Observation
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, settled_state, snapshot, watch

STORE, SEARCH = SERVICES.index("shop/store"), SERVICES.index("shop/search")
INTO_STORE = [row for row, (_, to) in enumerate(CALLS) if to == STORE]
SETTLED = settled_state(60, sigma=0.03)
FOUND = 5.0  # surprise of the resource
THRESHOLD = 6.0
ENOUGH = HARMFUL * THRESHOLD / RESOURCES  # surprise of a resource with which the page score reaches the threshold
FLOORS = Floors(0.02, 0.025)
Change = dict[int, float]


def full(node: Change | None = None, edge: Change | None = None, lasts: int = 5) -> tuple[MeshState, Observation]:
    """Return a mesh whose store has no free CPU for so many snapshots.

    Args:
        node, edge: factors on metrics of the store, and of the calls to it.
        lasts: snapshots.
    """
    nodes, edges = np.tile(NODE, (len(SERVICES), 1)), np.tile(EDGE, (len(CALLS), 1))
    nodes[STORE, CPU] = 1.0
    for metric, factor in (node or {}).items():
        nodes[STORE, metric] *= factor
    for metric, factor in (edge or {}).items():
        edges[INTO_STORE, metric] *= factor
    observation, state = watch([snapshot(60 + i, nodes=nodes, edges=edges) for i in range(lasts)], SETTLED)
    return state, observation


def weigh(
    at: tuple[MeshState, Observation],
    resources: float = FOUND,
    *,
    short: bool = True,
    callers: float = 0.0,
    other: float = 0.0,
    threshold: float = THRESHOLD,
    floors: Floors = FLOORS,
) -> float:
    """Return the weighed evidence of the store's resource."""
    kinds, is_short = np.zeros((len(SERVICES), len(EvidenceKind)), np.float32), np.zeros(len(SERVICES), bool)
    kinds[STORE, [EvidenceKind.RESOURCES, EvidenceKind.CALLERS, EvidenceKind.ERROR]] = resources, callers, other
    is_short[STORE] = short
    weighed: NDArray[np.float32] = weigh_resources(*at, kinds, is_short, threshold, floors)
    assert not np.delete(weighed, STORE).any(), "nothing is found at other services"
    return float(weighed[STORE])


@pytest.mark.parametrize("short", [True, False])
def test_a_resource_that_measurably_harms_no_request_counts_half(short: bool) -> None:
    assert weigh(full(), short=short) == pytest.approx(FOUND * HARMLESS_SHARE)


@pytest.mark.parametrize(
    ("node", "edge"),
    [
        ({P99: 2.2}, {}),
        ({P50: 1.6}, {}),
        ({ERROR: 4.0}, {}),
        ({}, {P99: 2.2}),
        ({}, {P50: 1.6}),
        ({}, {ERROR: 4.0}),
    ],
)
def test_a_short_resource_whose_users_suffer_is_worth_an_alert(node: Change, edge: Change) -> None:
    assert weigh(full(node, edge)) == pytest.approx(ENOUGH)


@pytest.mark.parametrize("threshold", [3.0, 6.0, 9.0])
@pytest.mark.parametrize("other", [0.0, 3.0, 5.0])
def test_it_is_enough_for_an_alert_and_lifts_the_page_score_no_further(threshold: float, other: float) -> None:
    weighed = weigh(full({P99: 2.2}), 1.0, other=other, threshold=threshold)
    assert RESOURCES * weighed == pytest.approx(max(HARMFUL * threshold, RESOURCES))


def test_a_rise_that_no_user_notices_is_no_harm() -> None:
    """A tenth of the floor is enough beside a resource that is short."""
    slower = full({P50: 1.6})  # 12 ms
    assert weigh(slower, floors=Floors(0.01 / MIN_SHARE, 10.0)) == pytest.approx(ENOUGH, rel=0.05)
    assert weigh(slower, floors=Floors(2.5 * 0.012 / MIN_SHARE, 10.0)) == pytest.approx(FOUND * HARMLESS_SHARE)
    tail = full({P99: 2.2})  # 120 ms
    assert weigh(tail, floors=Floors(10.0, 0.1 / MIN_SHARE)) == pytest.approx(ENOUGH, rel=0.05)
    assert weigh(tail, floors=Floors(10.0, 2.5 * 0.12 / MIN_SHARE)) == pytest.approx(FOUND * HARMLESS_SHARE)


def test_the_surprise_of_a_resource_that_is_not_short_is_not_raised_by_harm() -> None:
    assert weigh(full({P99: 2.2}), short=False) == pytest.approx(FOUND)


def test_symptoms_of_the_callers_are_harm() -> None:
    assert weigh(full(), callers=4.5) == pytest.approx(ENOUGH)
    assert weigh(full(), callers=1.5) == pytest.approx(FOUND * HARMLESS_SHARE)
    assert weigh(full(), callers=3.0) == pytest.approx(0.5 / MOST_HARM * ENOUGH)
    assert weigh(full(), callers=3.75) == pytest.approx(ENOUGH), "harm that differs between snapshots"


def test_one_slow_snapshot_is_no_harm() -> None:
    """The averages are of the time before it."""
    assert weigh(full({P99: 3.0}, lasts=1)) == pytest.approx(FOUND * HARMLESS_SHARE)


def test_a_resource_counts_in_full_where_harm_is_not_measured() -> None:
    blind = dict.fromkeys((ERROR, P50, P99), np.nan)
    assert weigh(full(blind, blind)) == pytest.approx(FOUND)
    assert weigh(full(blind, {P99: 2.2})) == pytest.approx(ENOUGH)
    assert weigh(full(blind)) == pytest.approx(FOUND * HARMLESS_SHARE), "the calls to it show that none suffers"


def test_a_stronger_resource_is_not_lowered_by_harm() -> None:
    assert weigh(full({P99: 2.2}), resources=20.0) == pytest.approx(20.0)


def test_weak_resources_stay_as_they_are() -> None:
    at = full({P99: 2.2})
    assert weigh(at, MIN - 0.1, short=False) == pytest.approx(MIN - 0.1)
    weak = np.full((len(SERVICES), len(EvidenceKind)), MIN - 0.1, np.float32)
    weighed = weigh_resources(*at, weak, np.zeros(len(SERVICES), bool), THRESHOLD, FLOORS)
    assert np.array_equal(weighed, weak[:, EvidenceKind.RESOURCES])


def test_harm_at_another_service_does_not_count() -> None:
    slower = {(SEARCH, metric): 5 * NODE[metric] for metric in (P50, P99)}
    observation, state = watch([snapshot(60 + i, nodes=slower) for i in range(5)], SETTLED)
    assert weigh((state, observation)) == pytest.approx(FOUND * HARMLESS_SHARE)


@settings(max_examples=25)
@given(st.sampled_from([P50, P99, ERROR]), st.floats(1.0, 4.0), st.floats(1.0, 4.0))
def test_more_harm_never_counts_less(metric: int, factor: float, other: float) -> None:
    less, more = (weigh(full({metric: x})) for x in sorted((factor, other)))
    assert FOUND * HARMLESS_SHARE - 1e-5 <= less <= more + 1e-4
    assert more <= ENOUGH + 1e-5


def test_the_argument_is_unchanged() -> None:
    at, kinds = full({P99: 2.2}), np.full((len(SERVICES), len(EvidenceKind)), FOUND, np.float32)
    weigh_resources(*at, kinds, np.ones(len(SERVICES), bool), THRESHOLD, FLOORS)
    assert (kinds == FOUND).all()
