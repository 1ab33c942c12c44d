"""Snapshots are missing: what is kept, what fades, and what may have changed meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load
from model.features import ERROR, P50, P99, RATE
from model.incidents.memory import IncidentMemory
from model.incidents.open_incident import OpenIncident
from model.incidents.policy import AlertPolicy
from model.incidents.threshold import Track
from model.snapshot import MeshSnapshot, PlannedChange
from model.state.filters import CENTRE, LONG, LONG_RATE, SEEN, SHORT, SHORT_RATE, SLOW_CENTRE
from model.state.levels import BASELINE_SECONDS, UNSEEN_SECONDS
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from model.verdict import IncidentKind, Severity, Status, Verdict
from serve_app.pipeline import Mesh, Options, advance
from tests.builders import START, open_incident
from tests.model.model_cases import CALLS, EDGE, NODE, SERVICES, at, settled_state, snapshot, watch

STORE, CART = SERVICES.index("shop/store"), SERVICES.index("shop/cart")
INTO_STORE = [row for row, (_, to) in enumerate(CALLS) if to == STORE]
LONGEST = AlertPolicy().longest_gap_seconds
SETTLED = settled_state(60, sigma=0.03)
ALERT = open_incident("shop/store", id="i-1", severity=Severity.MAJOR, quiet=1, returned=1)
ENDED = open_incident("shop/search", id="i-0", ended_at=START)
TRACKS = {"shop/store": Track((7.0, 3.0), START, START)}
NOTICE = open_incident("shop/cart", id="i-2", severity=Severity.NOTICE)


def with_incidents(state: MeshState, *opened: OpenIncident) -> MeshState:
    return replace(state, memory=replace(state.memory, open=opened))


def after(seconds: float, metric: int = P50, factor: float = 1.0, base: MeshState = SETTLED) -> MeshSnapshot:
    """Return a snapshot so many seconds after the newest of a state, with a metric of the store and of the calls to it
    times a factor."""
    nodes, edges = np.tile(NODE, (len(SERVICES), 1)), np.tile(EDGE, (len(CALLS), 1))
    nodes[STORE, metric] *= factor
    if metric < len(EDGE):
        edges[INTO_STORE, metric] *= factor
    assert base.observed_at is not None
    index = (base.observed_at - START).total_seconds() / 15 + seconds / 15
    return snapshot(index, nodes=nodes, edges=edges)


def test_missing_snapshots_keep_incidents_and_streaks_and_age_planned_changes() -> None:
    change = PlannedChange("deploy", "shop/store", "v2")
    streaks = {"shop/store": (0b101, START)}
    memory = IncidentMemory(
        open=(ALERT, NOTICE),
        changes=((change, 2),),
        tracks=TRACKS,
        threshold=(6.0, START.timestamp()),
        ended=(ENDED,),
        above_notice=streaks,
        above_traffic={"*": (0b1, START)},
    )
    passed = memory.pass_gap(7)
    assert passed == replace(memory, open=(replace(ALERT, unseen=7), replace(NOTICE, unseen=7)), changes=((change, 9),))
    assert passed.advance_changes([], 9).changes == ()
    assert [one.unseen for one in passed.pass_gap(3).open] == [10, 10], "a second gap adds to the first"


def test_after_too_long_a_gap_incidents_are_lost_and_their_ids_known() -> None:
    streaks = {"shop/store": (0b101, START)}
    memory = IncidentMemory(open=(ALERT, NOTICE), tracks=TRACKS, above_traffic=streaks, scores=(1.0, 2.0))
    lost = memory.forget_incidents()
    assert lost == IncidentMemory(lost=("i-1", "i-2"), scores=(1.0, 2.0))
    assert lost.drop_expired(at(1)).lost == (), "of one snapshot only"


@pytest.mark.parametrize(("seconds", "is_lost"), [(60.0, False), (LONGEST, False), (LONGEST + 1, True), (1e6, True)])
def test_a_gap_longer_than_the_longest_one_closes_incidents(seconds: float, is_lost: bool) -> None:
    before = replace(SETTLED, memory=replace(SETTLED.memory, open=(ALERT,), tracks=TRACKS, scores=(1.0, 2.0)))
    _, state = watch([after(seconds)], before)
    assert [i.id for i in state.memory.open] == ([] if is_lost else ["i-1"])
    assert (state.memory.tracks, state.memory.scores) == ({} if is_lost else TRACKS, (1.0, 2.0))
    np.testing.assert_array_equal(state.node_filters[SEEN], SETTLED.node_filters[SEEN] + 1, "its baselines go on")
    assert state.sequence == SETTLED.sequence + 1
    assert state.memory.lost == (("i-1",) if is_lost else ())


def test_a_mesh_with_a_long_interval_has_no_gap_before_three_intervals() -> None:
    _, state = watch(snapshot(i, interval=LONGEST) for i in range(40))
    assert state.observed_at is not None
    index, step = (state.observed_at - START).total_seconds() / 15, LONGEST / 15
    state = with_incidents(state, ALERT)
    _, kept = watch([snapshot(index + 2.9 * step)], state)
    assert [i.id for i in kept.memory.open] == ["i-1"]
    _, gone = watch([snapshot(index + 3.1 * step)], state)
    assert gone.memory.lost == ("i-1",)


@given(st.integers(4, 10_000))
@settings(max_examples=30)
def test_trajectories_fade_as_if_the_missing_snapshots_had_been_usual(intervals: int) -> None:
    _, state = watch([after(15, factor=4.0), after(30, factor=4.0)], SETTLED)
    observation, _ = watch([after(intervals * state.interval_seconds, base=state)], state)
    for deviation, filters, row in (
        (observation.node, state.node_filters, STORE),
        (observation.edge, state.edge_filters, INTO_STORE[0]),
    ):
        for past, slot, rate in ((deviation.past_short, SHORT, SHORT_RATE), (deviation.past_long, LONG, LONG_RATE)):
            assert filters[slot, row, P50] > 0.2
            expected = filters[slot] * (1 - rate) ** (intervals - 1)
            np.testing.assert_allclose(past, expected, rtol=1e-3, atol=1e-9)


def test_one_gap_does_not_change_the_interval_and_a_second_one_in_a_row_does() -> None:
    _, once = watch([after(300)], SETTLED)
    assert once.interval_seconds == SETTLED.interval_seconds == pytest.approx(15.0)
    _, back = watch([after(15, base=once)], once)
    assert back.interval_seconds == pytest.approx(15.0)
    _, again = watch([after(300, base=back)], back)
    assert again.interval_seconds == pytest.approx(15.0), "not in a row"
    _, twice = watch([after(300, base=once)], once)
    assert twice.interval_seconds == pytest.approx(30.0)


@pytest.mark.parametrize(("interval", "steps"), [(60.0, 8), (300.0, 12)])
def test_a_longer_interval_is_reached_in_a_few_steps(interval: float, steps: int) -> None:
    state = SETTLED
    for _ in range(steps):
        _, state = watch([after(interval, base=state)], state)
    assert state.interval_seconds == pytest.approx(interval, rel=0.35)


@pytest.mark.parametrize(("factor", "is_usual"), [(2.1, True), (6.0, False)])
def test_after_minutes_without_data_a_moderate_change_of_load_is_no_event(factor: float, is_usual: bool) -> None:
    metric = RATE
    observation, state = watch([after(UNSEEN_SECONDS + 15, metric, factor)], SETTLED)
    assert (observation.node.now[STORE, metric] < 2) == is_usual
    assert (observation.edge.now[INTO_STORE, metric] < 2).all() == is_usual
    assert observation.node.now[STORE, metric] < 2 or observation.node.now[STORE, metric] > 5
    np.testing.assert_allclose(state.node_filters[SLOW_CENTRE], SETTLED.node_filters[SLOW_CENTRE], atol=0.05)
    back, _ = watch([after(15, metric, base=state)], state)
    assert np.abs(back.node.now[STORE, metric]) < 3, "the level before is remembered"


@pytest.mark.parametrize("seconds", [15, 60, 240, UNSEEN_SECONDS])
def test_in_a_shorter_time_it_is_one(seconds: float) -> None:
    observation, _ = watch([after(seconds, P50, 2.1)], SETTLED)
    assert observation.node.now[STORE, P50] > 5


@pytest.mark.parametrize(
    ("metric", "factor", "last"),
    [(P50, 3.0, BASELINE_SECONDS - 15), (P99, 3.0, BASELINE_SECONDS - 15), (ERROR, 20.0, BASELINE_SECONDS + 15)],
)
def test_slow_and_failing_requests_after_a_gap_remain_unusual(metric: int, factor: float, last: float) -> None:
    """A fault may have begun in the gap, and its users suffer as from any other fault."""
    for seconds in (UNSEEN_SECONDS + 15, 3600, last):
        observation, _ = watch([after(seconds, metric, factor)], SETTLED)
        assert observation.node.now[STORE, metric] > 5, seconds
        assert observation.edge.now[INTO_STORE, metric].min() > 5, seconds


@pytest.mark.parametrize("seconds", [UNSEEN_SECONDS + 15, LONGEST - 15])
def test_services_in_an_alert_stay_unusual_after_a_gap_and_services_of_a_notice_do_not(seconds: float) -> None:
    alerted, _ = watch([after(seconds, RATE, 2.1)], with_incidents(SETTLED, ALERT))
    assert alerted.node.now[STORE, RATE] > 5
    assert alerted.edge.now[INTO_STORE, RATE].min() > 5
    noticed, _ = watch([after(seconds, RATE, 2.1)], with_incidents(SETTLED, replace(NOTICE, members=("shop/store",))))
    assert noticed.node.now[STORE, RATE] < 2


@pytest.mark.parametrize("factor", [0.1, 6.0, 50.0])
def test_after_a_day_without_data_any_level_may_be_normal(factor: float) -> None:
    observation, state = watch([after(BASELINE_SECONDS + 15, P50, factor)], SETTLED)
    assert np.abs(observation.node.now[STORE, P50]) < 2
    assert np.exp(state.node_filters[CENTRE, STORE, P50]) == pytest.approx(factor * NODE[P50], rel=0.1)
    np.testing.assert_allclose(state.node_filters[SLOW_CENTRE], SETTLED.node_filters[SLOW_CENTRE], atol=0.05)


def test_services_that_were_not_measured_keep_their_level_over_a_gap() -> None:
    observation, state = watch([after(UNSEEN_SECONDS + 15, P50, np.nan)], SETTLED)
    assert not observation.node.observed[STORE, P50]
    assert state.node_filters[CENTRE, STORE, P50] == SETTLED.node_filters[CENTRE, STORE, P50]


SPEC = MeshSpec(services=24, calls_per_service=3.0, seed=31)
CALM, BEFORE, AFTER = 100, 16, 20  # snapshots: calm, of the incident before the gap, after it
BEGINS, GAP = CALM, CALM + BEFORE
FORGOTTEN = 200  # snapshots after which the simulator's noise has nothing of what it was
WHOLE = GAP + FORGOTTEN + AFTER  # snapshots of one course that the shorter gaps are cut from
GAPS = (1, 20, 160, 470)
DAY = 5760 + 100  # snapshots of a gap, more than a day


@dataclass(frozen=True)
class Calm:
    """The simulated mesh after its calm time, and the shipped weights."""

    checkpoint: Checkpoint
    mesh: Mesh

    def score(self, mesh: Mesh, course: list[MeshSnapshot]) -> tuple[list[Verdict], Mesh]:
        found = []
        for one in course:
            verdict, mesh = advance(self.checkpoint, mesh, one, Options())
            found.append(verdict)
        return found, mesh

    @cached_property
    def with_fault(self) -> tuple[list[Verdict], Mesh]:
        """The verdicts from the beginning of a fault to the gap, and the mesh then."""
        return self.score(self.mesh, snapshots()[CALM:GAP])

    @cached_property
    def without_fault(self) -> tuple[list[Verdict], Mesh]:
        """The same without a fault."""
        return self.score(self.mesh, snapshots(BEGINS)[CALM:GAP])


@pytest.fixture(scope="module")
def calm() -> Iterator[Calm]:
    """Several threads would be slower on a small mesh."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    fresh = Calm(load(), Mesh())
    yield replace(fresh, mesh=fresh.score(fresh.mesh, snapshots(BEGINS)[:CALM])[1])
    torch.set_num_threads(threads)


