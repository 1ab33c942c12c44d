"""Signals that are unusual for a service: evidence for notices, and facts about a fault."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from model.evidence import signals as signals_module
from model.evidence.explanations import Fact
from model.evidence.kinds import EVENT_SURPRISE
from model.evidence.signals import impatience, pressure, unusual_signals
from model.features import P99
from model.incidents.kind import incident_kind
from model.snapshot import MeshSnapshot, Signal, SignalKind
from model.state.change_impact import BESIDE, OWN, UNEXPOSED
from model.state.mesh_state import MeshState, Observation
from model.verdict import IncidentKind, Severity
from tests.model.decision.verdict_cases import judge
from tests.model.evidence_cases import CART, SEARCH, evidence_of
from tests.model.model_cases import SERVICES, snapshot, watch

SNAPSHOTS = 60
Course = Mapping[SignalKind, Sequence[float | None]]
OTHER = Signal(SignalKind.CPU_THROTTLING, SERVICES[SEARCH], 0.01)  # shows that throttling is measured


def mesh(course: Course) -> tuple[Observation, MeshState]:
    return watch(snapshots(course))


def snapshots(course: Course) -> list[MeshSnapshot]:
    """Return snapshots in which the cart has these signals. The last values are the newest; before them, it has the
    first one of each."""
    made = []
    for i in range(SNAPSHOTS):
        signals = [OTHER]
        for kind, values in course.items():
            value = values[max(i - SNAPSHOTS + len(values), 0)]
            if value is not None:
                signals.append(Signal(kind, SERVICES[CART], value))
        made.append(snapshot(i, signals=signals))
    return made


def facts(course: Course, exposure: int = UNEXPOSED) -> tuple[Fact, ...]:
    """Return the facts about the cart; no other service has any."""
    observation, state = mesh(course)
    observation = replace(observation, node_exposure=np.full(len(SERVICES), exposure))
    found = unusual_signals(state, observation)
    assert set(found) <= {CART}
    np.testing.assert_array_equal(
        pressure(found, len(SERVICES)), np.where(np.isin(np.arange(len(SERVICES)), list(found)), EVENT_SURPRISE, 0)
    )
    return found.get(CART, ())


@pytest.mark.parametrize(
    ("kind", "values", "observed", "usual"),
    [
        (SignalKind.CPU_THROTTLING, [None, 0.5, 0.6], 0.6, 0.0),
        (SignalKind.CPU_THROTTLING, [0.05, 0.5, 0.6], 0.6, 0.05),
        (SignalKind.CPU_THROTTLING, [0.2, 0.5, 0.6], 0.6, 0.2),
        (SignalKind.OOM_KILLS, [None, 1.0, None, 1.0, None], 2.0, 0.0),
        (SignalKind.RESTARTS, [None, 1.0, *[None] * 30, 1.0], 2.0, 0.0),
        (SignalKind.DISK_PRESSURE, [0.9, 0.96], 0.96, 0.9),
        (SignalKind.DISK_PRESSURE, [0.96, 0.97], 0.97, 0.96),
        (SignalKind.DISK_PRESSURE, [0.995], 0.995, 0.995),
        (SignalKind.DISK_PRESSURE, [None, 1.0], 1.0, np.nan),
        (SignalKind.PENDING_PODS, [None, 2.0, 2.0, 2.0, 2.0], 2.0, 0.0),
        (SignalKind.PENDING_PODS, [1.0, 3.0, 3.0, 3.0, 3.0], 3.0, 1.0),
        (SignalKind.QUEUE_DEPTH, [40.0, *[5200.0] * 4], 5200.0, 40.0),
        (SignalKind.QUEUE_DEPTH, [40.0, *[5200.0] * 5], 5200.0, 40.0),
        (SignalKind.QUEUE_DEPTH, [40.0, *[5200.0] * 12], 5200.0, 40.0),
        (SignalKind.QUEUE_DEPTH, [100.0, *np.linspace(100, 290, 24)], 290.0, 100.0),
    ],
)
def test_a_resource_at_its_limit_is_unusual(
    kind: SignalKind, values: Sequence[float | None], observed: float, usual: float
) -> None:
    (fact,) = facts({kind: values})
    assert (fact.metric, fact.destination) == (kind, "")
    assert (fact.observed, fact.expected) == pytest.approx((observed, usual), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize(
    ("what", "kind", "values"),
    [
        ("a little throttling", SignalKind.CPU_THROTTLING, [None, 0.2, 0.2]),
        ("a burst", SignalKind.CPU_THROTTLING, [None, 0.6]),
        ("always throttled", SignalKind.CPU_THROTTLING, [0.4, 0.6, 0.6]),
        ("a kill that is over", SignalKind.OOM_KILLS, [None, 1.0, *[None] * 4]),
        ("one restart", SignalKind.RESTARTS, [None, 1.0, None]),
        ("restarts far apart", SignalKind.RESTARTS, [None, 1.0, *[None] * 45, 1.0]),
        ("room on the disk", SignalKind.DISK_PRESSURE, [0.3, 0.9]),
        ("a disk that is always as full", SignalKind.DISK_PRESSURE, [0.96]),
        ("a pod that starts", SignalKind.PENDING_PODS, [None, 1.0, 1.0, 1.0]),
        ("a pod that never starts", SignalKind.PENDING_PODS, [1.0]),
        ("a short queue", SignalKind.QUEUE_DEPTH, [1.0, *[90.0] * 4]),
        ("a queue that is a bit longer", SignalKind.QUEUE_DEPTH, [400.0, *[900.0] * 4]),
        ("one high sample", SignalKind.QUEUE_DEPTH, [40.0, 5000.0, 40.0]),
        ("batches", SignalKind.QUEUE_DEPTH, [*np.tile([0.0, 500, 1000, 500, 0, 0, 0, 0, 0, 0], 6)]),
        ("a queue of unknown past", SignalKind.QUEUE_DEPTH, [None, *[5000.0] * 15]),
    ],
)
def test_what_is_usual_or_small_is_not(what: str, kind: SignalKind, values: Sequence[float | None]) -> None:
    assert facts({kind: values}) == (), what


def test_throttling_is_unknown_where_no_service_has_it() -> None:
    """After an update of the collector, all services would seem to be throttled for the first time."""
    throttled = [Signal(SignalKind.CPU_THROTTLING, SERVICES[CART], 0.6)]
    observation, state = watch(snapshot(i, signals=throttled if i > 50 else []) for i in range(SNAPSHOTS))
    assert unusual_signals(state, observation) == {}


def test_a_service_is_found_among_many_that_are_always_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals_module, "MAX", 2)
    usual = [Signal(SignalKind.CPU_THROTTLING, name, 0.9) for name in SERVICES if name != SERVICES[CART]]
    newly = Signal(SignalKind.CPU_THROTTLING, SERVICES[CART], 0.6)
    window = [snapshot(i, signals=[*usual, newly] if i >= SNAPSHOTS - 3 else usual) for i in range(SNAPSHOTS)]
    observation, state = watch(window)
    assert set(unusual_signals(state, observation)) == {CART}


def test_near_a_planned_change_restarts_and_pending_pods_are_expected() -> None:
    course: Course = {
        SignalKind.RESTARTS: [None, 1.0, 1.0, 1.0, 1.0],
        SignalKind.PENDING_PODS: [None, 1.0, 1.0, 1.0, 1.0],
        SignalKind.OOM_KILLS: [None, 1.0, None],
    }
    assert [fact.metric for fact in facts(course)] == ["oom_kills", "restarts", "pending_pods"]
    assert [fact.metric for fact in facts(course, OWN)] == ["oom_kills"]
    assert len(facts(course, BESIDE)) == 3


def test_a_mesh_without_signals_has_no_pressure() -> None:
    observation, state = watch(snapshot(i) for i in range(3))
    for one in (state, MeshState()):
        assert unusual_signals(one, observation) == {}
    assert not pressure({}, len(SERVICES)).any()


def test_a_signal_is_evidence_for_a_notice_and_a_fact_about_the_service() -> None:
    evidence = evidence_of(*snapshots({SignalKind.QUEUE_DEPTH: [40.0, *[5200.0] * 4]}), state=MeshState())
    cart = evidence.names.index(SERVICES[CART])
    assert evidence.notice[cart] == EVENT_SURPRISE
    assert evidence.page[cart] < 2
    assert evidence.explanation.context[cart] == (Fact("queue_depth", 5200.0, 40.0),)


def test_a_notice_lists_its_signals_first() -> None:
    course, first = snapshots({SignalKind.OOM_KILLS: [None, 1.0, None, None, None]}), SNAPSHOTS - 3
    scenes = (evidence_of(*course[:end], state=MeshState()) for end in range(first, SNAPSHOTS + 1))
    (*_, verdict), _ = judge(*scenes, first=first)
    (notice,) = verdict.incidents
    assert (notice.severity, notice.affected) == (Severity.NOTICE, (SERVICES[CART],))
    assert incident_kind(notice) is IncidentKind.RESOURCES
    assert notice.suspects[0].reasons[0].metric == "oom_kills"


def slow_and_cancelled(share: Sequence[float | None], slower: float) -> tuple[MeshState, Observation]:
    """Return the state after snapshots in which callers of the cart give up, and are answered so many times slower."""
    observation, state = mesh({SignalKind.CANCELLED: share})
    value = observation.node.value.copy()
    value[CART, P99] = observation.node.expected[CART, P99] + np.log(slower)
    return state, replace(observation, node=replace(observation.node, value=value))


@pytest.mark.parametrize(
    ("share", "usual"), [([0.0, 0.12, 0.12], 0.0), ([0.02, 0.06, 0.07], 0.02), ([0.3, 0.9, 0.8], 0.3)]
)
def test_callers_that_give_up_are_a_reason_and_evidence_only_if_they_wait(share: list[float], usual: float) -> None:
    state, observation = slow_and_cancelled(share, slower=1.0)
    found = unusual_signals(state, observation)
    assert [(fact.metric, fact.observed, fact.expected) for fact in found[CART]] == [
        ("cancelled", pytest.approx(share[-1]), pytest.approx(usual))
    ]
    assert not pressure(found, len(SERVICES)).any()
    assert not impatience(observation, found).any()
    state, observation = slow_and_cancelled(share, slower=2.0)
    found = unusual_signals(state, observation)
    assert not pressure(found, len(SERVICES)).any()
    assert np.flatnonzero(impatience(observation, found)).tolist() == [CART]


@pytest.mark.parametrize("share", [[0.0, 0.04, 0.04], [0.0, 0.5], [0.5, 0.6, 0.7]])
def test_callers_that_leave_as_usual_are_no_reason(share: list[float]) -> None:
    state, observation = slow_and_cancelled(share, slower=5.0)
    assert unusual_signals(state, observation) == {}
