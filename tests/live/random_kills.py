"""Kills random processes and nodes of a cluster, and starts nodes and the Redis again, as Kubernetes does."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from tests.live.loaded_cluster import Cluster
from tests.live.programs import NotReady, Program

DOWN_SECONDS = 2.0  # before a node or the Redis starts again
CHECK_SECONDS = 0.2
HEAD, WORKER, REDIS = "head node", "worker node", "redis"
REPLICAS = {  # text in the command line or title of a process
    "proxy": "ray::ProxyActor",
    "ingress": "ray::ServeReplica:tagae:Ingress",
    "session": "ray::ServeReplica:tagae:MeshSession",
    "scorer": "ray::ServeReplica:tagae:Scorer",
    "meta": "ray::ServeReplica:tagae:MetaModel",
    "controller": "ray::ServeController",
    "collector": "ray::ServeReplica:tagae:Collector",
    "notifier": "ray::ServeReplica:tagae:Notifier",
}
# Without one of these a node ends, and the head does not live without the Redis, where its state is.
RAYS = {"agent": "ray::DashboardAgent", "raylet": "/raylet/raylet ", "gcs": "/gcs_server "}
ENDS_A_NODE = (HEAD, WORKER, REDIS, *RAYS)
BAG = (*REPLICAS, *REPLICAS, *ENDS_A_NODE)  # what is drawn before anything comes again: replicas twice


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill.

    Attributes:
        role: of the victim.
        node: position of its node, the head is 0; None: the Redis.
        at: s of the monotonic clock.
    """

    role: str
    node: int | None
    at: float


class Killer:
    """Kills random victims, each role as often as :data:`BAG` has it.

    A whole node, or a process without which a node ends, is killed only while all nodes and the Redis run. Other
    processes are killed at any time.

    Args:
        cluster: its victims.
        seed: of the choices.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._chance = cluster, random.Random(seed)
        self._bag: list[str] = []
        self._ending: Program | None = None  # a node that ends because one of its processes was killed

    def kill(self) -> Kill | None:
        """Kill one victim. None: nothing that may be killed runs now."""
        self._bag = self._bag or self._chance.sample(BAG, len(BAG))
        for role in self._bag:
            if (killed := self._kill(role)) is not None:
                self._bag.remove(role)
                return killed
        return None

    def _kill(self, role: str) -> Kill | None:
        cluster, nodes = self._cluster, self._cluster.nodes.all
        if role in ENDS_A_NODE and (self._ending in nodes or not is_whole(cluster)):
            return None
        if role == REDIS:
            cluster.redis.kill()
            return Kill(role, None, time.monotonic())
        if role in (HEAD, WORKER):
            position = 0 if role == HEAD else self._chance.randrange(1, len(nodes))
            cluster.nodes.crash(nodes[position])
            return Kill(role, position, time.monotonic())
        there = [(position, one) for position, node in enumerate(nodes) for one in processes(node, role)]
        if not there:
            return None
        position, victim = self._chance.choice(there)
        if role in RAYS:
            self._ending = nodes[position]
        with suppress(psutil.NoSuchProcess):
            victim.kill()
        return Kill(role, position, time.monotonic())


def is_whole(cluster: Cluster) -> bool:
    """Return whether all nodes and the Redis run."""
    return cluster.redis.running and all(node.running for node in cluster.nodes.all)


def processes(node: Program, role: str) -> list[psutil.Process]:
    found = []
    text = (REPLICAS | RAYS)[role]
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(node.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if text in " ".join(process.cmdline()) + " ":
                    found.append(process)
    return found


@contextmanager
def keep_running(cluster: Cluster) -> Iterator[Sequence[str]]:
    """Start nodes and the Redis again whenever they end, during the block. Yields why starts failed."""
    stop, failures = threading.Event(), list[str]()

    def keep_redis() -> None:
        while not stop.wait(CHECK_SECONDS):
            if not cluster.redis.running:
                stop.wait(DOWN_SECONDS)
                cluster.redis.start()

    def keep_node(position: int) -> None:
        while not stop.wait(CHECK_SECONDS):
            node = cluster.nodes.all[position]
            if not node.running:
                stop.wait(DOWN_SECONDS)
                try:
                    cluster.nodes.restart(node)
                except NotReady as error:  # its head or the Redis was killed meanwhile
                    failures.append(f"node {position}: {error}")

    # A thread each: a worker waits for its head, which may have to start, too.
    keepers = [threading.Thread(target=keep_redis)]
    keepers += [threading.Thread(target=keep_node, args=[position]) for position in range(len(cluster.nodes.all))]
    for keeper in keepers:
        keeper.start()
    try:
        yield failures
    finally:
        stop.set()
        for keeper in keepers:
            keeper.join()
