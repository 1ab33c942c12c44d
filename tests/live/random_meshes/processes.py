"""The processes that measure a random mesh, and the series in which they report.

What differs between real meshes, and must not change what is read, is drawn at random: how many pods measure a call,
when each is scraped, how it spells the bounds of its buckets, and when its counters start again.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, get_args

from tests.live.random_meshes.world import Traffic, total

Labels = Mapping[str, str]
BOUNDS_MS = (0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
SPELLINGS: tuple[Callable[[float], str], ...] = (
    lambda bound: f"{bound:g}",
    lambda bound: f"{bound:.1f}" if bound >= 1 or bound == 0.5 else f"{bound:.4f}",
    lambda bound: f"{bound:.6f}",
    lambda bound: f"{bound:e}",
)


@dataclass(frozen=True, slots=True)
class Counter:
    """A series that grows at a constant rate, starts again at some reads, and may exist for some reads only.

    Attributes:
        name: with labels.
        offset: from the beginning of an interval, s.
        later: rate from the read ``changes`` on.
    """

    name: str
    rate: float
    offset: float
    resets: frozenset[int] = frozenset()
    lives: range = range(10**6)
    missed: range = range(0)
    later: float = 0.0
    changes: int = 10**6

    def samples(self, begin: float, reads: int, step: float) -> Iterator[tuple[float, float]]:
        """Yield times, Unix s, and values."""
        value = 1000.0 + self.rate * self.offset
        for read in range(reads):
            grown = (self.rate if read < self.changes else self.later) * step
            is_new = read == self.lives.start > 0
            # Where a counter starts again at its last value, no store can see it.
            value = grown if is_new or (read in self.resets and value > grown) else value + grown
            if read in self.lives and read not in self.missed:
                yield begin + self.offset + read * step, value

    def split(self, parts: int) -> "Iterator[Counter]":
        """Yield series that add up to this one, as for many paths or hosts."""
        for part in range(parts):
            name = f'{self.name.removesuffix("}")},path="/{part}"}}'
            yield replace(self, name=name, rate=self.rate / parts, later=self.later / parts)


@dataclass(slots=True)
class Process:
    """One process that measures: when it is scraped, how it spells, when it started again, its labels."""

    rng: Random
    step: float
    reads: int
    labels: Labels
    lives: range = range(10**6)
    missed: range = range(0)
    offset: float = field(init=False)
    spell: Callable[[float], str] = field(init=False)
    resets: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offset = self.rng.uniform(0, 0.9) * self.step
        self.spell = self.rng.choice(SPELLINGS)
        self.resets = frozenset({self.rng.randrange(self.reads)} if self.rng.random() < 0.3 else ())

    @property
    def pod(self) -> str:
        return self.labels["pod"]

    def counter(self, metric: str, labels: Labels, rate: float) -> Counter:
        """A counter of this process; ``labels`` replace the labels of the scrape."""
        text = ",".join(f'{key}="{value}"' for key, value in {**self.labels, **labels}.items())
        return Counter(f"{metric}{{{text}}}", rate, self.offset, self.resets, self.lives, self.missed)

    def histogram(
        self, metric: str, labels: Labels, traffic: Sequence[Traffic], share: float, unit: float
    ) -> Iterator[Counter]:
        """The histogram of this process's share of the traffic; ``unit`` is the unit of the bounds, s."""
        for bound in BOUNDS_MS:
            seconds = bound / 1000
            bounded = {**labels, "le": self.spell(round(seconds / unit, 9))}
            yield self.counter(f"{metric}_bucket", bounded, sum(one.faster(seconds) for one in traffic) * share)
        yield self.counter(f"{metric}_bucket", {**labels, "le": "+Inf"}, total(traffic) * share)
        yield self.counter(f"{metric}_sum", labels, sum(one.rate * one.mean for one in traffic) * share / unit)
        yield self.counter(f"{metric}_count", labels, total(traffic) * share)


Condition = Literal[
    "plain", "restarts", "late labels", "two reporters", "idle calls", "utf-8", "high cardinality", "clock skew", "gaps"
]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
REPLICAS = ({"prometheus_replica": "a"}, {"prometheus_replica": "b"})
SKEW = 12.0  # s by which the clock of a source is wrong, at most
SETTLED = 75.0  # s after an event, from which rates are exact: the window and an interval


@dataclass(frozen=True, slots=True)
class Scraping:
    """How the series of a mesh are scraped: every ``step`` s, ``reads`` times, before and after it is polled.

    Attributes:
        polled: read at which it is polled.
    """

    step: float
    reads: int
    polled: int
    condition: Condition = "plain"

    @property
    def last_event(self) -> int:
        """The last read at which something may happen that the poll does not show any more."""
        return self.polled - math.ceil(SETTLED / self.step)

    def processes(self, rng: Random, workload: str) -> Iterator[tuple[Process, float]]:
        """Yield the pods that measure for a workload, each once for a replica, and their shares of the traffic."""
        pods = rng.choice(("{}-{}", "{}-7d9f8b6c5d-x7k2{}"))  # of a StatefulSet or a Deployment
        for i, share in enumerate(_shares(rng, rng.randint(1, 3))):
            seed = rng.random()
            for replica in REPLICAS if self.condition == "two reporters" else ({},):
                offset = rng.uniform(0, 0.9) * self.step
                if self.condition == "clock skew":
                    offset += rng.uniform(-SKEW, SKEW)
                for pod, lives in self._lives(Random(seed), pods.format(workload, "245"[i])):
                    own = Random(seed)  # one process: replicas differ in the time of their scrapes only
                    labels = {"pod": pod, "instance": f"{pod}:9090", **replica}
                    process = Process(own, self.step, self.reads, labels, lives, self._missed(Random(seed)))
                    process.offset = offset
                    yield process, share

    def _lives(self, rng: Random, pod: str) -> Iterator[tuple[str, range]]:
        """Yield the pods of a workload, one after the other, and the reads at which each is there."""
        if self.condition != "restarts":
            yield pod, range(self.reads)
            return
        replaced = self.last_event - rng.randrange(4)
        yield pod, range(replaced)
        yield f"{pod[:-1]}{'789'['245'.find(pod[-1])]}", range(replaced, self.reads)

    def _missed(self, rng: Random) -> range:
        """The reads at which a target does not answer."""
        if self.condition != "gaps":
            return range(0)
        end = self.last_event - rng.randrange(4)
        return range(end - rng.randint(1, math.ceil(150 / self.step)), end)


def _shares(rng: Random, count: int) -> list[float]:
    """Random shares of ``count`` pods; they sum to 1."""
    weights = [rng.uniform(0.2, 1) for _ in range(count)]
    return [weight / sum(weights) for weight in weights]
