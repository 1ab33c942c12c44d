"""The table of the reconstruction benchmark, from signals by hand."""

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.bench_reconstruction import CALM_LABEL, IGNORED, Event, Run, measure, plan_events, with_injected_events
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator

LENGTH = 2000


def run_with(event: Event, signal: int) -> Run:
    """Return calm noise, and one signal that is high in the event."""
    signals = np.random.default_rng(0).uniform(0, 1, (3, LENGTH))
    signals[signal, event.start : event.end] += 1
    labels = np.full(LENGTH, CALM_LABEL)
    labels[event.start : event.end] = 0
    none = np.zeros(LENGTH, bool)
    alarms = {"alerts": none, "exceeded": labels == 0, "either": labels == 0}
    return Run("by hand", (event,), signals, alarms, np.arange(LENGTH, dtype=np.float64) * 15, labels)


def test_a_signal_finds_an_event_in_which_it_is_higher_than_in_calm_time() -> None:
    (line,) = measure([run_with(Event("slow_zone", 0.1, 500, 540), 1)])
    assert line["reconstruction at 4/day"][0] == line["combined at 4/day"][0] == 1
    assert (line["alerts"][0], line["exceeded"][0], line["either"][0]) == (0, 1, 1)
    assert line["calm_days"] == pytest.approx((LENGTH - 40) * 15 / 86400, abs=0.01)
    assert line["false_exceeded_per_day"] == 0
    assert line["events"] == 1


def test_events_have_all_kinds_and_sizes_and_do_not_overlap() -> None:
    events = plan_events(2000)
    assert len({(event.kind, event.size) for event in events}) == 9
    assert all(one.end < other.start for one, other in pairwise(events))


def test_injected_events_are_labelled_and_the_time_after_them_is_ignored() -> None:
    snapshots = list(Simulator(MeshSpec(services=25, seed=1), snapshots=110).snapshots())
    run = with_injected_events("simulator", snapshots, 3)
    (event,) = run.events
    assert (run.labels == 0).sum() == event.end - event.start
    assert (run.labels[event.end : event.end + 20] == IGNORED).all()
    assert run.signals.shape == (3, 110)
