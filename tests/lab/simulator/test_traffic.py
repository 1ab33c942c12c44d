"""Traffic from outside: days, weekends and shifts."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from lab.simulator.events.traffic import TrafficShift, entries_of
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.load import day_amplitude, draw_variation, entry_factor, first_noise, week_factor
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot

SPEC = MeshSpec(seed=1, namespaces=4, hiccups_per_hour=0.0)
MESH = build_mesh(SPEC)
NAMES = MESH.topology.node_ids
BUSIEST = NAMES[int(np.argmax(MESH.services.entry))]
SPACE = BUSIEST.split("/")[0]


def front_door(snapshot: MeshSnapshot, scope: str) -> float:
    """Requests per second at the entry points of a scope."""
    entries = {name for name, entry in zip(NAMES, entries_of(MESH.topology, scope), strict=True) if entry}
    return sum(
        float(row[0]) for name, row in zip(snapshot.node_ids, snapshot.node_features, strict=True) if name in entries
    )


@pytest.mark.parametrize("scope", ["*", f"{SPACE}/*", BUSIEST])
def test_traffic_of_a_scope_falls_and_nothing_else(scope: str) -> None:
    shift = TrafficShift(0.2, 4, 8, scope=scope)
    calm = list(Simulator(SPEC, snapshots=10).snapshots())
    snapshots = list(Simulator(SPEC, snapshots=10, others=[shift]).snapshots())
    share = [front_door(ours, scope) / front_door(theirs, scope) for ours, theirs in zip(snapshots, calm, strict=True)]
    assert share[:4] == [1.0] * 4
    np.testing.assert_allclose(share[4:8], 0.2, rtol=0.1)
    np.testing.assert_allclose(share[8:], 1.0, rtol=0.05)  # retries of the mesh are over
    if scope != "*":
        other_entries = entries_of(MESH.topology, "*") & ~entries_of(MESH.topology, scope)
        for name in np.array(NAMES)[other_entries]:
            assert front_door(snapshots[5], str(name)) == front_door(calm[5], str(name))


def test_a_mesh_without_traffic_has_no_latencies_and_no_errors() -> None:
    snapshot = list(Simulator(SPEC, snapshots=6, others=[TrafficShift(0.0, 2, 9)]).snapshots())[-1]
    assert snapshot.node_observed[:, 0].mean() > 0.95
    assert not snapshot.node_features[:, 0].any()
    assert not snapshot.node_observed[:, 1:4].any()
    assert not snapshot.edge_observed[:, 1:].any()


def test_a_shift_rises_and_falls() -> None:
    shift = TrafficShift(3.0, 10, 20, rise=4, fall=2)
    assert [shift.load(i) for i in (9, 10, 13, 18, 19, 20)] == [1.0, 1.5, 3.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"factor": -1.0}, "factor: expected 0 or more, got -1.0"),
        ({"rise": 0}, "rise, fall: expected 1 or more"),
        ({"end": 1}, "end: expected at least 1 snapshots after 2, got 1"),
        ({"rise": 9, "fall": 9}, "end: expected at least 17 snapshots"),
    ],
)
def test_a_wrong_shift_is_refused(values: dict[str, float], message: str) -> None:
    arguments: dict[str, float] = {"factor": 2.0, "start": 2, "end": 9, **values}
    with pytest.raises(ValueError, match=message):
        TrafficShift(**arguments)  # type: ignore[arg-type]


def test_a_scope_without_entry_points_is_refused() -> None:
    inner = NAMES[int(np.flatnonzero(MESH.topology.layer > 0)[0])]
    for scope in (inner, "nowhere/*", "a/b"):
        with pytest.raises(ValueError, match="scope: expected"):
            Simulator(SPEC, others=[TrafficShift(0.5, 1, 2, scope=scope)])


@pytest.mark.parametrize("ratio", [3.0, 8.0])
def test_a_day_has_the_wanted_amplitude(ratio: float) -> None:
    spec = replace(SPEC, day_amplitude=day_amplitude(ratio))
    variation = replace(draw_variation(spec, MESH.topology, spec.stream(2)), entry_fast=0.0)
    noise = replace(first_noise(MESH.topology, spec.stream(4)), entry=np.zeros(len(NAMES)))
    day = [entry_factor(variation, noise, second, spec.stream(9))[0] for second in range(0, 86_400, 300)]
    assert max(day) / min(day) == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize(
    ("when", "load"),
    [
        (datetime(2026, 1, 2, 12, tzinfo=UTC), 1.0),  # a Friday
        (datetime(2026, 1, 3, 0, tzinfo=UTC), 0.75),
        (datetime(2026, 1, 3, 3, tzinfo=UTC), 0.5),
        (datetime(2026, 1, 4, 12, tzinfo=UTC), 0.5),
        (datetime(2026, 1, 5, 0, tzinfo=UTC), 0.75),
        (datetime(2026, 1, 5, 3, tzinfo=UTC), 1.0),
    ],
)
def test_a_weekend_has_less_load(when: datetime, load: float) -> None:
    assert week_factor(0.5, when) == pytest.approx(load)
    assert week_factor(1.0, when) == 1.0


def test_load_and_capacity_are_parameters() -> None:
    little, roomy = build_mesh(replace(SPEC, load=0.01)), build_mesh(replace(SPEC, sized_for=7.0))
    np.testing.assert_allclose(little.usual_rate, 0.01 * MESH.usual_rate, rtol=0.01)
    busy = MESH.usual_utilisation > 0.05
    assert np.median(roomy.usual_utilisation[busy] / MESH.usual_utilisation[busy]) == pytest.approx(1.4 / 7.0)
