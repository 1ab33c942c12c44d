"""The life of a cluster under load: nodes and the head come and go, the load changes, and so do code and weights."""

import time
from dataclasses import replace
from pathlib import Path

import psutil
import torch

from model.checkpoint import SHIPPED, load, save
from serve_app.api.client import Client
from tests.live.loaded_cluster import CLIENT_SECONDS, PAUSE_SECONDS, Cluster, run_under_load, variables
from tests.live.programs import LOOPBACK, free_ports
from tests.live.ray_nodes import run_nodes
from tests.live.redis import ON_RAY_NODES
from tests.live.webhook import Webhook
from tests.serve_app.collect.prometheus.standin import start_server, url_of
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS

pytestmark = ON_RAY_NODES
QUICK_REPORTS = {"RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1"}  # of the load, instead of every 10 s
READS = 8  # that reach both ingresses
SLOW_PAUSE_SECONDS = 20.0  # in which a session has almost nothing to do, on any machine


def report(what: str, cluster: Cluster, since: float) -> None:
    """Print what clients noticed since a moment."""
    waits = [sender.longest_wait(since) for sender in cluster.senders]
    repeated, pushes = count_pushes(cluster)
    print(f"{what}: longest wait {max(waits):.1f} s; {repeated} of {pushes} pushes were repeated")


def count_pushes(cluster: Cluster) -> tuple[int, int]:
    """Return how many pushes clients repeated, and how many there were."""
    return sum(len(sender.repeated) for sender in cluster.senders), sum(len(s.verdicts) for s in cluster.senders)


def kill_session(cluster: Cluster) -> None:
    sessions = set[int]().union(*cluster.nodes.replicas("MeshSession").values())
    victim = psutil.Process(min(sessions))
    victim.kill()
    victim.wait(PATIENCE_SECONDS)


def test_nodes_and_sessions_come_and_go_under_load(tmp_path: Path) -> None:
    with run_under_load(tmp_path) as cluster:
        cluster.nodes.add()
        for sessions in (3, 1):
            cluster.deploy(sessions=sessions)
            cluster.await_replicas("MeshSession", sessions)
            cluster.await_verdicts()


def test_a_lost_node_loses_no_snapshot_and_its_notifier_continues_on_another_node(tmp_path: Path) -> None:
    webhook = Webhook()
    with (
        start_server(webhook) as server,
        run_under_load(
            tmp_path, notify={"receivers": [{"kind": "webhook", "options": {"url": url_of(server)}}]}
        ) as cluster,
    ):
        await_that(lambda: webhook.knows(cluster.senders), "the start of each open incident", 4 * CLIENT_SECONDS)
        before = cluster.nodes.replicas("Notifier")
        (node,) = [one for one in cluster.nodes.workers if before[one.pid]]
        cluster.lose(node)
        cluster.await_replicas("Notifier", 1)
        cluster.await_verdicts(20)
        await_that(lambda: webhook.knows(cluster.senders), "the start of each open incident", 4 * CLIENT_SECONDS)
    assert not (tmp_path / "state").exists(), "no node has a file of its own"
    webhook.check()


def test_scorers_on_a_lost_node_are_replaced(tmp_path: Path) -> None:
    chosen = {"device": "cpu", "place": "replicas", "num_replicas": 2}
    with run_under_load(tmp_path, scorer=chosen) as cluster:
        scorers = cluster.nodes.replicas("Scorer")
        node = next(one for one in cluster.nodes.workers if scorers[one.pid])
        since = time.monotonic()
        cluster.lose(node, "Scorer")
        report("a node with scorers was lost", cluster, since)


def test_the_head_is_lost_and_returns(tmp_path: Path) -> None:
    nowhere = f"http://{LOOPBACK}:{free_ports(1)[0]}"
    with run_under_load(tmp_path, keeps_ray=True, meshes={"shop": {"prometheus": nowhere}}) as cluster:
        since = time.monotonic()
        cluster.nodes.crash(cluster.nodes.head)
        cluster.await_verdicts(10)
        for _ in range(READS):
            with Client(cluster.nodes.url) as client:  # a connection may reach any of the nodes
                client.metrics()  # the first call of an ingress to the collector
        cluster.await_verdicts(10)
        kill_session(cluster)
        cluster.await_verdicts(10)
        assert cluster.count("MeshSession") == 1, "only the head can replace it"
        report("head and a session were lost", cluster, since)
        since = time.monotonic()
        cluster.nodes.restart(cluster.nodes.head)
        cluster.await_replicas("MeshSession", 2)
        cluster.await_verdicts()
        report("the head returned", cluster, since)


