"""Random kills on a cluster of three nodes under load: nothing acknowledged is lost or doubled, and memory is flat.

    python -m tests.live.kill_campaign [--kills 200] [--minutes 30] [--seed 0] [--json FILE]

Three Ray nodes run on this machine, the head is one of them. A Redis with an append-only file that is written with each
change holds the meshes, the alerts, and Ray's own state. One client per mesh pushes steadily with the product's own
client: whatever is refused or breaks off is sent again. A collector polls one more mesh, and a webhook gets alerts of
incidents that come and go. At random moments a random victim is killed with SIGKILL: a whole node, Redis, or one
process of Ray or of the service on any node. Nodes and Redis start again after 2 s, as Kubernetes starts pods. The
next node, or process without which a node ends, is killed only when all nodes run again; other kills go on meanwhile.

Asserted: every acknowledged snapshot is stored once, in order, with the verdict that a pipeline without a service
computes, without scores where the service said that no scorer had answered; the collected mesh has no gap and no
double; no alert is missing or comes under two ids; at the end each process runs again, and none is left over; no mesh
is without a verdict for ten minutes; memory of the service does not grow by more than 15%. Reported: the
longest time without a verdict that began with each kill, how many kills there were during it, pushes that clients
repeated, and memory. Without a kill, a mesh gets a verdict a second.
"""

import argparse
import json
import random
import tempfile
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import redis

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED
from model.snapshot import MeshSnapshot
from serve_app.api.codec import unpack_snapshot
from serve_app.cli.console import progress
from serve_app.stores.opening import open_store
from tests.live.loaded_cluster import Cluster, Sender, run_under_load
from tests.live.random_kills import RAYS, REPLICAS, Kill, Killer, is_whole, keep_running, processes
from tests.live.webhook import Webhook
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh
from tests.serve_app.collect.prometheus.standin import start_server, url_of
from tests.serve_app.running import failing, record_simulation
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

PER_SECOND = 1.0  # snapshots of each mesh
LEAST_PAUSE = 0.25  # between two kills, of their mean pause
STUCK_SECONDS = 600.0 * TIME_FACTOR  # without a verdict; further kills may hit what replaces a victim
SAMPLE_SECONDS = 5.0
WINDOW = 40  # snapshots that are kept, after which a mesh needs no more memory
KEEP_DAYS = 0.05  # of the meshes' clocks, on which a snapshot takes 15 s; with more, the archive of incidents grows
COLLECTED, COLLECT_SECONDS = "collected", 2.0
FAULT_EVERY, FAULT_LASTS = 160, 60  # snapshots
GROWTH = 1.15  # of memory, from the second sixth of the time to the last
MAY_GROW = (
    "redis",
    "gcs",
    "raylet",
    "agent",
    "processes",
    "store",
)  # Ray's records of what has ended; settle() counts processes; history and archive are kept for days
SETTLED_SECONDS = 10.0
TWICE = ("ingress", "session", "scorer", "collector")
WANTED = {role: 2 if role in TWICE else 1 for role in REPLICAS if role != "proxy"}  # processes
MIB = 2**20


