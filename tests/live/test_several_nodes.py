"""The service on several Ray nodes that share a Redis: nodes are lost and added under load."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.live.loaded_cluster import CLIENT_SECONDS, Sender, run_under_load
from tests.live.programs import missing_programs
from tests.live.redis import PROGRAM
from tests.serve_app.collect.prometheus.standin import Request, start_server, url_of
from tests.serve_app.test_kills import await_that

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs(PROGRAM)), reason=f"not here: {'; '.join(missing_programs(PROGRAM))}"),
]


@dataclass
class Webhook:
    """A receiver that stores the events that it receives. An event may come again, under the same id."""

    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, request: Request) -> None:
        event = json.loads(request.body)
        self.events[event["id"]] = event
        request.send(200, b"{}")

    def starts(self) -> list[tuple[str, str]]:
        """Mesh and id of each incident that opened, once for each event."""
        return [
            (event["mesh"], event["incident"]["id"])
            for event in list(self.events.values())
            if event["event"] == "opened"
        ]

    def knows(self, senders: Sequence[Sender]) -> bool:
        """Whether it got the start of each incident that is open by the newest verdicts."""
        now_open = {
            (sender.mesh, incident["id"]) for sender in senders for incident in sender.verdicts[-1]["incidents"]
        }
        return bool(now_open) and now_open <= set(self.starts())


def test_a_lost_node_loses_and_repeats_no_snapshot(tmp_path: Path) -> None:
    with run_under_load(tmp_path) as cluster:
        cluster.lose(cluster.nodes.workers[0])


def test_nodes_and_sessions_come_and_go_under_load(tmp_path: Path) -> None:
    with run_under_load(tmp_path) as cluster:
        cluster.nodes.add()
        for sessions in (3, 1):
            cluster.deploy(sessions=sessions)
            cluster.await_replicas("MeshSession", sessions)
            cluster.await_verdicts()


def test_a_notifier_that_is_lost_continues_on_another_node(tmp_path: Path) -> None:
    webhook = Webhook()
    with (
        start_server(webhook) as server,
        run_under_load(tmp_path, notify={"webhooks": [{"url": url_of(server)}]}) as cluster,
    ):
        await_that(lambda: webhook.knows(cluster.senders), "the start of each open incident", 4 * CLIENT_SECONDS)
        before = cluster.nodes.replicas("Notifier")
        (node,) = [one for one in cluster.nodes.workers if before[one.pid]]
        cluster.lose(node)
        cluster.await_replicas("Notifier", 1)
        cluster.await_verdicts(20)
        await_that(lambda: webhook.knows(cluster.senders), "the start of each open incident", 4 * CLIENT_SECONDS)
    assert not (tmp_path / "state").exists(), "no node has a file of its own"
    opened = webhook.starts()
    assert len(set(opened)) == len(opened), "no incident opened twice"
    numbers: dict[tuple[str, str], list[int]] = {}
    for event in webhook.events.values():
        numbers.setdefault((event["mesh"], event["incident"]["id"]), []).append(event["sequence"])
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in numbers.values()), "no event is lost"
