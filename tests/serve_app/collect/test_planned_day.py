"""Planned changes raise no alert, unplanned ones raise one at once. This tests from kube-state-metrics to alerts.

``pytest -m days -s tests/serve_app/collect/test_planned_day.py`` simulates whole days and prints the figures of
docs/research-log.md. It needs minutes, but no other program.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.events.wiring import eligible_services
from lab.simulator.mesh.parameters import build_mesh
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from tests.serve_app.collect.prometheus.day import Day, simulate_day

SPEC = MeshSpec(services=30, calls_per_service=3.0, dropout=0.0, latent=0.2)
DAY = 5760  # snapshots at 15 s
GONE = 60  # snapshot from which a service no longer exists


def mesh_with_churn(spec: MeshSpec, snapshots: int, per_hour: float, *, late: int = 0) -> Day:
    """Simulate a mesh with this number of planned changes an hour, but no canaries: their shares cannot be read.

    In every second mesh, retired workloads are first scaled to zero.
    """
    _, planned = plan_scenario(spec, (), spec.seed, snapshots=snapshots, churn_per_hour=per_hour)
    changes = [change for change in planned if change.kind != "canary"]
    return simulate_day(spec, changes, snapshots, empties=bool(spec.seed % 2), late=late)


@pytest.mark.parametrize(("seed", "late"), [(1, 0), (2, 2)])
def test_a_busy_hour_of_planned_changes_raises_no_alert(seed: int, late: int) -> None:
    """There are ten times as many changes as usual."""
    day = mesh_with_churn(replace(SPEC, seed=seed), 200, 60.0, late=late)
    assert len(day.made) > 30
    assert day.opened == []
    made, collected = (
        {(change.kind, change.service) for _, change in changes} for changes in (day.made, day.collected)
    )
    retired = {service for kind, service in made if kind == "deletion"}
    assert {one for one in made if one[0] in ("new_service", "deploy", "node_drain")} - collected <= {
        ("node_drain", service)
        for _, service in collected  # another change of the service in the same snapshot was reported instead
    }
    assert retired <= {service for kind, service in collected if kind in ("deletion", "retirement")}
    assert {kind for kind, _ in collected} >= {"new_service", "deploy", "scale_out", "scale_in", "node_drain"}


@pytest.mark.parametrize(("seed", "empties", "late"), [(1, False, 0), (2, True, 0), (3, True, 2), (4, False, 2)])
def test_an_unplanned_disappearance_alerts_in_its_third_snapshot_and_a_retirement_never(
    seed: int, empties: bool, late: int
) -> None:
    spec = replace(SPEC, seed=seed)
    mesh = build_mesh(spec)
    able = eligible_services(mesh, "deletion")
    busiest = [mesh.topology.node_ids[i] for i in able[np.argsort(-mesh.usual_rate[able])][:4]]
    retired, gone = busiest[seed % 2], busiest[2 + seed % 2]
    faults = [Fault("disappearance", gone, GONE, GONE + 20)]
    day = simulate_day(
        spec, [BenignChange("deletion", retired, 40)], GONE + 20, faults=faults, empties=empties, late=late
    )
    first = day.opened[0]
    assert (f"{first.alert.labels['namespace']}/{first.alert.labels['service']}", first.index) == (gone, GONE + 2)
    assert "Planned" not in first.alert.annotations["description"]
    assert [(at, change.kind, change.service) for at, change in day.collected] == [
        (40 + late, "retirement" if empties else "deletion", retired)
    ]


def test_an_alert_near_a_change_names_it() -> None:
    """The alert has kind and service of the change, and the exact decision."""
    spec = replace(SPEC, seed=5)
    mesh = build_mesh(spec)
    able = eligible_services(mesh, "deletion")
    busiest = mesh.topology.node_ids[able[int(np.argmax(mesh.usual_rate[able]))]]
    faults = [Fault("latency_injection", busiest, 63, 80, 10.0)]
    day = simulate_day(spec, [BenignChange("deploy", busiest, 60)], 80, faults=faults)
    assert len(day.beside_changes()) == 1
    (collected,) = [one.alert.annotations["description"] for one in day.opened]
    name = busiest.split("/")[1]
    assert f"deploy of {busiest} ({name}-v1: generation 1 to 2)." in collected
    assert "Planned: began" in collected


@pytest.mark.days
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_day_of_planned_changes_raises_no_alert(seed: int) -> None:
    """The changes are scaling, rollouts, retirements, new services and drained nodes."""
    spec = replace(SPEC, services=40, seed=seed)
    day = mesh_with_churn(spec, DAY, 6.0)
    made, collected = (dict(Counter(change.kind for _, change in changes)) for changes in (day.made, day.collected))
    beside = day.beside_changes()
    print(f"\nseed {seed}: {len(beside)} alerts beside changes, {len(day.opened) - len(beside)} elsewhere")
    print(f"made {made}\ntold {collected}")
    assert sum(made.values()) > 100
    assert beside == []
    assert len(day.opened) <= 2  # the budget is one alert a day
