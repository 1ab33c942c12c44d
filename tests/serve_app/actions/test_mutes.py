"""Mutes and sensitivity: their effect on later verdicts, and what they do not change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

from lab.simulator.events.faults import Fault, candidates
from lab.simulator.events.traffic import TrafficShift
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint
from model.incidents.mutes import Mute
from model.snapshot import MeshSnapshot, Sensitivity, ServicePolicy, namespace_of
from model.state.filters import EXCEED_COUNT
from model.state.serialization import pack_state, unpack_state
from model.verdict import IncidentKind, MuteOrigin, Severity, Verdict
from serve_app.actions import mutes
from serve_app.actions.mutes import add_mute, remove_mute
from serve_app.alerts.alert import MeshAlerts
from serve_app.api.schemas.actions import MuteDocument
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.errors import InvalidDocument, TooManyMutes, UnknownMute
from serve_app.pipeline import Mesh, Options, options
from serve_app.settings import MeshSettings, Settings
from tests.builders import score_all
from tests.contract import check_same, different
from tests.serve_app.alerts.alerting import PLACE, transition
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot

pytestmark = pytest.mark.timeout(180)

QUIET, FAULT, AFTER, OTHER = range(30), range(30, 45), range(45, 55), range(55, 65)


@dataclass(frozen=True)
class Days:
    """A service fails, and later another one in another namespace."""

    snapshots: list[MeshSnapshot]
    one: str
    other: str


@pytest.fixture(scope="module")
def days() -> Days:
    simulator = Simulator(MeshSpec(services=40, seed=0), snapshots=OTHER.stop)
    able = sorted(candidates(simulator.mesh, "error_burst"), key=lambda i: -simulator.mesh.usual_rate[i])
    one, other = (simulator.node_ids[able[len(able) // n]] for n in (3, 2))
    for service, span in ((one, FAULT), (other, OTHER)):
        simulator.schedule(Fault("error_burst", service, span.start, span.start + 12, 0.9))
    return Days(list(simulator.snapshots()), one, other)


Running = Callable[..., tuple[list[Verdict], Mesh]]


@pytest.fixture(scope="module")
def run(checkpoint: Checkpoint) -> Running:
    return partial(score_all, checkpoint)


@pytest.fixture(scope="module")
def quiet(run: Running, days: Days) -> Mesh:
    """The mesh before its first incident."""
    return run(Mesh(), days.snapshots[: QUIET.stop])[1]


@pytest.fixture(scope="module")
def plain(run: Running, quiet: Mesh, days: Days) -> list[Verdict]:
    """The later verdicts if no service is muted."""
    verdicts, _ = run(quiet, days.snapshots[QUIET.stop :])
    assert affected_services(verdicts, FAULT) >= {days.one}
    assert affected_services(verdicts, OTHER) >= {days.other}
    return verdicts


def affected_services(verdicts: Sequence[Verdict], span: range) -> set[str]:
    """Return services of incidents in a span of verdicts that begin after the quiet."""
    return {name for i in span for incident in verdicts[i - QUIET.stop].incidents for name in incident.affected}


def with_mutes(mesh: Mesh, days: Days, services: Sequence[str] | None, until: int, start: int | None = None) -> Mesh:
    """Return the mesh with these mutes, stored and loaded again."""
    said = MuteDocument(
        services=None if services is None else list(services),
        start=None if start is None else days.snapshots[start].observed_at,
        end=days.snapshots[until].observed_at,
        reason="database upgrade",
    )
    state, _ = add_mute(mesh.state, said)
    return replace(mesh, state=unpack_state(pack_state(state), state.window))


def test_a_muted_service_raises_no_alert_and_is_still_scored(
    run: Running, quiet: Mesh, plain: list[Verdict], days: Days
) -> None:
    muted = with_mutes(quiet, days, sorted(affected_services(plain, FAULT)), until=AFTER.stop)
    verdicts, mesh = run(muted, days.snapshots[QUIET.stop :])
    assert not affected_services(verdicts, FAULT)
    assert affected_services(verdicts, OTHER) >= {days.other}
    for i, (verdict, before) in enumerate(zip(verdicts, plain, strict=True), QUIET.stop):
        if i >= AFTER.stop:
            assert verdict.muted == ()
            continue
        (mute,) = verdict.muted
        assert (mute.origin, mute.reason) == (MuteOrigin.API, "database upgrade")
        assert mute.until == days.snapshots[AFTER.stop].observed_at
        if before.incidents and i < FAULT.start + 6:  # later, the tails of the two runs may differ
            assert days.one in mute.hides
            assert verdict.mesh_score == pytest.approx(before.mesh_score, rel=0.05)
    assert max(v.mesh_score for v in verdicts) > 5
    assert any(suspect.service == days.one for v in verdicts[5:10] for suspect in v.suspects[:3])
    assert mesh.state.memory.mutes == ()


def test_a_window_is_for_the_whole_mesh_and_an_open_incident_ends(run: Running, quiet: Mesh, days: Days) -> None:
    verdicts, mesh = run(quiet, days.snapshots[QUIET.stop : FAULT.start + 5])
    assert verdicts[-1].incidents
    assert mesh.state.memory.open
    rest, _ = run(with_mutes(mesh, days, None, until=OTHER.start), days.snapshots[FAULT.start + 5 : OTHER.start])
    assert not any(verdict.incidents for verdict in rest)
    assert {verdict.status for verdict in rest} == {"normal"}
    assert days.one in rest[0].muted[0].hides


def test_a_loss_of_traffic_is_muted_in_a_window_and_ends_in_it(run: Running) -> None:
    lost, window, back, end = 50, 60, 66, 80
    simulator = Simulator(MeshSpec(services=40, seed=0), snapshots=end + 6)
    simulator.schedule(TrafficShift(0.05, lost, back))
    snapshots = list(simulator.snapshots())
    verdicts, mesh = run(Mesh(), snapshots[:window])
    (incident,) = verdicts[-1].incidents
    assert (incident.kind, incident.severity) == (IncidentKind.TRAFFIC_LOST, Severity.CRITICAL)
    said = MuteDocument(end=snapshots[end].observed_at, reason="network")
    state = add_mute(mesh.state, said)[0]
    rest, _ = run(replace(mesh, state=unpack_state(pack_state(state), state.window)), snapshots[window:])
    assert not any(verdict.incidents for verdict in rest)
    assert {verdict.status for verdict in rest} == {"normal"}
    assert set(rest[0].muted[0].hides) >= set(incident.affected)
    alerts, events = MeshAlerts(), list[str]()
    for verdict in (*verdicts, *rest):
        after = transition(alerts, "shop", verdict, verdict.observed_at, PLACE)
        alerts, events = after.alerts, [*events, *(event.document["event"] for event in after.events)]
    assert (events[-3:], alerts.open) == (["opened", "muted", "resolved"], ())


def test_an_incident_continues_without_muted_services_which_may_still_be_suspects(
    run: Running, quiet: Mesh, days: Days
) -> None:
    verdicts, mesh = run(quiet, days.snapshots[QUIET.stop : FAULT.start + 5])
    (incident,) = verdicts[-1].incidents
    assert len(incident.affected) > 1
    culprit = incident.suspects[0].service
    rest, after = run(
        with_mutes(mesh, days, [culprit], until=AFTER.stop), days.snapshots[FAULT.start + 5 : FAULT.start + 8]
    )
    for verdict in rest:
        (ongoing,) = verdict.incidents
        assert ongoing.id == incident.id
        assert culprit not in ongoing.affected
        assert culprit in [suspect.service for suspect in ongoing.suspects]
    assert culprit not in after.state.memory.open[0].members


def test_after_a_mute_is_removed_verdicts_are_as_without_it(
    run: Running, quiet: Mesh, plain: list[Verdict], days: Days
) -> None:
    muted = with_mutes(quiet, days, [days.one], until=AFTER.stop)
    (mute,) = muted.state.memory.mutes
    lifted_now = replace(muted, state=remove_mute(muted.state, mute.id)[0])
    check_same(run(lifted_now, days.snapshots[QUIET.stop :])[0], plain)
    window = with_mutes(quiet, days, None, until=AFTER.stop)
    (mute,) = window.state.memory.mutes
    before, mesh = run(window, days.snapshots[QUIET.stop : FAULT.start + 5])
    assert not any(verdict.incidents for verdict in before)
    again, _ = run(replace(mesh, state=remove_mute(mesh.state, mute.id)[0]), days.snapshots[FAULT.start + 5 :])
    (incident,) = again[0].incidents
    assert incident.since == next(i.since for v in plain for i in v.incidents), "the incident keeps its start"
    for i, (verdict, other) in enumerate(zip(again, plain[5:], strict=True)):
        assert bool(verdict.incidents) == bool(other.incidents), i
    with pytest.raises(UnknownMute, match="list the mutes"):
        remove_mute(quiet.state, mute.id)


def test_mutes_without_effect_change_no_bit(run: Running, quiet: Mesh, plain: list[Verdict], days: Days) -> None:
    """The mutes are a future one, one of an unknown service, and the usual sensitivity."""
    later = Mute("m", (), days.snapshots[-1].observed_at + timedelta(1), days.snapshots[-1].observed_at, "x", AT)
    waiting = replace(quiet, state=replace(quiet.state, memory=replace(quiet.state.memory, mutes=(later,))))
    mute, usual = ServicePolicy("nobody/*", mute="x"), ServicePolicy(f"{days.one}", Sensitivity.NORMAL)
    for mesh, chosen in ((waiting, Options()), (quiet, Options(services=(mute, usual)))):
        verdicts, after = run(mesh, days.snapshots[QUIET.stop :], chosen)
        check_same([replace(verdict, muted=()) for verdict in verdicts], plain)
        untouched = run(quiet, days.snapshots[QUIET.stop :])[1]
        memory = replace(after.state.memory, mutes=())
        assert not different(replace(after.state, memory=memory), untouched.state)


AT = datetime.fromisoformat("2026-01-01T00:00:00Z")


def test_a_fault_hidden_by_a_window_is_not_learned(run: Running, quiet: Mesh, plain: list[Verdict], days: Days) -> None:
    muted = with_mutes(quiet, days, None, until=AFTER.stop)
    verdicts, mesh = run(muted, days.snapshots[QUIET.stop : FAULT.start + 10])
    assert days.one in verdicts[-1].muted[0].hides
    state, before = mesh.state, quiet.state
    assert np.array_equal(state.node_filters[EXCEED_COUNT], before.node_filters[EXCEED_COUNT]), "tails"
    assert np.array_equal(state.edge_filters[EXCEED_COUNT], before.edge_filters[EXCEED_COUNT])
    # The threshold: all services are muted, so the score was 0. Without mutes such snapshots are left out.
    scores = state.memory.scores[len(before.memory.scores) :]
    assert max(scores) <= max(v.mesh_score for v in plain[:2])
    assert verdicts[-1].mesh_score > 5


def test_a_fault_hidden_at_one_service_does_not_stop_the_others_learning(run: Running, quiet: Mesh, days: Days) -> None:
    muted = with_mutes(quiet, days, [days.one], until=AFTER.stop)
    _, mesh = run(muted, days.snapshots[QUIET.stop : AFTER.stop])
    learned = (mesh.state.node_filters[EXCEED_COUNT] != quiet.state.node_filters[EXCEED_COUNT]).any(axis=(0, 2))
    row = mesh.state.node_ids.index(days.one)
    assert not learned[row]
    assert np.delete(learned, row).any()


def test_a_sensitivity_shifts_the_level(run: Running, quiet: Mesh, plain: list[Verdict], days: Days) -> None:
    failing = FAULT.start + 5  # snapshots until the fault has lasted, so that the mesh has a score

    def score(sensitivity: Sensitivity) -> float:
        """Set it for all services: any may have the mesh's score. A second symptom can add 0.3 of the shift."""
        everybody = {f"{namespace_of(name)}/*" for name in quiet.state.node_ids}
        chosen = Options(services=tuple(ServicePolicy(name, sensitivity) for name in everybody))
        return run(quiet, days.snapshots[QUIET.stop : failing], chosen)[0][-1].mesh_score

    usual, rounding = plain[failing - QUIET.stop - 1].mesh_score, 0.01  # of the scores of the last snapshots
    assert usual > 5
    assert 0.5 - rounding <= score(Sensitivity.HIGH) - usual <= 0.65 + rounding
    assert 1 - rounding <= usual - score(Sensitivity.LOW) <= 1.3 + rounding
    assert score(Sensitivity.NORMAL) == usual


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"services": ["shop/nobody"]}, "/services/0: 'shop/nobody' is neither one of"),
        ({"services": ["nowhere/*"]}, "/services/0: 'nowhere/\\*' is neither one of"),
        ({"end": timedelta(0)}, "end: expected a time after the newest snapshot, which it starts from"),
        ({"start": timedelta(hours=1), "end": timedelta(minutes=1)}, "end: expected a time after the start"),
        ({"start": -timedelta(hours=2), "end": -timedelta(hours=1)}, "end: expected a time after the newest snapshot,"),
        ({"end": timedelta(days=31)}, "end: more than 30 days, 0:00:00 after the newest"),
    ],
)
def test_invalid_mutes_are_refused(quiet: Mesh, said: dict[str, Any], words: str) -> None:
    now = quiet.state.observed_at
    assert now is not None
    times = {name: now + value for name, value in said.items() if name in ("start", "end")}
    document = MuteDocument(**{"end": now + timedelta(hours=1), "reason": "x", **said, **times})
    with pytest.raises(InvalidDocument, match=words):
        add_mute(quiet.state, document)


