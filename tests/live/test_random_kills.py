"""Random kills of processes and nodes of a cluster under load: a short form of ``benchmarks.bench_kills_cluster``."""

from pathlib import Path

import pytest

from benchmarks.bench_kills_cluster import run_campaign
from tests.live.programs import missing_programs
from tests.live.redis import PROGRAM
from tests.timing import TIME_FACTOR

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs(PROGRAM)), reason=f"not here: {'; '.join(missing_programs(PROGRAM))}"),
]
KILLS = 12
SECONDS = 80.0 * TIME_FACTOR
SEED = 7


def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    kills, figures = run_campaign(tmp_path, KILLS, SECONDS, SEED)
    print(figures)
    assert len(kills) == KILLS
    assert len({kill["role"] for kill in kills}) > KILLS // 2, "kills of many kinds"
    assert figures["incidents"], "there were alerts to lose"