@cache
def culprit() -> str:
    """A busy service whose own code can become slow."""
    mesh = build_mesh(SPEC)
    able = candidates(mesh, "latency_injection", 5.0)
    own = (mesh.services.cpu_time + mesh.services.delay)[able] / np.maximum(mesh.usual_p50[able], 1e-9)
    return mesh.topology.node_ids[int(able[int(own.argmax())])]


def snapshots(fault_until: int | None = None) -> list[MeshSnapshot]:
    """Return a simulated mesh in which a service is slow from ``BEGINS`` on, until a snapshot."""
    return simulate(SPEC, WHOLE, BEGINS, fault_until)


@cache
def simulate(spec: MeshSpec, end: int, begins: int, fault_until: int | None) -> list[MeshSnapshot]:
    until = end if fault_until is None else fault_until
    faults = [Fault("latency_injection", culprit(), begins, until, 4.0)] if until > begins else []
    return list(Simulator(spec, faults, snapshots=end).snapshots())


def snapshots_after(gap: int, fault_until: int | None) -> list[MeshSnapshot]:
    """Return the snapshots after a gap of so many. After a long one, the mesh is simulated from its end on."""
    end = GAP + gap
    if gap < FORGOTTEN:
        return snapshots(fault_until)[end : end + AFTER]
    later = replace(SPEC, start=SPEC.time_of(end))
    return simulate(later, AFTER, 0, None if fault_until is None else max(fault_until - end, 0))


