"""The Serve config of cluster.yaml on real Ray nodes.

What is changed for this machine: no GPU, one worker, one listening proxy, and the address of the Redis.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from serve_app.api.client import Client
from serve_app.cli import app
from tests.cluster.rendering import CLUSTER
from tests.live.programs import LOOPBACK
from tests.live.ray_nodes import Nodes, run_nodes
from tests.live.redis import ON_RAY_NODES, RedisProgram
from tests.serve_app.running import record_simulation
from tests.timing import TIME_FACTOR

pytestmark = ON_RAY_NODES
CLIENT_SECONDS = 60.0 * TIME_FACTOR


def serve_config(redis: RedisProgram, *, place: str, weights: Path | None = None) -> dict[str, Any]:
    """The Serve config of cluster.yaml without GPUs.

    With ``place`` session, it is the one that the chart renders for ``device: cpu``.
    """
    config = copy.deepcopy(CLUSTER.serve_config)
    (application,) = config["applications"]
    arguments = application["args"]
    arguments["store"] |= {"url": redis.url.replace("/0", "/1"), "password_file": None}
    arguments["scorer"] |= {"device": "cpu", "place": place}
    arguments["model"] = {"weights": None if weights is None else str(weights)}
    if place == "session":
        application["deployments"] = [one for one in application["deployments"] if one["name"] != "MetaModel"]
    return config


@contextmanager
def run_cluster(folder: Path) -> Iterator[Nodes]:
    """Run a head and a worker with the environment of the pods, and a token that may do everything."""
    (container,) = CLUSTER.templates["cpu"]["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    front = {**json.loads(environment.pop("TAGAE_SERVE")), "host": LOOPBACK}
    front["tokens_file"] = str(folder.parent / "tokens.toml")
    with run_nodes(folder, 1, **environment, TAGAE_SERVE=json.dumps(front)) as nodes:
        yield nodes


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A token that the clusters know."""
    words = ["token", "create", "--name", "test", "--scope", "admin", str(tmp_path / "tokens.toml")]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    return made.stdout.strip()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProgram]:
    started = RedisProgram(tmp_path / "redis")
    try:
        yield started
    finally:
        started.end()


def test_the_serve_config_runs_and_gives_verdicts(tmp_path: Path, redis: RedisProgram, token: str) -> None:
    snapshots = record_simulation(MeshSpec(services=30, seed=3), 14)
    config = serve_config(redis, place="replicas")
    with run_cluster(tmp_path / "nodes") as nodes:
        nodes.deploy_config(config)
        front, scorer = (config["applications"][0]["args"][group] for group in ("serve", "scorer"))
        least = {
            "Ingress": front["ingress_replicas"],
            "MeshSession": front["session_replicas"],
            "MetaModel": scorer["meta_replicas"],
            "Scorer": scorer["num_replicas"],
        }
        for name, count in least.items():
            assert sum(map(len, nodes.replicas(name).values())) == count, name
        with Client(nodes.url, token=token, patience_seconds=CLIENT_SECONDS) as client:
            statuses = [client.push("shop", one).status for one in snapshots]
    assert statuses[0] == "warming_up"
    assert statuses[-1] == "normal"
