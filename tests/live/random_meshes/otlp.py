"""The same random meshes as a collector of OpenTelemetry pushes them, and what was read wrongly."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal, get_args

from serve_app.collect.otlp.decode import PROTOBUF, decode_metrics
from serve_app.collect.otlp.service_graph import ServiceGraph, add_points
from tests.live.random_meshes.kinds import ANY_NAME
from tests.live.random_meshes.matrix import differences, measured, names_differ
from tests.live.random_meshes.world import Traffic, World, random_world
from tests.serve_app.collect.otlp.connector import BOUNDS, Call, Connector, as_delta, split

Condition = Literal["plain", "deltas", "restarts", "idle calls", "gaps", "gaps of deltas", "out of order"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
INTERVAL, FLUSHES, EVENT = 15.0, 8, 4  # s; what happens, happens after this flush
BUSY = 600.0  # times the usual traffic, so that whole requests are as exact as rates


def find_faults_of_push(number: int) -> list[str]:
    """What was read wrongly of the mesh of this number."""
    condition, rng = CONDITIONS[number % len(CONDITIONS)], Random(number)
    drawn = random_world(rng, ANY_NAME)
    world = now = replace(drawn, traffic=tuple(replace(one, rate=one.rate * BUSY) for one in drawn.traffic))
    if condition == "idle calls":
        now = world.without_some_calls(rng)
    graph, snapshot = ServiceGraph(), None
    for request in _flushes(world, now, condition, rng):
        graph, found = add_points(graph, decode_metrics(request, PROTOBUF)[0], INTERVAL)
        snapshot = found or snapshot
    if snapshot is None:
        return ["no snapshot"]
    if why := names_differ(snapshot, now):
        return [why]
    bounds = [bound * 1000 for bound in BOUNDS]
    return [
        f"{what}: {fault}"
        for what, features, traffic in measured(snapshot, now)
        for fault in differences(features, traffic, bounds)
    ]


def _flushes(world: World, now: World, condition: Condition, rng: Random) -> Iterator[bytes]:
    """Yield the requests of a collector, which counts the traffic of one world, and then of the other."""
    connector = _connector(world)
    start, sent = connector.start, None
    for flush in range(FLUSHES):
        at = start + 3600 + INTERVAL * flush
        if condition == "restarts" and flush == EVENT:
            connector = _connector(world)
            connector.start = at - INTERVAL
        for one in (world if flush < EVENT else now).traffic:
            _observe(connector, one)
        request = connector.flush(at)
        if "gaps" in condition and flush == EVENT:
            continue  # the connection was lost
        pushed = as_delta(request, sent) if "deltas" in condition and sent else request
        if "deltas" not in condition or sent:
            parts = [one.SerializeToString() for one in split(pushed, 3)]
            yield from rng.sample([*parts, *parts[:1]], 4) if condition == "out of order" else parts
        sent = request


def _connector(world: World) -> Connector:
    return Connector(
        of_call={_ends(one): {"connection_type": "virtual_node"} for one in world.traffic if not one.source}
    )


def _observe(connector: Connector, traffic: Traffic) -> None:
    count = round(traffic.rate * INTERVAL)
    faster = [round(count * traffic.faster(bound) / traffic.rate) if count else 0 for bound in BOUNDS]
    for bucket, requests in enumerate(b - a for a, b in zip([0, *faster], [*faster, count], strict=True)):
        connector.observe(_ends(traffic), requests, bucket=bucket)
    if failures := round(count * traffic.failing):
        connector.observe(_ends(traffic), 0, failures=failures)


def _ends(traffic: Traffic) -> Call:
    return traffic.source.name if traffic.source else "user", traffic.destination.name
