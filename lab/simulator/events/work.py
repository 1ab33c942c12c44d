"""Work beside a service's requests: scheduled jobs, a backup, a process that takes the CPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.simulator.mesh.topology import Topology
from lab.simulator.physics.propagation import Conditions


@dataclass(frozen=True, slots=True)
class Work:
    """Work that uses a service's CPU, once or on a schedule.

    Attributes:
        service: node id.
        start: first snapshot.
        ticks: length of a run, in snapshots.
        every: snapshots between the starts of two runs; 0: it runs once.
        cpu: the service's CPU use that it reaches, 0 to 1 of the limit.
        wait: each request's mean wait meanwhile, s; 0: requests have precedence.
        caller: node id of a caller that sends more requests meanwhile; empty: none.
        calls: factor on the caller's requests.
    """

    service: str
    start: int
    ticks: int
    every: int = 0
    cpu: float = 0.0
    wait: float = 0.0
    caller: str = ""
    calls: float = 1.0

    def __post_init__(self) -> None:
        if self.ticks < 1 or (self.every and self.every <= self.ticks):
            raise ValueError(f"every: expected 0 or more than the {self.ticks} snapshots of a run, got {self.every}")
        if not 0 <= self.cpu <= 1:
            raise ValueError(f"cpu: expected 0 to 1, got {self.cpu}")
        if self.wait < 0 or self.calls <= 0:
            raise ValueError(f"expected a wait of 0 or more and a factor above 0, got {self.wait} and {self.calls}")

    def runs(self, index: int) -> bool:
        age = index - self.start
        return 0 <= (age % self.every if self.every and age >= 0 else age) < self.ticks


def calls_between(topology: Topology, position: Mapping[str, int], caller: str, service: str) -> int:
    """Return the position of the call from one service to another.

    Raises:
        ValueError: there is none.
    """
    source, destination = topology.source, topology.destination
    rows = np.flatnonzero((source == position.get(caller, -1)) & (destination == position[service]))
    if not len(rows):
        raise ValueError(f"caller: expected a service that calls {service!r}, got {caller!r}")
    return int(rows[0])


def do_work(
    topology: Topology, work: Sequence[Work], index: int, position: Mapping[str, int], now: Conditions
) -> Conditions:
    for task in (task for task in work if task.runs(index)):
        at = position[task.service]
        cpu, wait = now.other_cpu.copy(), now.starved.copy()
        cpu[at] = max(cpu[at], task.cpu)
        wait[at] += task.wait
        now = replace(now, other_cpu=cpu, starved=wait)
        if task.caller:
            calls = now.calls_per_request.copy()
            calls[calls_between(topology, position, task.caller, task.service)] *= task.calls
            now = replace(now, calls_per_request=calls)
    return now
