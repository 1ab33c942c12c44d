"""What is read from a Prometheus is the truth, in each dialect, for 200 random meshes."""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.source import Poll
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_text
from tests.live.programs import needs
from tests.live.random_meshes.kinds import KINDS, WITHOUT_LATENCY
from tests.live.random_meshes.processes import BOUNDS_MS, Counter, Scraping
from tests.live.random_meshes.world import Traffic, World, random_world, total
from tests.live.series import Export

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs("prometheus", "promtool"),
]
APART = timedelta(minutes=40)  # between two meshes, so that no query sees two
MINUTES = 8.0  # of history of each mesh, more than the longest window
CLOSE = 0.03
COLLECTOR = CollectorSettings()
REPLICAS = ({"prometheus_replica": "a"}, {"prometheus_replica": "b"})

QUANTILES = {"p50": 0.5, "p99": 0.99}
MESHES = 200


@dataclass(frozen=True, slots=True)
class Read:
    """A random mesh, and what was read of it."""

    kind: str
    seed: int
    world: World
    poll: Poll

    @property
    def snapshot(self) -> MeshSnapshot:
        """What was read; the mesh must have been found."""
        assert self.poll.snapshot is not None, f"{self.kind} {self.seed}: {self.poll.why}"
        return self.poll.snapshot

    def row(self, name: str) -> int:
        """The row of a service, by its original name."""
        return self.snapshot.node_ids.index(name)


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> list[Read]:
    """All meshes, written into one Prometheus, one after the other, and read as the collector does."""
    folder = tmp_path_factory.mktemp("random")
    kinds = list(KINDS)
    drawn = [(kinds[number % len(kinds)], number // len(kinds)) for number in range(MESHES)]
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1) - APART * len(drawn)
    begins = [first + APART * i for i in range(len(drawn))]
    worlds = []
    families: dict[str, list[tuple[Counter, datetime, Scraping]]] = {}
    for (kind, seed), begin in zip(drawn, begins, strict=True):
        rng, of = Random(f"{kind} {seed}"), KINDS[kind]
        worlds.append(random_world(rng, rng.choice(of.namings)))
        step = rng.choice((5.0, 10.0, 15.0))
        replicas = REPLICAS if rng.random() < 0.25 else ({},)
        scraping = Scraping(step, math.ceil(MINUTES * 60 / step), replicas)
        counters = list(of.write(worlds[-1], rng, scraping))
        assert len({one.name for one in counters}) == len(counters), (kind, seed)  # or series would be mixed
        for one in counters:
            families.setdefault(one.name.split("{")[0], []).append((one, begin, scraping))
    text = folder / "openmetrics.txt"
    with text.open("w", encoding="utf-8") as out:
        for metric, series in families.items():
            counter = metric.endswith("_total")
            out.write(f"# TYPE {metric.removesuffix('_total')} {'counter' if counter else 'unknown'}\n")
            for one, begin, scraping in series:
                one.write(out, begin.timestamp(), scraping.reads, scraping.step)
        out.write("# EOF\n")
    with prometheus_with_text(text, folder, first, Export(375.0)) as monitor:
        found = []
        for (kind, seed), world, begin in zip(drawn, worlds, begins, strict=True):
            source = MeshSource(MeshSettings(prometheus=monitor.url), COLLECTOR)
            with closing(source):
                found.append(Read(kind, seed, world, source.poll(begin + timedelta(minutes=MINUTES - 1))))
    return found


def test_no_query_fails(meshes: Sequence[Read]) -> None:
    for read in meshes:
        assert not {role: one.detail for role, one in read.poll.answers.items() if one.failed}, (read.kind, read.seed)


def test_services_and_calls(meshes: Sequence[Read]) -> None:
    for read in meshes:
        snapshot = read.snapshot
        assert sorted(snapshot.node_ids) == sorted(one.id for one in read.world.services), (read.kind, read.seed)
        calls = {(snapshot.node_ids[a], snapshot.node_ids[b]) for a, b in snapshot.edge_index.T.tolist()}
        wanted = {(one.source.id, one.destination.id) for one in read.world.traffic if one.source}
        assert calls == wanted, (read.kind, read.seed)


def test_rates_and_failures(meshes: Sequence[Read]) -> None:
    for read in meshes:
        for what, features, traffic in _measured(read):
            rate = total(traffic)
            # A service fails as often as it says or as its callers say, whichever is more.
            inside = [one for one in traffic if one.source]
            failing = max(_failing(traffic), _failing(inside)) if inside else _failing(traffic)
            assert features["rate"] == pytest.approx(rate, rel=CLOSE), (read.kind, read.seed, what)
            assert features["failing"] == pytest.approx(failing, rel=CLOSE, abs=1e-6), (read.kind, read.seed, what)


def test_quantiles(meshes: Sequence[Read]) -> None:
    for read in meshes:
        for what, features, traffic in _measured(read):
            for name in QUANTILES.keys() & features:
                share = QUANTILES[name]
                low, high = _bucket_around(traffic, share)
                assert low <= features[name] <= high, (read.kind, read.seed, what, name, traffic)


def _measured(read: Read) -> Iterator[tuple[str, dict[str, float], list[Traffic]]]:
    """Yield each service and each call: its name, its values, and the traffic that they should describe."""
    snapshot = read.snapshot
    for service in read.world.services:
        i = read.row(service.id)
        known = 2 if service in WITHOUT_LATENCY else 4
        assert snapshot.node_observed[i, :known].all(), (read.kind, read.seed, service)
        yield service.id, _values(snapshot.node_features[i, :known].tolist(), NODE_METRICS), read.world.into(service)
    number = {ends: k for k, ends in enumerate(map(tuple, snapshot.edge_index.T.tolist()))}
    for one in read.world.traffic:
        if one.source:
            k = number[read.row(one.source.id), read.row(one.destination.id)]
            assert snapshot.edge_observed[k].all(), (read.kind, read.seed, one)
            name = f"{one.source.id} -> {one.destination.id}"
            yield name, _values(snapshot.edge_features[k].tolist(), EDGE_METRICS), [one]


def _values(row: Sequence[float], metrics: Sequence[str]) -> dict[str, float]:
    """The values that services and calls share."""
    assert metrics[1:4] == ("error_rate", "p50_latency", "p99_latency")
    return dict(zip(("rate", "failing", "p50", "p99"), row, strict=False))


def _failing(traffic: Sequence[Traffic]) -> float:
    """Share of the requests that fail."""
    return sum(one.rate * one.failing for one in traffic) / total(traffic)


def _bucket_around(traffic: Sequence[Traffic], share: float) -> tuple[float, float]:
    """The bounds of the bucket of this quantile and of its neighbours, s."""
    faster = [sum(one.faster(bound / 1000) for one in traffic) / total(traffic) for bound in BOUNDS_MS]
    at = next((i for i, each in enumerate(faster) if each >= share), len(BOUNDS_MS))
    bounds = (0.0, *(bound / 1000 for bound in BOUNDS_MS), math.inf)
    close = [i for i in (at - 1, at, at + 1) if 0 <= i <= len(BOUNDS_MS)]
    chosen = [i for i in close if i == at or _near(faster, i, at, share)]
    return bounds[min(chosen)] * 0.999, bounds[max(chosen) + 1] * 1.001


def _near(faster: Sequence[float], i: int, at: int, share: float) -> bool:
    """Whether the quantile lies so close to the bound between the buckets that either is right."""
    between = min(i, at)
    return between < len(faster) and abs(faster[between] - share) < 0.01
