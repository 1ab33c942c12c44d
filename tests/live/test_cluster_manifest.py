"""The Serve config of cluster.yaml on real Ray nodes. Only the address of the Redis is changed for this machine."""

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
from tests.live.ray_nodes import START_SECONDS, Nodes, run_nodes
from tests.live.redis import ON_RAY_NODES, RedisProgram
from tests.serve_app.running import record_simulation
from tests.serve_app.test_kills import await_that
from tests.timing import TIME_FACTOR

pytestmark = ON_RAY_NODES
CLIENT_SECONDS = 60.0 * TIME_FACTOR


def serve_config(redis: RedisProgram) -> dict[str, Any]:
    config = copy.deepcopy(CLUSTER.serve_config)
    (application,) = config["applications"]
    application["args"]["store"] |= {"url": redis.url.replace("/0", "/1"), "password_file": None}
    return config


@contextmanager
def run_cluster(folder: Path) -> Iterator[Nodes]:
    """Run a head and two workers with the environment of the pods, and a token that may do everything."""
    (container,) = CLUSTER.templates["cpu"]["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    front = {**json.loads(environment.pop("TAGAE_SERVE")), "host": LOOPBACK}
    front["tokens_file"] = str(folder.parent / "tokens.toml")
    with run_nodes(folder, 2, **environment, TAGAE_SERVE=json.dumps(front)) as nodes:
        yield nodes


@pytest.fixture
def token(tmp_path: Path) -> str:
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


def test_the_serve_config_runs_and_replicas_of_a_lost_node_wait_for_its_replacement(
    tmp_path: Path, redis: RedisProgram, token: str
) -> None:
    snapshots = record_simulation(MeshSpec(services=30, seed=3), 18)
    with run_cluster(tmp_path / "nodes") as nodes:
        nodes.deploy_config(serve_config(redis))
        assert_one_replica_each(nodes)
        with Client(nodes.url, token=token, patience_seconds=CLIENT_SECONDS) as client:
            before = [client.push("shop", one) for one in snapshots[:14]]
            nodes.kill(nodes.workers[0])
            meanwhile = [client.push("shop", one) for one in snapshots[14:16]]
            assert_one_replica_each(nodes)  # the node that is left got no second one
            nodes.add()
            await_that(lambda: all(counts(nodes, "Ingress") + counts(nodes, "MeshSession")), "replicas", START_SECONDS)
            assert_one_replica_each(nodes)
            after = [client.push("shop", one) for one in snapshots[16:]]
    verdicts = [*before, *meanwhile, *after]
    assert [one.sequence for one in verdicts] == list(range(1, 19))
    assert verdicts[0].status == "warming_up"
    assert verdicts[-1].status == "normal"


def counts(nodes: Nodes, deployment: str) -> list[int]:
    """How many replicas of a deployment each worker has."""
    found = nodes.replicas(deployment)
    return [len(found[worker.pid]) for worker in nodes.workers]


def assert_one_replica_each(nodes: Nodes) -> None:
    for deployment in ("Ingress", "MeshSession"):
        assert set(counts(nodes, deployment)) == {1}, deployment
