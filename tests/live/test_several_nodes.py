"""The service on several Ray nodes that share a Redis: nodes are lost and added under load.

Clients push with the product's own client, each snapshot with one call. Whatever it repeats, every snapshot that was
acknowledged is stored once, in order, and has the pipeline's verdict.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.settings import Settings
from serve_app.simulator.mesh.topology import MeshSpec
from serve_app.stores.opening import open_store
from serve_app.stores.record import Record
from tests.live.programs import Program, missing_programs
from tests.live.ray_nodes import Nodes, run_nodes
from tests.live.redis import PROGRAM, RedisProgram
from tests.serve_app.collect.prometheus.standin import Request, start_server, url_of
from tests.serve_app.running import Service, assert_same, expected, record_simulation
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs(PROGRAM)), reason=f"not here: {'; '.join(missing_programs(PROGRAM))}"),
]
SEEDS = (3, 4, 5, 6)  # one mesh each
LENGTH = 1500  # snapshots that a mesh has at most
PAUSE_SECONDS = 0.1  # between two snapshots of a mesh, so that a recording outlasts the test
CLIENT_SECONDS = 60.0 * TIME_FACTOR  # patience of the client's default


@dataclass(slots=True)
class Sender:
    """A client that sends the snapshots of one mesh in order, each with one call, and stores the verdicts."""

    mesh: str
    snapshots: Sequence[MeshSnapshot]
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    run: Future[None] = field(default_factory=Future)

    def send(self, url: str, stop: threading.Event, token: str | None = None) -> None:
        """Send until stopped. An error of the client ends it."""
        with Client(url, patience_seconds=CLIENT_SECONDS, on_retry=self.repeated.append, token=token) as client:
            for snapshot in self.snapshots:
                self.verdicts.append(client.push(self.mesh, snapshot).model_dump(mode="json"))
                if stop.wait(PAUSE_SECONDS):
                    return


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running service on several nodes, under load."""

    nodes: Nodes
    settings: Settings
    senders: Sequence[Sender]

    def deploy(self, sessions: int) -> None:
        """Deploy with so many replicas of the session, and wait until they run."""
        chosen = self.settings
        arguments = {
            "store": {"kind": "redis", "url": chosen.store.url},
            "scorer": {"device": "cpu", "place": chosen.scorer.place},
            "adapt": {"enabled": chosen.adapt.enabled},
            "notify": {"webhooks": [{"url": one.url} for one in chosen.notify.webhooks]},
        }
        self.nodes.deploy(arguments, {"MeshSession": sessions})

    def await_verdicts(self, more: int = 5) -> None:
        """Wait until each mesh has so many more verdicts."""
        wanted = [len(sender.verdicts) + more for sender in self.senders]
        await_that(
            lambda: (
                any(sender.run.done() for sender in self.senders)
                or all(len(s.verdicts) >= least for s, least in zip(self.senders, wanted, strict=True))
            ),
            f"{more} more verdicts of each mesh",
            4 * CLIENT_SECONDS,
        )
        for sender in self.senders:
            if sender.run.done():
                sender.run.result()  # raises the error of the client
                pytest.fail(f"{sender.mesh}: its recording ended after {len(sender.verdicts)} snapshots")

    def await_replicas(self, deployment: str, count: int) -> None:
        """Wait until a deployment has so many processes."""
        await_that(
            lambda: sum(map(len, self.nodes.replicas(deployment).values())) == count,
            f"{count} replicas of {deployment}",
            4 * PATIENCE_SECONDS,
        )

    def lose(self, node: Program) -> None:
        """Kill a node that holds sessions, and wait until each mesh continues and the sessions are replaced."""
        sessions = self.nodes.replicas("MeshSession")
        assert sessions[node.pid], "it holds a session"
        self.nodes.kill(node)
        self.await_verdicts()
        self.await_replicas("MeshSession", sum(map(len, sessions.values())))
        self.await_verdicts()


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