def run(
    calm: Calm, missing: int, *, fault_until: int | None = None, stored: bool = False
) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts before a gap of so many snapshots and after it.

    Args:
        calm: the mesh before the incident.
        missing: snapshots of the gap.
        fault_until: the end of the fault; None: it does not end.
        stored: whether the state is stored and read in the gap.
    """
    before, mesh = calm.without_fault if fault_until == BEGINS else calm.with_fault
    if stored:
        mesh = Mesh(unpack_state(pack_state(mesh.state), mesh.state.window))
    return before, calm.score(mesh, snapshots_after(missing, fault_until))[0]


def ids(verdict: Verdict) -> set[tuple[str, str]]:
    return {(one.id, one.since.isoformat()) for one in verdict.alerts}


@pytest.mark.parametrize("missing", GAPS)
def test_an_incident_goes_on_after_a_gap_with_its_id_and_beginning(calm: Calm, missing: int) -> None:
    before, later = run(calm, missing)
    known = ids(before[-1])
    assert len(known) == 1
    assert [ids(verdict) for verdict in later] == [known] * AFTER
    assert not any(one.recovering for verdict in later for one in verdict.alerts)
    assert {verdict.status for verdict in later} == {Status.ANOMALOUS}
    assert not any(verdict.lost for verdict in later)


def test_an_incident_goes_on_after_a_restart_in_a_gap(calm: Calm) -> None:
    before, later = run(calm, 20, stored=True)
    assert [ids(verdict) for verdict in later] == [ids(before[-1])] * AFTER


def test_after_a_gap_of_a_day_an_incident_is_lost(calm: Calm) -> None:
    before, later = run(calm, DAY)
    (known,) = ids(before[-1])
    assert known[0] in later[0].lost
    assert [verdict.lost for verdict in later[1:]] == [()] * (AFTER - 1)
    assert all(known not in ids(verdict) for verdict in later)


@pytest.mark.parametrize("missing", [1, 20, 160, 1000])
def test_an_incident_that_ends_in_a_gap_ends_after_it(calm: Calm, missing: int) -> None:
    _, later = run(calm, missing, fault_until=GAP + 1)
    assert not later[-1].alerts
    assert later[-1].status is Status.NORMAL
    if missing > 1:
        assert not later[1].alerts, "the first normal snapshots after a long time show that it is over"


@pytest.mark.parametrize("missing", [1, 160, 6000])
def test_a_gap_in_a_calm_time_raises_no_alert(calm: Calm, missing: int) -> None:
    _, later = run(calm, missing, fault_until=BEGINS)
    assert not any(verdict.alerts for verdict in later)
    assert not any(verdict.lost for verdict in later)


@pytest.mark.parametrize("missing", [BEFORE, 160])
def test_a_fault_that_begins_in_a_gap_is_found_after_it(calm: Calm, missing: int) -> None:
    found, _ = calm.score(calm.mesh, snapshots()[CALM + missing : CALM + missing + AFTER])
    begun = next(index for index, verdict in enumerate(found) if verdict.alerts)
    assert begun < 12
    assert found[begun].alerts[0].suspects[0].service == culprit()


CONFIRMED_AGAIN = 4  # snapshots after a long silence, until the incident is known to go on


def test_an_incident_does_not_recover_while_its_telemetry_is_silent(calm: Calm) -> None:
    """Snapshots come, but nothing is measured in them. That says no more than a missing snapshot."""
    silent_for = 60  # snapshots, longer than an alert lasts that nothing confirms
    before, mesh = calm.with_fault
    known = ids(before[-1])
    assert known
    made = snapshots()[: GAP + silent_for + AFTER]
    for one in made[GAP : GAP + silent_for]:
        silent = MeshSnapshot.create(
            node_ids=one.node_ids,
            edge_index=one.edge_index[:, :0],
            node_features=np.full(one.node_features.shape, np.nan),
            edge_features=np.zeros((0, len(EDGE))),
            observed_at=one.observed_at,
        )
        verdict, mesh = advance(calm.checkpoint, mesh, silent, Options())
        assert ids(verdict) == known
        assert {alert.kind for alert in verdict.alerts} == {IncidentKind.TELEMETRY_MISSING}
    for index, one in enumerate(made[GAP + silent_for :]):
        verdict, mesh = advance(calm.checkpoint, mesh, one, Options())
        assert ids(verdict) <= known, "no other incident"
        assert ids(verdict) == known or index < CONFIRMED_AGAIN
