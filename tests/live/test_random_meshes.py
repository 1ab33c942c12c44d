"""What is read from a real Prometheus and a real VictoriaMetrics is the truth, for some random meshes of each kind.

``python -m tests.live.random_meshes`` reads 400.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.live.programs import needs
from tests.live.random_meshes.kinds import KINDS
from tests.live.random_meshes.matrix import find_faults
from tests.live.random_meshes.otlp import CONDITIONS as PUSHED
from tests.live.random_meshes.otlp import find_faults_of_push
from tests.live.random_meshes.processes import CONDITIONS, Counter

pytestmark = pytest.mark.live


@pytest.mark.parametrize("number", range(3 * len(PUSHED)))
def test_what_a_collector_pushes_is_as_it_was_counted(number: int) -> None:
    assert find_faults_of_push(number) == []


@pytest.mark.parametrize("reset", range(3, 8))
def test_each_restart_of_a_counter_is_visible(reset: int) -> None:
    counter = Counter("requests_total", rate=2.0, offset=1.0, resets=frozenset({reset}), lives=range(4, 99))
    values = [value for _, value in counter.samples(0.0, reads=9, step=15.0)]
    assert [b - a if b >= a else b for a, b in pairwise(values)] == [30.0] * 4


@needs("prometheus", "promtool", "victoria-metrics")
def test_services_calls_rates_and_quantiles_are_as_they_were_written(tmp_path: Path) -> None:
    # Each kind once, and each condition at least once.
    numbers = [i + len(KINDS) * (i % len(CONDITIONS)) for i in range(len(KINDS))]
    assert {mesh: faults for mesh, faults in find_faults(numbers, tmp_path).items() if faults} == {}
