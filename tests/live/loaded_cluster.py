"""The service on several Ray nodes with a Redis, while clients push; and a check of all that it answered and stored.

Clients use the product's own client, each snapshot with one call. Whatever the client repeats, every snapshot that was
acknowledged must be stored once, in order, with the pipeline's verdict.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import SHIPPED, load
from model.scoring.score import PartitionScore
from model.snapshot import MeshSnapshot
from serve_app.api.client import Client
from serve_app.api.codec import encode_verdict
from serve_app.pipeline import LocalRunner, Mesh, PreparedSnapshot, options, run_now, run_stages
from serve_app.settings import Settings
from serve_app.stores.opening import open_store
from serve_app.stores.scored_snapshot import StoredVerdict
from tests.live.programs import Program
from tests.live.ray_nodes import Nodes, run_nodes
from tests.live.redis import RedisProgram
from tests.serve_app.running import assert_same, record_simulation
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

SEEDS = (3, 4, 5, 6)  # one mesh each
LENGTH = 1500  # snapshots that a mesh has at most
PAUSE_SECONDS = 0.1  # between two snapshots of a mesh, so that a recording outlasts the test
CLIENT_SECONDS = 60.0 * TIME_FACTOR  # patience of the client's default
WARM_UP = 12  # one snapshot more than a mesh needs to learn


@dataclass(slots=True)
class Sender:
    """A client that sends the snapshots of one mesh in order, each with one call, and stores the verdicts.

    Attributes:
        answered: when each verdict came, s of the monotonic clock.
        repeated: what the client said of each snapshot that it had to send again.
        pause_seconds: between two snapshots; may be changed at any time.
        patience_seconds: of the client for one snapshot.
    """

    mesh: str
    snapshots: Sequence[MeshSnapshot]
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    pause_seconds: float = PAUSE_SECONDS
    patience_seconds: float = CLIENT_SECONDS
    run: Future[None] = field(default_factory=Future)

    def send(self, url: str, stop: threading.Event) -> None:
        """Send until stopped. An error of the client ends it."""
        with Client(url, patience_seconds=self.patience_seconds, on_retry=self.repeated.append) as client:
            for snapshot in self.snapshots:
                self.verdicts.append(client.push(self.mesh, snapshot).model_dump(mode="json"))
                self.answered.append(time.monotonic())
                if stop.wait(self.pause_seconds):
                    return

    def longest_wait(self, since: float) -> float:
        """The longest time without a verdict that ended after a moment of the monotonic clock, s."""
        return max(
            (later - max(before, since) for before, later in pairwise(self.answered) if later > since), default=0
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running service on several nodes, under load.

    Attributes:
        redis: its store. If Ray survives the loss of its head, Ray's state is there too.
        weights: all that it has had.
    """

    nodes: Nodes
    settings: Settings
    senders: Sequence[Sender]
    redis: RedisProgram
    weights: list[Path] = field(default_factory=lambda: [SHIPPED])

    def deploy(self, *, sessions: int | None = None, changed: Mapping[str, Any] | None = None) -> None:
        """Deploy, and wait until all replicas run.

        Args:
            sessions: their number; None: as the settings say.
            changed: groups of settings that differ from :attr:`settings`.
        """
        arguments = {**self.settings.model_dump(mode="json", exclude_unset=True), **(changed or {})}
        self.nodes.deploy(arguments, {} if sessions is None else {"MeshSession": sessions})

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
        await_that(lambda: self.count(deployment) == count, f"{count} replicas of {deployment}", 4 * PATIENCE_SECONDS)

    def count(self, deployment: str) -> int:
        """How many processes a deployment has."""
        return sum(map(len, self.nodes.replicas(deployment).values()))

    def lose(self, node: Program, deployment: str = "MeshSession") -> None:
        """Kill a node that holds replicas of a deployment, and wait until each mesh continues and they are replaced."""
        replicas = self.nodes.replicas(deployment)
        assert replicas[node.pid], f"it holds a replica of {deployment}"
        self.nodes.kill(node)
        self.await_verdicts()
        self.await_replicas(deployment, sum(map(len, replicas.values())))
        self.await_verdicts()


def record_failure(spec: MeshSpec, length: int) -> list[MeshSnapshot]:
    """Return a recording of a mesh in which a service fails soon, and until the end."""
    return record_simulation(spec, length, fault_from=30)