def test_a_process_that_ray_has_given_up_ends(tmp_path: Path) -> None:
    scorer = {"device": "cpu", "place": "replicas", "num_replicas": 2}
    with run_under_load(tmp_path, workers=1, keeps_ray=True, scorer=scorer) as cluster:
        before = scorers(cluster)
        psutil.Process(min(before)).kill()
        await_that(lambda: bool(scorers(cluster) - before), "another scorer starts", 4 * PATIENCE_SECONDS)
        (starting,) = scorers(cluster) - before
        psutil.Process(starting).suspend()  # the head that replaces the lost one finds it unfinished
        cluster.nodes.crash(cluster.nodes.head)
        cluster.nodes.restart(cluster.nodes.head)
        psutil.Process(starting).resume()
        await_that(lambda: len(scorers(cluster) - before - {starting}) == 1, "a third one", 4 * PATIENCE_SECONDS)
        await_that(lambda: not psutil.pid_exists(starting), "the second one ends", 4 * PATIENCE_SECONDS)
        cluster.await_verdicts()


def scorers(cluster: Cluster) -> set[int]:
    return set[int]().union(*cluster.nodes.replicas("Scorer").values())


def test_sessions_and_ingress_follow_the_load(tmp_path: Path) -> None:
    scaled = {
        "session_replicas": 1,
        "max_session_replicas": 3,
        "ingress_replicas": 1,
        "max_ingress_replicas": 2,
        "target_requests": 0.1,
        "downscale_seconds": 5.0,
    }
    with run_under_load(tmp_path, sessions=None, environment=QUICK_REPORTS, serve=scaled) as cluster:
        cluster.await_replicas("MeshSession", 3)
        cluster.await_replicas("Ingress", 2)
        cluster.await_verdicts()
        for sender in cluster.senders:
            sender.pause_seconds = SLOW_PAUSE_SECONDS
        cluster.await_replicas("MeshSession", 1)
        cluster.await_replicas("Ingress", 1)
        for sender in cluster.senders:
            sender.pause_seconds = PAUSE_SECONDS
        cluster.await_verdicts()
        repeated, pushes = count_pushes(cluster)
        print(f"the load rose and fell: {repeated} of {pushes} pushes were repeated")


def test_settings_and_weights_change_under_load(tmp_path: Path) -> None:
    weights = change_weights(tmp_path)
    with run_under_load(tmp_path, scorer={"device": "cpu", "place": "replicas"}) as cluster:
        cluster.weights.append(weights)
        since = time.monotonic()
        cluster.deploy(sessions=2, changed={"limits": {"max_meshes": 50}})  # restarts all, as changed code does
        cluster.await_verdicts()
        report("all replicas were replaced", cluster, since)
        cluster.deploy(sessions=2, changed={"model": {"weights": str(weights)}})
        cluster.await_verdicts()
        report("and all got new weights", cluster, since)
        digest = load(weights).digest
        assert {sender.verdicts[-1]["model"] for sender in cluster.senders} == {digest}


def change_weights(folder: Path) -> Path:
    """Weights that differ a little from the shipped ones, beside a copy of those."""
    path, shipped = folder / "weights" / "changed.safetensors", load()
    path.parent.mkdir()
    with torch.no_grad():
        for parameter in shipped.network.parameters():
            parameter.mul_(1.001)
    save(replace(shipped, digest=""), path)
    assert load(path).digest != load(SHIPPED).digest
    return path


def test_a_second_cluster_takes_over(tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    with run_nodes(folder / "nodes", 1, **variables(folder)) as nodes, run_under_load(tmp_path, workers=1) as first:
        since = time.monotonic()
        nodes.port = first.nodes.port  # new connections reach either cluster, as while a Service moves
        second = replace(first, nodes=nodes)
        second.deploy(sessions=2)
        first.await_verdicts()
        first.nodes.end()  # at once; KubeRay waits a minute before it ends the old cluster
        second.await_verdicts(10)
        report("another cluster took over", second, since)