@dataclass(slots=True)
class Memory:
    """The memory that a cluster uses over time.

    Attributes:
        samples: memory of the largest process of each role without what it shares, of the Redis (``redis``), and of our
            keys in it (``store``), MiB; the number of processes (``processes``).
    """

    samples: list[Mapping[str, float]] = field(default_factory=list)

    def growth(self) -> dict[str, tuple[float, float]]:
        """Medians of the second sixth of the time, and of the last one, by role."""
        sixth = max(1, len(self.samples) // 6)
        early, late = _medians(self.samples[sixth : 2 * sixth]), _medians(self.samples[-sixth:])
        return {role: (early[role], late[role]) for role in sorted(early.keys() & late.keys())}


def _medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Medians by role, of the samples that have it: a killed process is missing for a moment."""
    roles = {role for one in samples for role in one}
    return {role: round(median(one[role] for one in samples if role in one), 1) for role in roles}


@contextmanager
def sample_memory(cluster: Cluster) -> Iterator[Memory]:
    """Measure memory regularly during the block."""
    stop, memory = threading.Event(), Memory()

    def run() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            memory.samples.append(measure_memory(cluster))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield memory
    finally:
        stop.set()
        thread.join()


def measure_memory(cluster: Cluster) -> dict[str, float]:
    """Return one sample; see :class:`Memory`."""
    found = {"processes": float(sum(count_processes(cluster).values()))}
    for role in (*REPLICAS, *RAYS):
        for process in (one for node in cluster.nodes.all for one in processes(node, role)):
            with suppress(psutil.Error):
                found[role] = max(found.get(role, 0.0), process.memory_full_info().uss / MIB)
    with suppress(redis.RedisError), closing(cluster.redis.client()) as client:
        found["redis"] = int(client.info("memory")["used_memory"]) / MIB
        found["store"] = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter("tagae:*")) / MIB
    return found


def count_processes(cluster: Cluster) -> dict[str, int]:
    """Return how many processes of Serve there are, by role."""
    return {role: sum(len(processes(node, role)) for node in cluster.nodes.all) for role in REPLICAS}


def is_served(cluster: Cluster) -> bool:
    """Return whether all processes of Serve run, each once: :data:`WANTED`, and a proxy on the head and on each node
    with a replica. Serve starts no proxy on others, and places replicas on a node that returns only as they start."""
    found = count_processes(cluster)
    hosts = [any(processes(node, role) for role in WANTED) for node in cluster.nodes.workers]
    return found == {**WANTED, "proxy": 1 + sum(hosts)}


def record_faults(spec: MeshSpec, length: int) -> list[MeshSnapshot]:
    """Return a recording of a mesh in which a service fails again and again, and recovers in between."""
    service = failing(spec)
    faults = [
        Fault("error_burst", service, start, start + FAULT_LASTS, 0.9)
        for start in range(FAULT_EVERY // 2, length, FAULT_EVERY)
    ]
    return list(Simulator(spec, faults, snapshots=length).snapshots())


def campaign(cluster: Cluster, kills: int, seconds: float, seed: int) -> list[Kill]:
    """Kill random victims at random moments, and wait until everything runs again."""
    chance, killer, done = random.Random(seed), Killer(cluster, seed), list[Kill]()
    began, pause = time.monotonic(), seconds / kills
    moments = [began + pause * (number + chance.random()) for number in range(kills)]
    for planned in progress(moments, "kills", kills):
        moment = max(planned, done[-1].at + LEAST_PAUSE * pause) if done else planned  # after a delay, no burst
        while (now := time.monotonic()) < moment or (killed := killer.kill()) is None:
            time.sleep(min(0.5, max(0.05, moment - now)))
            require_verdicts(cluster)
        done.append(killed)
        line = {"kill": len(done), "role": killed.role, "node": killed.node, "after": round(now - began)}
        print(json.dumps(line), flush=True)
    settle(cluster)
    return done


def settle(cluster: Cluster) -> None:
    """Wait until all nodes, Redis, and each process of Serve run once, and stay so."""
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal since
        if not is_whole(cluster) or not is_served(cluster):
            since = time.monotonic()
        return time.monotonic() - since > SETTLED_SECONDS

    await_that(is_settled, f"all nodes, the Redis, {WANTED}, and their proxies", 4 * PATIENCE_SECONDS)
    cluster.await_verdicts()


def require_verdicts(cluster: Cluster) -> None:
    """Check that each mesh got a verdict recently."""
    for sender in cluster.senders:
        silent = time.monotonic() - sender.answered[-1]
        if silent > STUCK_SECONDS:
            raise AssertionError(
                f"{sender.mesh}: no verdict for {silent:.0f} s; all nodes run: {is_whole(cluster)}; processes: "
                f"{count_processes(cluster)}; repeated: {sender.repeated[-3:]}"
            )


class Gap(NamedTuple):
    """A time without a verdict of a mesh, s, and how many kills there were during it."""

    seconds: float
    kills: int


def longest_gaps(kills: Sequence[Kill], senders: Sequence[Sender]) -> list[Gap]:
    """Return the longest time without a verdict of any mesh that each kill began.

    A time without a verdict belongs to the first kill during it, from that kill on. If there was none, it belongs to
    the newest kill before it.
    """
    moments = [kill.at for kill in kills]
    longest = [Gap(0.0, 1)] * len(kills)
    for sender in senders:
        for before, later in pairwise(sender.answered):
            first, after = bisect_left(moments, before), bisect_right(moments, later)
            cause = first if first < after else first - 1
            if cause >= 0:
                gap = Gap(later - max(before, moments[cause]), max(1, after - first))
                longest[cause] = max(longest[cause], gap)
    return longest


@dataclass(slots=True)
class CollectedMesh:
    """A mesh that a Prometheus scrapes, and what the store has of it.

    Attributes:
        recording: one snapshot per interval, again from the start at its end.
        first: sequence and Unix time of an early snapshot.
    """

    recording: Sequence[MeshSnapshot]
    first: tuple[int, float] = (0, 0.0)

    def at(self, instant: float) -> MeshSnapshot:
        return self.recording[int(instant / COLLECT_SECONDS) % len(self.recording)]

    def mark(self, cluster: Cluster) -> None:
        """Wait for a snapshot, and note it."""
        await_that(lambda: bool(read_snapshots(cluster)), "a snapshot of the collector", 4 * PATIENCE_SECONDS)
        self.first = read_snapshots(cluster)[-1]

    def check(self, cluster: Cluster) -> int:
        """Check that each interval since :meth:`mark` has one snapshot. Returns how many there were."""
        goal = read_snapshots(cluster)[-1][0] + 5
        await_that(
            lambda: read_snapshots(cluster)[-1][0] >= goal, "further snapshots of the collector", 4 * PATIENCE_SECONDS
        )
        rows = [self.first, *read_snapshots(cluster)]
        for sequence, observed_at in rows:
            since = (observed_at - self.first[1]) / COLLECT_SECONDS
            assert sequence - self.first[0] == since, f"a gap or a double: {rows}"
        return rows[-1][0] - self.first[0]


def read_snapshots(cluster: Cluster) -> list[tuple[int, float]]:
    """Return sequence and Unix time of the kept snapshots of the collected mesh."""
    with closing(open_store(cluster.settings.store)) as store:
        return [(number, unpack_snapshot(packed).observed_at.timestamp()) for number, packed in store.window(COLLECTED)]


def await_alerts(webhook: Webhook, senders: Sequence[Sender]) -> int:
    """Wait until each incident of the verdicts was reported, and its end. Returns how many there were."""
    incidents = {
        (sender.mesh, incident["id"])
        for sender in senders
        for verdict in sender.verdicts
        for incident in verdict["incidents"]
        if incident["severity"] != "notice"  # which raises no alert
    }
    newest = {(sender.mesh, incident["id"]) for sender in senders for incident in sender.verdicts[-1]["incidents"]}
    await_that(
        lambda: incidents <= set(webhook.starts()) and incidents - newest <= set(webhook.ends()),
        "the start and the end of each incident",
        4 * PATIENCE_SECONDS,
    )
    return len(incidents)


def run_campaign(folder: Path, kills: int, seconds: float, seed: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the cluster, kill, and check. Returns a row for each kill, and the figures of all."""
    length = WINDOW + 400 + int(1.5 * PER_SECOND * seconds)
    collected = CollectedMesh(record_simulation(MeshSpec(services=30, seed=8), 600))
    webhook = Webhook()
    with start_server(IstioMesh(collected.at)) as prometheus, start_server(webhook) as receiver:
        chosen: dict[str, Any] = {
            "model": {"weights": str(SHIPPED), "window_size": WINDOW},
            "scorer": {"device": "cpu", "place": "replicas", "num_replicas": WANTED["scorer"]},
            "archive": {"keep_days": KEEP_DAYS},
            "notify": {"receivers": [{"kind": "webhook", "options": {"url": url_of(receiver)}}]},
            "meshes": {COLLECTED: {"prometheus": url_of(prometheus)}},
            "collector": {
                "replicas": WANTED["collector"],
                "interval_seconds": COLLECT_SECONDS,
                "behind_seconds": COLLECT_SECONDS,
                "catch_up_snapshots": 600,
                "replay_hours": 0,
            },
        }
        with run_under_load(
            folder,
            keeps_ray=True,
            length=length,
            patience_seconds=2 * STUCK_SECONDS,  # the campaign ends before a client does
            record=record_faults,
            **chosen,
        ) as cluster:
            set_pause(cluster, 0.0)
            cluster.await_verdicts(WINDOW)
            set_pause(cluster, 1 / PER_SECOND)
            collected.mark(cluster)
            began = time.monotonic()
            with keep_running(cluster) as failures, sample_memory(cluster) as memory:
                done = campaign(cluster, kills, seconds, seed)
                took = time.monotonic() - began
                polled = collected.check(cluster)
                incidents = await_alerts(webhook, cluster.senders)
        # run_under_load has checked all answers and the store by now.
        webhook.check()
    longest = longest_gaps(done, cluster.senders)
    rows = [
        {"role": kill.role, "node": kill.node, "gap_seconds": round(gap.seconds, 2), "kills_in_gap": gap.kills}
        for kill, gap in zip(done, longest, strict=True)
    ]
    verdicts = [verdict for sender in cluster.senders for verdict in sender.verdicts]
    return rows, {
        "benchmark": "kills_cluster",
        "seed": seed,
        "kills": len(done),
        "minutes": round(took / 60, 1),
        "meshes": len(cluster.senders),
        "verdicts": len(verdicts),
        "unscored": sum(not verdict["coverage"] for verdict in verdicts),
        "repeated": sum(len(sender.repeated) for sender in cluster.senders),
        "collected": polled,
        "incidents": incidents,
        "events": len(webhook.events),
        "events_again": webhook.repeats,
        "failed_starts": len(failures),
        "memory": memory.growth(),
    }


def set_pause(cluster: Cluster, seconds: float) -> None:
    """Set the time between two snapshots of each mesh."""
    for sender in cluster.senders:
        sender.pause_seconds = seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        rows, figures = run_campaign(Path(name), chosen.kills, 60 * chosen.minutes, chosen.seed)
    print(json.dumps(figures, indent=1))
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(line) + "\n" for line in [*rows, figures]), encoding="utf-8")
    grown = {
        name: pair for name, pair in figures["memory"].items() if pair[1] > GROWTH * pair[0] and name not in MAY_GROW
    }
    assert not grown, f"more than {GROWTH} times as much at the end: {grown}"


if __name__ == "__main__":
    main()
