"""The service on several Ray nodes that share a Redis: nodes are lost and added under load."""

from pathlib import Path

from tests.live.loaded_cluster import CLIENT_SECONDS, run_under_load
from tests.live.redis import ON_RAY_NODES
from tests.live.webhook import Webhook
from tests.serve_app.collect.prometheus.standin import start_server, url_of
from tests.serve_app.test_kills import await_that

pytestmark = ON_RAY_NODES


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
