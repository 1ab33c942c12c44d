"""Draws the parameters of services and calls: times, capacity, timeouts."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from lab.simulator.mesh.latent import add_latent
from lab.simulator.mesh.topology import MeshSpec, Topology, generate_topology
from lab.simulator.mesh.traces import draw_traces
from lab.simulator.physics.propagation import (
    NEVER,
    SCENARIOS,
    CallParameters,
    Conditions,
    MeshPhysics,
    Response,
    ServiceParameters,
    respond,
)
from lab.simulator.physics.queueing import Floats

TIMEOUTS = np.array([0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0, 60.0])  # s, as people configure them
LONGEST_WAIT = 2.0  # in a queue, s
ON_ONE_HOST = 6  # mean number of services with a replica on a host
_Z = np.array([NormalDist().inv_cdf((s + 0.5) / SCENARIOS) for s in range(SCENARIOS)])


def build_mesh(spec: MeshSpec) -> MeshPhysics:
    """Build a spec's mesh: topology, parameters, and the equilibrium at mean load."""
    topology = generate_topology(spec, spec.stream(0))
    rng = spec.stream(1)
    count = spec.services
    services = _draw_services(topology, rng)
    services = replace(services, entry=services.entry * spec.load)
    calls = _draw_calls(topology, rng)
    zeros = np.zeros(count)
    empty = np.empty(0, np.int64)
    mesh = MeshPhysics(
        topology,
        services,
        calls,
        draw_traces(topology, services.parallelism, rng),
        usual_rate=zeros,
        usual_p50=zeros,
        usual_utilisation=zeros,
        host=empty,
        newcomers=empty,
        canaries=empty.reshape(0, 2),
        misroutes=empty.reshape(0, 4),
    )
    mesh = replace(mesh, services=_size_capacity(services, _settle(mesh).rate, spec.sized_for, rng))
    without_timeouts = _settle(mesh)
    mesh = replace(mesh, calls=_set_timeouts(topology, calls, without_timeouts, rng))
    usual = _settle(mesh)
    mesh = replace(mesh, usual_rate=usual.rate, usual_p50=usual.p50, usual_utilisation=usual.utilisation)
    mesh = add_latent(mesh, spec, spec.stream(6))
    services_and_latent = len(mesh.topology.node_ids)
    host = spec.stream(7).integers(0, max(2, services_and_latent // ON_ONE_HOST), services_and_latent)
    return replace(mesh, host=host)


def usual_conditions(mesh: MeshPhysics) -> Conditions:
    """Return the conditions at mean load without noise, faults, retries and latent services."""
    services, calls = len(mesh.topology.node_ids), len(mesh.topology.source)
    return Conditions(
        entry=mesh.services.entry,
        calls_per_request=mesh.topology.calls_per_request,
        cpu_time=mesh.services.cpu_time,
        delay=mesh.services.delay,
        replicas=mesh.services.replicas,
        injected_delay=np.zeros(services),
        injected_errors=np.zeros(services),
        timeout=mesh.calls.timeout,
        retries=mesh.calls.retries,
        budget=mesh.calls.budget,
        attempts=np.ones(calls),
        alive=~mesh.topology.latent,
        carried=np.where(mesh.topology.latent_calls, 0.0, 1.0),
        call_delay=np.zeros(calls),
        lost=np.zeros(calls),
        capacity=np.ones(services),
        leak=np.zeros(services),
        other_cpu=np.zeros(services),
        starved=np.zeros(services),
    )


def _settle(mesh: MeshPhysics) -> Response:
    now = usual_conditions(mesh)
    response = respond(mesh, now)
    for _ in range(5):
        response = respond(mesh, replace(now, attempts=response.attempts))
    return response


def _draw_services(topology: Topology, rng: np.random.Generator) -> ServiceParameters:
    """Draw all parameters except capacity, which depends on the load; until then, workers are unlimited."""
    count = len(topology.node_ids)
    depth = int(topology.layer[-1]) + 1
    own_time = _draw_own_time(topology, depth, rng)
    cpu_share = rng.beta(2.0, 2.0, count)
    spread = np.clip(rng.normal(0.55, 0.15, count), 0.2, 1.0)
    is_broken = rng.random(count) < rng.uniform(0.0, 0.05)
    return ServiceParameters(
        entry=_draw_entry(topology, rng),
        cpu_time=own_time * cpu_share,
        delay=own_time * (1.0 - cpu_share),
        own_shape=np.exp(spread[:, None] * _Z),
        parallelism=rng.uniform(0.35, 1.0, count),
        workers=np.full(count, 1e9),
        places=np.round(rng.uniform(20, 120, count)),
        replicas=np.ones(count),
        max_replicas=np.ones(count),
        base_errors=10.0 ** np.where(is_broken, rng.uniform(-2.6, -1.7, count), rng.uniform(-5.0, -3.2, count)),
        cpu_idle=rng.uniform(0.005, 0.08, count),
        cpu_busy=rng.uniform(0.5, 0.9, count),
        memory_base=rng.uniform(0.15, 0.6, count),
        memory_growth=rng.uniform(0.02, 0.25, count),
        memory_hours=10.0 ** rng.uniform(-0.3, 1.2, count),
        pool=rng.uniform(2.0, 20.0, count),
    )


def _draw_own_time(topology: Topology, depth: int, rng: np.random.Generator) -> Floats:
    """Draw the median service time, s: short for gateways and stores, longer in the middle layers."""
    centre = np.full(depth, 0.008)
    centre[0], centre[1], centre[-1] = 0.002, 0.005, 0.003
    count = len(topology.node_ids)
    return np.clip(centre[topology.layer] * rng.lognormal(0, 0.4) * rng.lognormal(0, 0.9, count), 0.0005, 0.3)


def _draw_entry(topology: Topology, rng: np.random.Generator) -> Floats:
    """Draw the mean requests into each gateway, 1/s; they grow with its namespace and span orders of magnitude."""
    gateway = topology.layer == 0
    gateways = np.bincount(topology.namespace, gateway, topology.namespace.max() + 1)
    members = np.bincount(topology.namespace)
    services_per_gateway = (members / np.maximum(gateways, 1.0))[topology.namespace]
    rate = rng.uniform(2.0, 10.0) * services_per_gateway * rng.lognormal(0, 1.2, len(gateway))
    return np.where(gateway, np.clip(rate, 5.0, 20_000.0), 0.0)


def _draw_calls(topology: Topology, rng: np.random.Generator) -> CallParameters:
    count = len(topology.source)
    across = topology.namespace[topology.source] != topology.namespace[topology.destination]
    return CallParameters(
        network=rng.uniform(2e-4, 1e-3, count) + across * rng.uniform(2e-4, 2e-3, count),
        timeout=np.full(count, NEVER),
        retries=rng.choice(4, size=count, p=[0.45, 0.25, 0.2, 0.1]).astype(np.float64),
        budget=rng.uniform(0.1, 0.3, count),
        propagation=np.where(rng.random(count) < 0.7, rng.uniform(0.6, 1.0, count), rng.uniform(0.0, 0.2, count)),
    )


def _size_capacity(
    services: ServiceParameters, rate: Floats, peak: float, rng: np.random.Generator
) -> ServiceParameters:
    """Draw workers and replicas for the peak load. Services with low traffic are mostly idle, as in real clusters."""
    count = len(rate)
    centre = rng.uniform(0.2, 0.45)
    at_peak = np.clip(centre * rng.lognormal(0, 0.4, count), 0.06, 0.6)
    workers_needed = rate * peak * services.cpu_time / at_peak
    min_replicas = rng.integers(1, 4, count)
    replicas = np.clip(np.ceil(workers_needed / rng.uniform(1.0, 6.0, count)), min_replicas, 24)
    workers = np.maximum(workers_needed / replicas, 0.25)
    is_autoscaled = rng.random(count) < rng.uniform(0.3, 0.7)
    max_replicas = np.where(is_autoscaled, np.ceil(replicas * rng.uniform(1.3, 2.5, count)), replicas)
    places = np.clip(LONGEST_WAIT * workers / services.cpu_time, 12.0, services.places)
    return replace(services, workers=workers, replicas=replicas, max_replicas=max_replicas, places=places)


def _set_timeouts(
    topology: Topology, calls: CallParameters, patient: Response, rng: np.random.Generator
) -> CallParameters:
    """Draw timeouts: the next usual value above a few times the usual 99th percentile."""
    limits = patient.p99[topology.destination] * 3.0 * np.exp(rng.uniform(0.0, 1.6, len(calls.timeout)))
    place = np.minimum(np.searchsorted(TIMEOUTS, limits), len(TIMEOUTS) - 1)
    return replace(calls, timeout=TIMEOUTS[place])
