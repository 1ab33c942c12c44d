"""Faults, their plans and their labels."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lab.simulator.events.faults import (
    CATALOGUE,
    KINDS,
    LEVELS,
    Fault,
    FaultKind,
    apply_faults,
    candidates,
    possible_culprits,
)
from lab.simulator.labels import AFFECTED, Comparison, Effect, compare_runs, incidents
from lab.simulator.mesh.parameters import build_mesh, usual_conditions
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.propagation import respond
from lab.simulator.scenario import SOON, plan_scenario
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot

SPEC = MeshSpec(seed=1, hiccups_per_hour=0.0)
TICKS = 20  # duration of a fault
AllKinds = tuple[list[Fault], list[MeshSnapshot], list[MeshSnapshot], dict[Fault, Effect]]  # with them and without


def plan_faults(seed: int = 1) -> tuple[MeshSpec, list[Fault]]:
    """Return every kind at every level, one after another."""
    spec = replace(SPEC, seed=seed)
    mesh = build_mesh(spec)
    rng = np.random.default_rng(seed)
    faults: list[Fault] = []
    for kind in KINDS:
        for size in CATALOGUE[kind].sizes:
            start = 40 + len(faults) * 3 * TICKS
            culprit = mesh.topology.node_ids[int(rng.choice(candidates(mesh, kind)))]
            faults.append(Fault(kind, culprit, start, start + TICKS, size))
    return spec, faults


def run(spec: MeshSpec, faults: list[Fault]) -> tuple[list[MeshSnapshot], list[MeshSnapshot], Comparison]:
    length = max(fault.end for fault in faults) + 2 * TICKS
    comparison = Comparison(spec, build_mesh(spec), faults)
    without = list(Simulator(spec, snapshots=length).snapshots())
    with_faults = list(compare_runs(Simulator(spec, faults, snapshots=length).snapshots(), without, comparison))
    return with_faults, without, comparison


@pytest.fixture(scope="module")
def all_kinds() -> AllKinds:
    spec, faults = plan_faults()
    with_faults, without, comparison = run(spec, faults)
    return faults, with_faults, without, comparison.effects()


def test_before_a_fault_all_values_are_identical(
    all_kinds: AllKinds,
) -> None:
    faults, with_faults, without, _ = all_kinds
    first = faults[0].start
    assert [s.digest for s in with_faults[:first]] == [s.digest for s in without[:first]]
    assert with_faults[first + 1].digest != without[first + 1].digest


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_shows_and_ends_and_is_worse_at_a_higher_level(kind: FaultKind, all_kinds: AllKinds) -> None:
    faults, _, _, effects = all_kinds
    mesh = build_mesh(SPEC)
    position = {name: i for i, name in enumerate(mesh.topology.node_ids)}
    for fault in (f for f in faults if f.kind == kind):
        effect = effects[fault]
        may_be_named = {mesh.topology.node_ids[i] for i in possible_culprits(mesh, position, fault)}
        assert fault.service in may_be_named
        assert may_be_named & set(effect.affected), "no possible culprit is affected"
        assert effect.sigmas >= AFFECTED
        assert fault.end <= effect.recovered <= fault.end + 2 * TICKS
        assert len(effect.affected) < 0.7 * len(mesh.topology.node_ids)


def test_a_misroute_does_not_change_services() -> None:
    mesh = build_mesh(SPEC)
    caller = mesh.topology.node_ids[int(candidates(mesh, "misroute")[0])]
    fault = Fault("misroute", caller, 40, 60, 1.0)
    with_fault, without, comparison = run(SPEC, [fault])
    assert comparison.effects()[fault].sigmas >= AFFECTED, "the calls show the misroute"
    spell = slice(fault.start + 2, fault.end)
    rates, usual = (
        np.stack([s.node_features[:, 0] for s in part[spell]]).mean(axis=0) for part in (with_fault, without)
    )
    busy = usual > 5
    assert np.abs(np.log(rates[busy] / usual[busy])).max() < 0.35, (
        "every rate stays within the usual variation of traffic"
    )
    errors, before = (
        np.stack([s.node_features[:, 1] for s in part[spell]]).mean(axis=0) for part in (with_fault, without)
    )
    assert np.abs(errors - before).max() < 0.01
    faulty, healthy = with_fault[spell][0], without[spell][0]
    assert {*zip(*faulty.edge_index.tolist(), strict=True)} != {*zip(*healthy.edge_index.tolist(), strict=True)}


def test_labels_of_a_mesh_without_a_place_for_the_fault() -> None:
    for seed in range(12):
        faults, _ = plan_scenario(MeshSpec(12, calls_per_service=1.5, seed=seed), ["misroute"], seed)
        assert {f.kind for f in faults} <= {"misroute"}
    assert plan_scenario(SPEC, ["disappearance"], 1, levels=["minor"])[0] == ()


@pytest.mark.parametrize("services", [8, 12, 20])
def test_small_meshes_can_be_built(services: int) -> None:
    for seed in range(20):
        assert build_mesh(MeshSpec(services, calls_per_service=1.0, seed=seed)).usual_rate.max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_faults_do_not_take_the_whole_mesh_down(seed: int) -> None:
    mesh = build_mesh(replace(SPEC, seed=seed))
    position = {name: i for i, name in enumerate(mesh.topology.node_ids)}
    entry = mesh.services.entry
    for kind in KINDS:
        losses = []
        for i in candidates(mesh, kind):
            fault = Fault(kind, mesh.topology.node_ids[i], 0, 1)
            conditions = apply_faults([fault], 0, mesh, position, usual_conditions(mesh))
            response = respond(mesh, conditions)
            for _ in range(12):
                response = respond(mesh, replace(conditions, attempts=response.attempts))
            losses.append((response.errors * entry)[entry > 0].sum() / entry.sum())
        assert losses, kind
        assert np.median(losses) < 0.3, kind


def test_a_plan_spaces_its_faults_and_keeps_churn_apart_from_them() -> None:
    arguments: dict[str, Any] = {"snapshots": 2400, "churn_per_hour": 30.0}
    faults, changes = plan_scenario(SPEC, KINDS, 7, **arguments)
    assert {f.kind for f in faults} == set(KINDS)
    assert {f.level for f in faults} == set(LEVELS)
    assert all(a.end + 40 <= b.start for a, b in pairwise(faults))
    assert faults[0].start >= 160
    assert plan_scenario(SPEC, KINDS, 7, **arguments) == (faults, changes)
    assert plan_scenario(SPEC, (), 7, **arguments)[1] == changes


def test_a_nearby_change_is_weak_evidence_for_a_fault() -> None:
    """Changes near faults have the same reasons as other changes, and most changes precede no fault."""
    near: list[str] = []
    everywhere: list[str] = []
    near_count = total = 0
    for seed in range(12):
        faults, changes = plan_scenario(SPEC, KINDS, seed, snapshots=2400, churn_per_hour=30.0)
        close = [c for c in changes if any(f.start - SOON <= c.at < f.start for f in faults)]
        near += [c.reason for c in close]
        everywhere += [c.reason for c in changes]
        near_count, total = near_count + len(close), total + len(changes)
    assert 0.02 < near_count / total < 0.5
    for reason in set(everywhere):
        share, usual_share = near.count(reason) / len(near), everywhere.count(reason) / len(everywhere)
        assert abs(share - usual_share) < 3.5 * np.sqrt(usual_share * (1 - usual_share) / len(near)) + 0.02, reason
    for words in (*KINDS, "fault", "inject", "incident", "chaos"):
        assert not any(words in reason.lower() for reason in everywhere)


def test_incidents_name_the_culprit_as_recordings_do() -> None:
    mesh = build_mesh(SPEC)
    service = mesh.topology.node_ids[int(candidates(mesh, "error_burst")[0])]
    fault = Fault("error_burst", service, 4, 8)
    effects = {fault: Effect(12.34, 3.21, (service,), 9)}
    (row,) = incidents([fault], SPEC, mesh, effects)
    namespace, name = service.split("/")
    assert row == {
        "start": datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        "end": datetime(2026, 1, 1, 0, 2, tzinfo=UTC),
        "recovered": datetime(2026, 1, 1, 0, 2, 15, tzinfo=UTC),
        "kind": "error_burst",
        "severity": "major",
        "size": 0.3,
        "effect_sigmas": 12.3,
        "user_sigmas": 3.2,
        "root_cause_service": name,
        "root_cause_namespace": namespace,
        "root_cause_metric": "error_rate",
        "candidates": [service],
        "affected": [service],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("flood", "a/b", 1, 2), "kind: expected one of"),
        (("error_burst", "a/b", 2, 2), "end: expected a snapshot after start 2"),
        (("error_burst", "a/b", 1, 2, 1.5), "a share above 0 up to 1"),
        (("latency_injection", "a/b", 1, 2, 0.0), "a number above 0"),
    ],
)
def test_an_impossible_fault_is_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fault(*arguments)  # type: ignore[arg-type]


def test_a_fault_that_the_mesh_has_no_place_for_is_refused() -> None:
    mesh = build_mesh(SPEC)
    position = {name: i for i, name in enumerate(mesh.topology.node_ids)}
    gateway = mesh.topology.node_ids[0]
    with pytest.raises(ValueError, match="no service calls"):
        apply_faults([Fault("grey_edge", gateway, 0, 1)], 0, mesh, position, usual_conditions(mesh))