def test_a_repeated_mute_is_the_same_mute_and_mutes_are_limited(quiet: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    now = quiet.state.observed_at
    assert now is not None
    one, other = (MuteDocument(end=now + timedelta(hours=h), reason="x") for h in (1, 2))
    monkeypatch.setattr(mutes, "MAX_MUTES", 1)
    state, mute = add_mute(quiet.state, one)
    later = replace(state, observed_at=now + timedelta(seconds=15))
    assert add_mute(later, one) == (later, mute), "sent again after another snapshot"
    with pytest.raises(TooManyMutes, match="the limit of 1 "):
        add_mute(state, other)


def test_settings_mute_and_move_the_services_of_one_mesh() -> None:
    services = {"shop/cart": {"sensitivity": "low"}, "batch/*": {"mute": "unattended jobs"}}
    settings = Settings(meshes={"prod": {"services": services}})
    assert options(settings, "prod").services == (
        ServicePolicy("shop/cart", Sensitivity.LOW),
        ServicePolicy("batch/*", mute="unattended jobs"),
    )
    assert options(settings, "other").services == options(settings).services == ()


def test_an_annotation_comes_through_prometheus_and_mutes(
    run: Running, quiet: Mesh, plain: list[Verdict], days: Days
) -> None:
    """The stand-in serves the same mesh, with annotations of its workloads from kube-state-metrics."""
    annotations = {f"{name}-v1": {"mute": "being moved"} for name in affected_services(plain, FAULT)}
    unreadable = {f"{days.other}-v1": {"mute": "false", "sensitivity": "loud"}}
    mesh = IstioMesh(find_snapshot(days.snapshots), annotations=annotations | unreadable)
    with standin.start_server(mesh) as server:
        source = MeshSource(MeshSettings(prometheus=standin.url_of(server)), Settings().collector)
        polls = [source.poll(snapshot.observed_at) for snapshot in days.snapshots]
        source.close()
    snapshots = [poll.snapshot for poll in polls if poll.snapshot]
    assert len(snapshots) == len(days.snapshots)
    assert {len(poll.ignored_annotations) for poll in polls} == {2}
    muted, _ = run(Mesh(), snapshots)
    ignored, _ = run(Mesh(), [replace(snapshot, policies=()) for snapshot in snapshots])
    muted, ignored = muted[QUIET.stop :], ignored[QUIET.stop :]
    assert affected_services(ignored, FAULT) >= {days.one}
    assert not affected_services(muted, FAULT) & affected_services(plain, FAULT)
    assert affected_services(muted, OTHER) >= {days.other}
    assert {(m.origin, m.reason) for v in muted for m in v.muted} == {(MuteOrigin.SNAPSHOT, "being moved")}
    assert any(days.one in m.hides for v in muted for m in v.muted)
