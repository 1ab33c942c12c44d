"""Adapting to a permanent change of a service adds no alert. A leak of that service still raises its alert."""

import pytest

from benchmarks.bench_adaptation import MOST_FACTOR, SERVICES, count_alarms, score_all, shift, shifts
from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from serve_app.pipeline import Options

LEAK = 540  # after the second peak


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_adapting_adds_no_alarm_and_a_leak_is_not_learned_away() -> None:
    one = shift(MeshSpec(services=SERVICES, seed=742, crowds_per_day=24.0))
    assert one is not None
    snapshots, checkpoint = one.snapshots(LEAK), load()
    verdicts_by_mode = {adapt: score_all(checkpoint, snapshots, Options(adapt=adapt)) for adapt in (False, True)}
    without, adapted = (count_alarms(*verdicts_by_mode[adapt], one.service, LEAK) for adapt in (False, True))
    assert adapted.later_alarmed <= without.later_alarmed
    assert adapted.pages <= without.pages
    assert adapted.leak_after is not None
    assert without.leak_after is not None
    assert abs(adapted.leak_after - without.leak_after) <= 4
    assert (without.fitted, adapted.fitted > 0) == (0, True)


def test_a_shift_stays_within_capacity() -> None:
    (one,) = shifts(1)
    assert 1 < one.factor <= MOST_FACTOR
    assert one.service in {name for s in one.snapshots(8)[:1] for name in s.node_ids}