@contextmanager
def run_under_load(folder: Path, place: str, webhook: str = "") -> Iterator[Cluster]:
    """Run two nodes with a session each, and a head; at the end, check what the service answered and stored.

    Args:
        folder: for logs and the data of the Redis.
        place: where snapshots are scored.
        webhook: URL that receives incidents; empty: none.
    """
    redis = RedisProgram(folder / "redis")
    settings = Settings(
        model={"weights": SHIPPED},
        store={"kind": "redis", "url": redis.url},
        scorer={"device": "cpu", "place": place},
        adapt={"enabled": False},  # the expected verdicts have no adapter
        notify={"webhooks": [{"url": webhook}] if webhook else []},
    )
    senders = [
        Sender(f"mesh-{seed}", record_simulation(MeshSpec(services=30, seed=seed), LENGTH, fault_from=30))
        for seed in SEEDS
    ]
    stop = threading.Event()
    try:
        environment = {"TAGAE_SERVE__ALLOW_ANONYMOUS": "true", "XDG_STATE_HOME": str(folder / "state")}
        with run_nodes(folder / "nodes", 2, **environment) as nodes:
            cluster = Cluster(nodes, settings, senders)
            cluster.deploy(sessions=2)
            with ThreadPoolExecutor(len(senders)) as pool:
                try:
                    for sender in senders:
                        sender.run = pool.submit(sender.send, nodes.url, stop)
                    cluster.await_verdicts(12)  # one more than a mesh needs to learn
                    yield cluster
                finally:
                    stop.set()
            for sender in senders:
                sender.run.result()
            with httpx.Client(base_url=nodes.url, timeout=PATIENCE_SECONDS) as http:
                check_answers(Service(nodes.url, settings, http), senders)
        check_store(settings, senders)
    finally:
        redis.end()


def check_answers(service: Service, senders: Sequence[Sender]) -> None:
    """Check that the sequences of the answers have no gap and no double, and that they equal the pipeline's."""
    listed = {row["mesh"]: row["sequence"] for row in service.http.get("/v1/meshes").json()}
    assert listed == {sender.mesh: len(sender.verdicts) for sender in senders}
    for sender in senders:
        sent = sender.snapshots[: len(sender.verdicts)]
        assert [verdict["sequence"] for verdict in sender.verdicts] == list(range(1, len(sent) + 1))
        for came, wanted in zip(sender.verdicts, expected(service, sent), strict=True):
            assert_same(came, wanted, sender.mesh)


def check_store(settings: Settings, senders: Sequence[Sender]) -> None:
    """Check that the Redis has each snapshot of the window once, with the verdict that was acknowledged."""
    with closing(open_store(settings.store)) as store:
        for sender in senders:
            stored = store.load(sender.mesh)
            assert stored is not None
            last, keep = len(sender.verdicts), settings.model.window_size
            assert stored.sequence == last
            assert [number for number, _ in store.window(sender.mesh)] == list(range(max(1, last - keep + 1), last + 1))
            records = [Record.unpack(row) for row in store.verdicts(sender.mesh, None, last)]
            for record, came in zip(records, sender.verdicts[-keep:], strict=True):
                assert_same(json.loads(record.document), came, sender.mesh)


def test_a_lost_node_loses_and_repeats_no_snapshot(tmp_path: Path) -> None:
    with run_under_load(tmp_path, place="session") as cluster:
        cluster.lose(cluster.nodes.workers[0])


def test_nodes_and_sessions_come_and_go_under_load(tmp_path: Path) -> None:
    with run_under_load(tmp_path, place="session") as cluster:
        cluster.nodes.add()
        for sessions in (3, 1):
            cluster.deploy(sessions)
            cluster.await_replicas("MeshSession", sessions)
            cluster.await_verdicts()


def test_a_notifier_that_is_lost_continues_on_another_node(tmp_path: Path) -> None:
    webhook = Webhook()
    with start_server(webhook) as server, run_under_load(tmp_path, place="session", webhook=url_of(server)) as cluster:
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
