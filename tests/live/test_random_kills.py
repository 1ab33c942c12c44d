"""Random kills of processes and nodes of a cluster under load: a short form of ``kill_campaign.py``."""

from pathlib import Path

from tests.live.kill_campaign import run_campaign
from tests.live.redis import ON_RAY_NODES
from tests.timing import TIME_FACTOR

pytestmark = ON_RAY_NODES
KILLS = 12
SECONDS = 80.0 * TIME_FACTOR
SEED = 7


def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    kills, figures = run_campaign(tmp_path, KILLS, SECONDS, SEED)
    print(figures)
    assert len(kills) == KILLS
    assert len({kill["role"] for kill in kills}) > KILLS // 2, "kills of many kinds"
    assert figures["incidents"], "there were alerts to lose"