@contextmanager
def run_under_load(
    folder: Path,
    *,
    workers: int = 2,
    sessions: int | None = 2,
    keeps_ray: bool = False,
    length: int = LENGTH,
    seeds: Sequence[int] = SEEDS,
    patience_seconds: float = CLIENT_SECONDS,
    record: Callable[[MeshSpec, int], list[MeshSnapshot]] = record_failure,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Cluster]:
    """Run a head and some nodes, and push to several meshes; at the end, check what the service answered and stored.

    Args:
        folder: for logs and the data of the Redis.
        workers: nodes beside the head.
        sessions: number of sessions; None: as the settings say.
        keeps_ray: whether Ray has its own state in the Redis too, so that the head can be lost.
        length: snapshots that a mesh has at most.
        seeds: of the meshes.
        patience_seconds: of a client for one snapshot.
        record: returns the recording of a mesh of this length.
        environment: further variables of all processes.
        settings: groups of settings. The weights are the shipped ones.
    """
    redis = RedisProgram(folder / "redis")
    chosen = {
        "model": {"weights": str(SHIPPED)},
        "store": {"kind": "redis", "url": redis.url},
        "scorer": {"device": "cpu", "place": "session"},
        **settings,
    }
    senders = [
        Sender(f"mesh-{seed}", record(MeshSpec(services=30, seed=seed), length), patience_seconds=patience_seconds)
        for seed in seeds
    ]
    try:
        with run_nodes(
            folder / "nodes", workers, **variables(folder, redis if keeps_ray else None), **(environment or {})
        ) as nodes:
            cluster = Cluster(nodes, Settings(**chosen), senders, redis)
            cluster.deploy(sessions=sessions)
            with keep_sending(senders, nodes.url):
                cluster.await_verdicts(WARM_UP)
                yield cluster
            check(cluster)
    finally:
        redis.end()


def variables(folder: Path, ray_redis: RedisProgram | None = None) -> dict[str, str]:
    """Variables of all processes of a cluster; ``ray_redis`` keeps the state of Ray."""
    chosen = {"TAGAE_SERVE__ALLOW_ANONYMOUS": "true", "XDG_STATE_HOME": str(folder / "state")}
    if ray_redis is not None:
        chosen |= {
            "RAY_REDIS_ADDRESS": ray_redis.url.removeprefix("redis://").removesuffix("/0"),
            "RAY_external_storage_namespace": folder.name,
        }
    return chosen


@contextmanager
def keep_sending(senders: Sequence[Sender], url: str) -> Iterator[None]:
    """Have each sender push during the block."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(senders)) as pool:
        try:
            for sender in senders:
                sender.run = pool.submit(sender.send, url, stop)
            yield
        finally:
            stop.set()
    for sender in senders:
        sender.run.result()


def check(cluster: Cluster) -> None:
    """Check that the answers have no gap and no double and equal the pipeline's, and that the store has them."""
    with Client(cluster.nodes.url, patience_seconds=CLIENT_SECONDS) as client:
        listed = {row.mesh: row.sequence for row in client.meshes() if row.mesh not in cluster.settings.collected}
    assert listed == {sender.mesh: len(sender.verdicts) for sender in cluster.senders}
    for sender in cluster.senders:
        sent = sender.snapshots[: len(sender.verdicts)]
        assert [verdict["sequence"] for verdict in sender.verdicts] == list(range(1, len(sent) + 1)), sender.mesh
        for came, wanted in zip(sender.verdicts, expected(cluster, sender), strict=True):
            assert_same(came, wanted, sender.mesh)
    check_store(cluster.settings, cluster.senders)


class NoScorer(LocalRunner):
    """Runs the stages of a snapshot without scores, as a session does if no scorer answers in time."""

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        return []


def expected(cluster: Cluster, sender: Sender) -> list[dict[str, Any]]:
    """The pipeline's verdicts, each with the weights that the service named in its own, and without scores where the
    service said that it had none."""
    checkpoints = {one.digest: one for one in map(load, cluster.weights)}
    chosen, mesh, verdicts = options(cluster.settings), Mesh(), []
    for came, snapshot in zip(sender.verdicts, sender.snapshots, strict=False):
        runs = LocalRunner if came["coverage"] else NoScorer
        advanced = run_now(run_stages(runs(checkpoints[came["model"]]), mesh, snapshot, chosen))
        mesh = advanced.mesh
        verdicts.append(json.loads(encode_verdict(advanced.verdict).model_dump_json()))
    return verdicts


def check_store(settings: Settings, senders: Sequence[Sender]) -> None:
    """Check that the Redis has each snapshot of the window once, with the verdict that was acknowledged."""
    with closing(open_store(settings.store)) as store:
        for sender in senders:
            stored = store.load(sender.mesh)
            assert stored is not None
            last, keep = len(sender.verdicts), settings.model.window_size
            assert stored.sequence == last
            assert [number for number, _ in store.window(sender.mesh)] == list(range(max(1, last - keep + 1), last + 1))
            records = [StoredVerdict.unpack(row) for row in store.verdicts(sender.mesh, None, last)]
            for record, got in zip(records, sender.verdicts[-keep:], strict=True):
                assert_same(json.loads(record.document), got, sender.mesh)
