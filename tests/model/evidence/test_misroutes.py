"""A part of a caller's requests goes to a wrong service: an alert while users suffer, and not for longer."""

from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch

from benchmarks.calm_again.mesh import Scenario, World, snapshots
from model.checkpoint import load
from model.verdict import Verdict
from serve_app.pipeline import Mesh, advance, options
from serve_app.settings import Settings

BEGINS, LASTS, SEED = 120, 160, 5  # snapshots before it and of it; forty minutes
IN_TIME, ENDED = 12, 40  # snapshots until the alert, and until an alert about harmless calls is over


def to_fraud(share: float, failing: float, slower_ms: float = 0.0) -> Scenario:
    """Return a scenario in which a share of api's calls to cart goes to fraud, where some of them fail or are slow."""

    def scenario(position: int, world: World) -> None:
        if position < BEGINS:
            return
        moved = share * world.calls["api"]["cart"]
        world.calls["api"]["cart"] -= moved
        world.calls["api"]["fraud"] = moved
        rate = world.traffic()[0]
        world.fail["fraud"] = failing * moved * rate["api"] / rate["fraud"]
        world.own_ms["fraud"] += slower_ms

    return scenario


def score(mesh: Mesh, scenario: Scenario, first: int, end: int) -> tuple[list[Verdict], Mesh]:
    """Return the verdicts on some snapshots of a scenario, and the mesh after them."""
    checkpoint, chosen, found = load(), options(Settings()), []
    for snapshot in islice(snapshots(scenario, end, SEED), first, None):
        verdict, mesh = advance(checkpoint, mesh, snapshot, chosen)
        found.append(verdict)
    return found, mesh


@cache
def calm() -> Mesh:
    """Return the mesh before all of these scenarios, which change nothing until they begin."""
    torch.set_num_threads(1)
    return score(Mesh(), to_fraud(0.3, 0.3), 0, BEGINS)[1]


def verdicts_of(scenario: Scenario) -> list[Verdict]:
    """Return the verdicts from its begin on."""
    return score(calm(), scenario, BEGINS, BEGINS + LASTS)[0]


@pytest.mark.parametrize(("share", "failing"), [(0.1, 0.3), (0.2, 0.1), (0.3, 0.1)])
def test_an_alert_stays_while_requests_fail_because_they_go_elsewhere(share: float, failing: float) -> None:
    found = verdicts_of(to_fraud(share, failing))
    assert any(verdict.alerts for verdict in found[:IN_TIME])
    assert all(verdict.alerts and not verdict.alerts[0].recovering for verdict in found[IN_TIME:])
    assert len({one.id for verdict in found for one in verdict.alerts}) == 1


def test_an_alert_stays_while_requests_are_slow_because_they_go_elsewhere() -> None:
    found = verdicts_of(to_fraud(0.2, 0.0, slower_ms=100.0))
    assert all(verdict.alerts for verdict in found[IN_TIME:])


def test_calls_that_go_elsewhere_without_harm_are_no_lasting_alert() -> None:
    """A migration looks like a wrong route at first, but no one suffers."""
    found = verdicts_of(to_fraud(0.3, 0.0))
    assert not any(verdict.alerts for verdict in found[ENDED:])
    assert np.mean([bool(verdict.alerts) for verdict in found]) < 0.25
