"""Random meshes of every kind under every condition, in two stores, and what was read wrongly."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from model.snapshot import EDGE_METRICS, NODE_METRICS, MeshSnapshot
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_text
from tests.live.random_meshes.kinds import ANY_NAME, KINDS, WITHOUT_LATENCY
from tests.live.random_meshes.processes import BOUNDS_MS, CONDITIONS, Condition, Counter, Scraping
from tests.live.random_meshes.world import HOSTS, Traffic, World, random_world, total
from tests.live.series import Export
from tests.live.victoria import victoria_with_lines

APART = timedelta(minutes=40)  # between two meshes, so that no query sees two
SECONDS, POLLED = 600.0, 540.0  # of history of each mesh, and of them before it is polled
STOPPED = 150.0  # before it is polled, s, since calls are not made
CLOSE = 0.03
PARTS = 8  # of each series under high cardinality
QUANTILES = {"p50": 0.5, "p99": 0.99}
COLLECTOR = CollectorSettings(deadline_seconds=60)


@dataclass(frozen=True, slots=True)
class Mesh:
    """A random mesh and its series.

    Attributes:
        world: at the time of the poll.
    """

    number: int
    kind: str
    condition: Condition
    world: World
    scraping: Scraping
    counters: Sequence[Counter]

    def __str__(self) -> str:
        return f"{self.number} ({self.kind}, {self.condition})"


def draw(number: int) -> Mesh:
    """The mesh of this number: the kinds take turns, and the conditions of each."""
    kinds = list(KINDS)
    kind, condition = kinds[number % len(kinds)], CONDITIONS[number // len(kinds) % len(CONDITIONS)]
    rng, of = Random(f"{kind} {number}"), KINDS[kind]
    naming = ANY_NAME if condition == "utf-8" and ANY_NAME in of.namings else rng.choice(of.namings)
    if condition == "late labels":
        naming = replace(naming, names=HOSTS)  # hosts have dots of their own
    world = now = random_world(rng, naming)
    if condition == "idle calls":
        now = world.without_some_calls(rng)
    step = rng.choice((5.0, 10.0, 15.0))
    scraping = Scraping(step, math.ceil(SECONDS / step), int(POLLED / step), condition)
    seed, stopped = rng.random(), int((POLLED - STOPPED) / step)
    counters = [
        Counter(one.name, one.rate, one.offset, one.resets, one.lives, one.missed, later=later.rate, changes=stopped)
        for one, later in zip(
            of.write(world, Random(seed), scraping), of.write(now, Random(seed), scraping), strict=True
        )
    ]
    if condition == "high cardinality":
        counters = [part for one in counters for part in one.split(PARTS)]
    assert len({one.name for one in counters}) == len(counters), (kind, number)  # or series would be mixed
    return Mesh(number, kind, condition, now, scraping, counters)


def find_faults(numbers: Sequence[int], folder: Path) -> dict[str, list[str]]:
    """What was read wrongly of each mesh, by mesh and store."""
    meshes = [draw(number) for number in numbers]
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1) - APART * len(meshes)
    begins = [first + APART * i for i in range(len(meshes))]
    text = folder / "openmetrics.txt"
    _write(meshes, begins, text)
    with ExitStack() as stack:
        victoria = stack.enter_context(victoria_with_lines(text, folder))
        prometheus = stack.enter_context(prometheus_with_text(text, folder, first, Export(375.0))).url
        return {
            f"{mesh} in {store}": list(_faults(mesh, url, begin + timedelta(seconds=POLLED)))
            for store, url in (("Prometheus", prometheus), ("VictoriaMetrics", victoria))
            for mesh, begin in zip(meshes, begins, strict=True)
        }


def _write(meshes: Sequence[Mesh], begins: Sequence[datetime], text: Path) -> None:
    families: dict[str, list[tuple[Counter, datetime, Scraping]]] = {}
    for mesh, begin in zip(meshes, begins, strict=True):
        for one in mesh.counters:
            families.setdefault(one.name.split("{")[0], []).append((one, begin, mesh.scraping))
    with text.open("w", encoding="utf-8") as out:
        for metric, series in families.items():
            counter = metric.endswith("_total")
            out.write(f"# TYPE {metric.removesuffix('_total')} {'counter' if counter else 'unknown'}\n")
            for one, begin, scraping in series:
                for at, value in one.samples(begin.timestamp(), scraping.reads, scraping.step):
                    out.write(f"{one.name} {value:.6f} {at:.3f}\n")
        out.write("# EOF\n")


def _faults(mesh: Mesh, url: str, at: datetime) -> Iterator[str]:
    with closing(MeshSource(MeshSettings(prometheus=url), COLLECTOR)) as source:
        poll = source.poll(at)
        yield from (f"{gap.gap.name} is missing" for gap in source.gaps(at) if _needs(mesh, gap.gap.name))
    yield from (f"{'/'.join(role)} failed: {one.detail}" for role, one in poll.answers.items() if one.failed)
    if poll.snapshot is None:
        yield f"no snapshot: {poll.why}"
        return
    if why := names_differ(poll.snapshot, mesh.world):
        yield why
        return
    for what, features, traffic in measured(poll.snapshot, mesh.world):
        may_lack = what in {one.id for one in WITHOUT_LATENCY} or not KINDS[mesh.kind].has_latency
        yield from (f"{what}: {fault}" for fault in differences(features, traffic, may_lack=may_lack))


def names_differ(snapshot: MeshSnapshot, world: World) -> str:
    """How services and calls differ from the world; empty if they do not."""
    calls = {(snapshot.node_ids[a], snapshot.node_ids[b]) for a, b in snapshot.edge_index.T.tolist()}
    wanted = {(one.source.id, one.destination.id) for one in world.traffic if one.source}
    if sorted(snapshot.node_ids) == sorted(one.id for one in world.services) and calls == wanted:
        return ""
    return f"services {sorted(snapshot.node_ids)}, calls {sorted(calls ^ wanted)} differ"


def _needs(mesh: Mesh, gap: str) -> bool:
    """Whether a mesh of this kind never lacks this: some of them draw names that may be of no service."""
    return mesh.kind not in ("envoy-gateway", "hubble") or "names" not in gap


def differences(
    features: dict[str, float | None],
    traffic: Sequence[Traffic],
    bounds_ms: Sequence[float] = BOUNDS_MS,
    *,
    may_lack: bool = False,
) -> Iterator[str]:
    """How the values of a service or a call differ from its traffic. ``may_lack``: whether latencies may be unknown."""
    rate = total(traffic)
    if not _is_close(features["rate"], rate):
        yield f"rate {features['rate']}, expected {rate}"
    if not rate:
        return
    # A service fails as often as it says or as its callers say, whichever is more.
    inside = [one for one in traffic if one.source]
    failing = max(_failing(traffic), _failing(inside))
    if not _is_close(features["failing"], failing):
        yield f"failing {features['failing']}, expected {failing}"
    for name, share in QUANTILES.items():
        low, high = _bucket_around(traffic, share, bounds_ms)
        value = features[name]
        if value is None and may_lack:
            continue
        if value is None or not low <= value <= high:
            yield f"{name} {value}, expected {low} to {high}"


def _is_close(found: float | None, expected: float) -> bool:
    return found is not None and math.isclose(found, expected, rel_tol=CLOSE, abs_tol=1e-6)


def measured(snapshot: MeshSnapshot, world: World) -> Iterator[tuple[str, dict[str, float | None], list[Traffic]]]:
    """Yield each service and each call: its name, its values, and the traffic that they should describe."""
    row = {name: i for i, name in enumerate(snapshot.node_ids)}
    for service in world.services:
        i = row[service.id]
        values = _values(snapshot.node_features[i].tolist(), snapshot.node_observed[i].tolist(), NODE_METRICS)
        yield service.id, values, world.into(service)
    number = {ends: k for k, ends in enumerate(map(tuple, snapshot.edge_index.T.tolist()))}
    for one in world.traffic:
        if one.source:
            k = number[row[one.source.id], row[one.destination.id]]
            values = _values(snapshot.edge_features[k].tolist(), snapshot.edge_observed[k].tolist(), EDGE_METRICS)
            yield f"{one.source.id} -> {one.destination.id}", values, [one]


def _values(row: Sequence[float], observed: Sequence[bool], metrics: Sequence[str]) -> dict[str, float | None]:
    """The values that services and calls share; None: not observed."""
    assert metrics[1:4] == ("error_rate", "p50_latency", "p99_latency")
    values = [value if known else None for value, known in zip(row, observed, strict=True)]
    return dict(zip(("rate", "failing", "p50", "p99"), values, strict=False))


def _failing(traffic: Sequence[Traffic]) -> float:
    every = total(traffic)
    return sum(one.rate * one.failing for one in traffic) / every if every else 0.0


def _bucket_around(traffic: Sequence[Traffic], share: float, bounds_ms: Sequence[float]) -> tuple[float, float]:
    """The bounds of the bucket of this quantile and of its neighbours, s."""
    faster = [sum(one.faster(bound / 1000) for one in traffic) / total(traffic) for bound in bounds_ms]
    at = next((i for i, each in enumerate(faster) if each >= share), len(bounds_ms))
    bounds = (0.0, *(bound / 1000 for bound in bounds_ms), math.inf)
    close = [i for i in (at - 1, at, at + 1) if 0 <= i <= len(bounds_ms)]
    chosen = [i for i in close if i == at or _near(faster, i, at, share)]
    return bounds[min(chosen)] * 0.999, bounds[max(chosen) + 1] * 1.001


def _near(faster: Sequence[float], i: int, at: int, share: float) -> bool:
    """Whether the quantile lies so close to the bound between the buckets that either is right."""
    between = min(i, at)
    return between < len(faster) and abs(faster[between] - share) < 0.01
