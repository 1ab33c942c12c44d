"""The processes that measure a random mesh, and the series in which they report.

What differs between real meshes, and must not change what is read, is drawn at random: how many pods measure a call,
when each is scraped, how it spells the bounds of its buckets, when its counters start again, and whether two Prometheus
servers have scraped everything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import IO

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
    """A series whose value grows at a constant rate and starts again at some reads."""

    name: str
    rate: float
    offset: float
    resets: frozenset[int] = frozenset()

    def write(self, out: IO[str], begin: float, reads: int, step: float) -> None:
        """Write its samples as OpenMetrics text."""
        value = 1000.0 + self.rate * self.offset
        for read in range(reads):
            value = self.rate * step if read in self.resets else value + self.rate * step
            out.write(f"{self.name} {value:.6f} {begin + self.offset + read * step:.3f}\n")


@dataclass(slots=True)
class Process:
    """One process that measures: when it is scraped, how it spells, when it started again, its labels."""

    rng: Random
    step: float
    reads: int
    labels: Labels
    offset: float = field(init=False)
    spell: Callable[[float], str] = field(init=False)
    resets: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offset = self.rng.uniform(0, 0.9) * self.step
        self.spell = self.rng.choice(SPELLINGS)
        self.resets = frozenset({self.rng.randrange(self.reads)} if self.rng.random() < 0.3 else ())

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return self.labels["pod"]

    def counter(self, metric: str, labels: Labels, rate: float) -> Counter:
        """A counter of this process; ``labels`` replace the labels of the scrape."""
        text = ",".join(f'{key}="{value}"' for key, value in {**self.labels, **labels}.items())
        return Counter(f"{metric}{{{text}}}", rate, self.offset, self.resets)

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


@dataclass(frozen=True, slots=True)
class Scraping:
    """How the series of a mesh are scraped: every ``step`` s, ``reads`` times, by each of the ``replicas``."""

    step: float
    reads: int
    replicas: tuple[Labels, ...] = ({},)

    def processes(self, rng: Random, workload: str) -> Iterator[tuple[Process, float]]:
        """Yield the pods that measure for a workload, each once for a replica, and their shares of the traffic."""
        pods = rng.choice(("{}-{}", "{}-7d9f8b6c5d-x7k2{}"))  # of a StatefulSet or a Deployment
        for i, share in enumerate(_shares(rng, rng.randint(1, 3))):
            seed = rng.random()
            pod = pods.format(workload, "245"[i])
            for replica in self.replicas:
                own = Random(seed)  # one process: replicas differ in the time of their scrapes only
                process = Process(own, self.step, self.reads, {"pod": pod, "instance": f"{pod}:9090", **replica})
                process.offset = rng.uniform(0, 0.9) * self.step
                yield process, share


def _shares(rng: Random, count: int) -> list[float]:
    """Random shares of ``count`` pods; they sum to 1."""
    weights = [rng.uniform(0.2, 1) for _ in range(count)]
    return [weight / sum(weights) for weight in weights]
