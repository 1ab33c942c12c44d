"""Measures the mesh: counts, quantiles of samples, missing values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.simulator.events.operations import Fleet
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.physics.load import Noise, Variation
from lab.simulator.physics.propagation import Conditions, MeshPhysics, Response
from lab.simulator.physics.queueing import Floats, draw_binomial, draw_poisson, measure_quantiles
from model.snapshot import EDGE_METRICS, NODE_METRICS, EdgeMetric, NodeMetric

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether each metric exists: bool ``[N, 7]`` and ``[E, 4]``."""

    nodes: Bools
    edges: Bools


def draw_coverage(spec: MeshSpec, services: int, calls: int, rng: np.random.Generator) -> Coverage:
    """Choose services without CPU and memory or connections, and calls without latencies."""
    nodes = np.ones((services, len(NODE_METRICS)), dtype=np.bool_)
    without_resources = rng.random(services) < spec.without_resources
    for metric in (NodeMetric.CPU_UTILIZATION, NodeMetric.MEMORY_UTILIZATION):
        nodes[without_resources, metric] = False
    nodes[rng.random(services) < spec.without_connections, NodeMetric.ACTIVE_CONNECTIONS] = False
    edges = np.ones((calls, len(EDGE_METRICS)), dtype=np.bool_)
    without_latency = rng.random(calls) < spec.without_call_latency
    for call_metric in (EdgeMetric.P50_LATENCY, EdgeMetric.P99_LATENCY):
        edges[without_latency, call_metric] = False
    nodes[:, [NODE_METRICS.index(name) for name in spec.missing_metrics]] = False
    edges[:, [EDGE_METRICS.index(name) for name in spec.missing_call_metrics]] = False
    return Coverage(nodes, edges)


def measure(
    mesh: MeshPhysics,
    now: Conditions,
    truth: Response,
    replicas: Floats,
    memory: Floats,
    coverage: Coverage,
    spec: MeshSpec,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return node features ``[N, 7]`` and edge features ``[E, 4]``, NaN where not observed.

    A service's requests equal the counts of its calls and at the entry. The number of random draws is fixed.
    """
    services, calls = len(truth.rate), len(truth.call_rate)
    z, u = rng.standard_normal((6, services)), rng.random((3, services))
    ze, ue = rng.standard_normal((4, calls)), rng.random((2, calls))
    gaps, edge_gaps = rng.random((services, len(NODE_METRICS))), rng.random((calls, len(EDGE_METRICS)))
    attempts = draw_poisson(truth.call_rate * spec.interval_seconds, ze[0], ue[0])
    entry_requests = draw_poisson(now.entry * now.alive * spec.interval_seconds, z[0], u[0])
    to = mesh.topology.destination
    count = entry_requests + np.bincount(to, np.rint(attempts * now.alive[to] * (1.0 - now.lost)), services)
    edges = np.empty((calls, len(EDGE_METRICS)))
    edges[:, EdgeMetric.REQUESTS_PER_SECOND] = attempts / spec.interval_seconds
    edges[:, EdgeMetric.ERROR_RATE] = _ratio(draw_binomial(attempts, truth.call_errors, ze[1], ue[1]), attempts)
    quantiles = measure_quantiles(truth.call_p50, truth.call_p99, attempts, ze[2], ze[3])
    edges[:, EdgeMetric.P50_LATENCY], edges[:, EdgeMetric.P99_LATENCY] = quantiles
    nodes = np.empty((services, len(NODE_METRICS)))
    nodes[:, NodeMetric.REQUEST_RATE] = count / spec.interval_seconds
    nodes[:, NodeMetric.ERROR_RATE] = _ratio(draw_binomial(count, truth.errors, z[1], u[1]), count)
    quantiles = measure_quantiles(truth.p50, truth.p99, count, z[2], z[3])
    nodes[:, NodeMetric.P50_LATENCY], nodes[:, NodeMetric.P99_LATENCY] = quantiles
    nodes[:, NodeMetric.CPU_UTILIZATION] = _cpu(mesh, truth, count / spec.interval_seconds, now.other_cpu, z[4])
    nodes[:, NodeMetric.MEMORY_UTILIZATION] = memory
    in_use = draw_poisson(truth.rate * truth.mean, z[5], u[2])
    nodes[:, NodeMetric.ACTIVE_CONNECTIONS] = in_use + np.rint(mesh.services.pool * replicas)
    nodes[~coverage.nodes | (gaps < spec.dropout)] = np.nan
    edge_gaps[:, EdgeMetric.REQUESTS_PER_SECOND] = 1.0  # the rate of a call is always observed
    edges[~coverage.edges | (edge_gaps < spec.dropout)] = np.nan
    return nodes, edges


def memory_now(mesh: MeshPhysics, fleet: Fleet, variation: Variation, noise: Noise) -> Floats:
    """Return the memory use, 0..1, which grows towards a plateau and drops when a process restarts."""
    growth = 1.0 - np.exp(-fleet.age_hours / mesh.services.memory_hours)
    memory = mesh.services.memory_base + mesh.services.memory_growth * growth + variation.memory * noise.memory
    return np.clip(memory, 0.01, 0.99)


def _cpu(mesh: MeshPhysics, truth: Response, rate: Floats, other_cpu: Floats, z: Floats) -> Floats:
    """Return the CPU use, 0..1: idle share and work for requests in the interval, or the level of other work."""
    arrival_ratio = np.clip(rate / np.maximum(truth.rate, 1e-9), 0.0, 3.0)
    busy = np.minimum(truth.utilisation * arrival_ratio, 1.0)
    cpu = np.maximum(mesh.services.cpu_idle + mesh.services.cpu_busy * busy, other_cpu)
    return np.clip(cpu * (1.0 + 0.02 * z), 0.0, 1.0)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)
