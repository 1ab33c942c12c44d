"""A mesh's response to conditions: load flows down the calls, latency and errors propagate up."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.simulator.mesh.topology import Ints, Topology
from lab.simulator.physics.queueing import Floats, retry, share_above, wait_and_blocking

SCENARIOS = 50  # requests traced per service and tick; the highest of 50 strata is at the 99th percentile
MEDIAN = SCENARIOS // 2
WORK_OF_FAILED = 0.5  # share of the calls that a request makes before it fails
REFUSED = 1e-4  # s until a connection to a missing service is refused
NEVER = 1e9  # s, no timeout
# Quantiles of the unit exponential in an order (23 and 50 are coprime) that keeps them apart from own_shape's.
EXPONENTIAL = -np.log1p(-((np.arange(SCENARIOS) * 23 % SCENARIOS) + 0.5) / SCENARIOS)


@dataclass(frozen=True, slots=True)
class ServiceParameters:
    """Parameters of the services, float64 ``[N]`` unless noted.

    Attributes:
        entry: mean requests from outside the mesh, 1/s; 0 below the gateways.
        cpu_time: work per request that queues for a worker, s.
        delay: time per request that does not queue (disk, locks, external services), s.
        own_shape: ``[N, S]`` service time of each scenario over the median.
        parallelism: share of the callees' time that a request waits for; below 1 where calls run in parallel.
        workers: workers per replica; below 1 for a throttled worker (CPU limit).
        places: length of one replica's queue.
        replicas: replicas at the start.
        max_replicas: the autoscaler's upper limit; equal to ``replicas`` without an autoscaler.
        base_errors: share of requests that fail without a fault.
        cpu_idle, cpu_busy: CPU utilisation without load, and its increase at full load.
        memory_base, memory_growth, memory_hours: memory of a new process, its growth, and the time constant of that.
        pool: open connections per replica.
    """

    entry: Floats
    cpu_time: Floats
    delay: Floats
    own_shape: Floats
    parallelism: Floats
    workers: Floats
    places: Floats
    replicas: Floats
    max_replicas: Floats
    base_errors: Floats
    cpu_idle: Floats
    cpu_busy: Floats
    memory_base: Floats
    memory_growth: Floats
    memory_hours: Floats
    pool: Floats


@dataclass(frozen=True, slots=True)
class CallParameters:
    """Parameters of the calls, float64 ``[E]``.

    Attributes:
        network: round-trip time, s.
        timeout: timeout of one attempt, s.
        retries: maximum retries of a call.
        budget: maximum mean retries per call.
        propagation: probability that a call that failed after all retries fails its request.
    """

    network: Floats
    timeout: Floats
    retries: Floats
    budget: Floats
    propagation: Floats


@dataclass(frozen=True, slots=True)
class LayerTraces:
    """Calls by a layer's traced requests, int64 and float64 ``[T]``: the layer's scenario ``row`` waits for ``count``
    times the mesh's scenario ``column``, over the layer's call ``call``."""

    row: Ints
    column: Ints
    call: Ints
    count: Floats


@dataclass(frozen=True, slots=True)
class MeshPhysics:
    """A topology with its physics; ``usual_*`` is the equilibrium at mean load without noise, ``[N]``.

    Attributes:
        host: int64 ``[N]``, cluster node of one replica; services share nodes.
        newcomers: int64 ``[K]``, latent services that can join; their ``usual_rate`` is 0.
        canaries: int64 ``[C, 2]``, a service and its latent canary.
        misroutes: int64 ``[P, 4]``, calls a->x and b->y, and the latent calls a->y and b->x. If ``carried`` is 0 for
            the first two and 1 for the last two, each service still has its usual rate.
    """

    topology: Topology
    services: ServiceParameters
    calls: CallParameters
    traces: tuple[LayerTraces, ...]
    usual_rate: Floats
    usual_p50: Floats
    usual_utilisation: Floats
    host: Ints
    newcomers: Ints
    canaries: Ints
    misroutes: Ints


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions during one tick, after noise, operations and faults.

    Attributes:
        entry: requests from outside, 1/s, ``[N]``.
        calls_per_request: first attempts per request, ``[E]``.
        cpu_time, delay: as in :class:`ServiceParameters`, s, ``[N]``.
        injected_delay: time that a fault adds to each request, s, ``[N]``.
        replicas: serving replicas; can be fractional during a rollout, ``[N]``.
        injected_errors: share of requests failed by a fault, ``[N]``.
        timeout, retries, budget: as in :class:`CallParameters`, ``[E]``.
        attempts: attempts per call, given the failures of the previous tick, ``[E]``.
        alive: bool ``[N]``; calls to a missing service are refused at once.
        carried: share of ``calls_per_request`` that uses this call, ``[E]``; 0 for an inactive call.
        call_delay: extra time of a call, s, ``[E]``.
        lost: share of attempts that never arrive, ``[E]``.
        capacity: factor on the workers, ``[N]``.
        leak: extra memory, 0..1, ``[N]``.
        other_cpu: CPU use that work without requests reaches, 0..1, ``[N]``.
        starved: mean wait of a request because of this work, s, ``[N]``.
    """

    entry: Floats
    calls_per_request: Floats
    cpu_time: Floats
    delay: Floats
    injected_delay: Floats
    replicas: Floats
    injected_errors: Floats
    timeout: Floats
    retries: Floats
    budget: Floats
    attempts: Floats
    alive: NDArray[np.bool_]
    carried: Floats
    call_delay: Floats
    lost: Floats
    capacity: Floats
    leak: Floats
    other_cpu: Floats
    starved: Floats


@dataclass(frozen=True, slots=True)
class Response:
    """The true state of the mesh, before measurement.

    Attributes:
        rate: arriving requests, 1/s, ``[N]``.
        call_rate: attempts, 1/s, ``[E]``; a service's incoming attempts and its ``entry`` add up to its ``rate``.
        utilisation: offered load over capacity, ``[N]``; above 1 requests are refused.
        p50, p99, mean: time to answer, s, ``[N]``.
        errors: share of requests answered with an error, ``[N]``.
        call_p50, call_p99: time of an attempt, measured by the caller, s, ``[E]``.
        call_errors: share of attempts that fail, time out or are refused, ``[E]``.
        attempts: attempts per call in the next tick, ``[E]``.
    """

    rate: Floats
    call_rate: Floats
    utilisation: Floats
    p50: Floats
    p99: Floats
    mean: Floats
    errors: Floats
    call_p50: Floats
    call_p99: Floats
    call_errors: Floats
    attempts: Floats


def respond(mesh: MeshPhysics, now: Conditions) -> Response:
    """Compute one tick: rates from the top layer down, then latencies and errors from the bottom layer up.

    Retries follow the failures of the previous tick, so a retry storm builds up over a few ticks.
    """
    rate, call_rate, utilisation, wait, blocking = _flow_down(mesh, now)
    errors = 1.0 - (1.0 - mesh.services.base_errors) * (1.0 - now.injected_errors) * (1.0 - blocking)
    return _propagate_up(mesh, now, rate, call_rate, utilisation, wait, errors)


def _flow_down(mesh: MeshPhysics, now: Conditions) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    topology, services = mesh.topology, mesh.services
    rate = now.entry * now.alive
    call_rate = np.zeros(len(topology.source))
    utilisation, wait, blocking = np.zeros_like(rate), np.zeros_like(rate), np.zeros_like(rate)
    attempts = now.calls_per_request * now.carried * now.attempts
    for nodes, calls in zip(topology.node_slices, topology.call_slices, strict=True):
        cpu_time, workers = now.cpu_time[nodes], services.workers[nodes] * now.capacity[nodes]
        utilisation[nodes] = rate[nodes] * cpu_time / (now.replicas[nodes] * workers)
        queue_wait, blocked_share = wait_and_blocking(utilisation[nodes], workers, services.places[nodes])
        wait[nodes], blocking[nodes] = queue_wait * cpu_time / workers, blocked_share
        working = rate[nodes] * (1.0 - blocked_share) * (1.0 - WORK_OF_FAILED * now.injected_errors[nodes])
        call_rate[calls] = working[topology.source[calls] - nodes.start] * attempts[calls]
        to = topology.destination[calls]
        rate += np.bincount(to, call_rate[calls] * now.alive[to] * (1.0 - now.lost[calls]), len(rate))
    return rate, call_rate, utilisation, wait, blocking


def _propagate_up(
    mesh: MeshPhysics,
    now: Conditions,
    rate: Floats,
    call_rate: Floats,
    utilisation: Floats,
    wait: Floats,
    errors: Floats,
) -> Response:
    topology = mesh.topology
    seconds = (now.cpu_time + now.delay)[:, None] * mesh.services.own_shape
    seconds += (wait + now.starved)[:, None] * EXPONENTIAL + now.injected_delay[:, None]
    errors = np.where(now.alive, errors, 1.0)
    p50, p99 = np.zeros_like(rate), np.zeros_like(rate)
    call_p50, call_p99, call_errors, attempts = (np.zeros_like(call_rate) for _ in range(4))
    for nodes, calls, traces in zip(
        reversed(topology.node_slices), reversed(topology.call_slices), reversed(mesh.traces), strict=True
    ):
        to, timeout = topology.destination[calls], now.timeout[calls]
        network, delay, lost = mesh.calls.network[calls], now.call_delay[calls], now.lost[calls]
        median, tail = p50[to] + delay, p99[to] + delay
        call_errors[calls] = 1.0 - (1.0 - errors[to]) * (1.0 - share_above(timeout, median, tail)) * (1.0 - lost)
        attempts[calls], final_failures = retry(call_errors[calls], now.retries[calls], now.budget[calls])
        call_p50[calls] = np.where(lost >= 0.5, timeout, np.minimum(median, timeout)) + network
        call_p99[calls] = np.where(lost >= 0.01, timeout, np.minimum(tail, timeout)) + network
        retries_per_failure = (attempts[calls] - 1.0) / np.maximum(call_errors[calls], 1e-12)
        answer = seconds.ravel()[traces.column] + delay[traces.call]
        answer[_phase(traces.column) < lost[traces.call]] = NEVER
        rows = (nodes.stop - nodes.start) * SCENARIOS
        call_seconds = _time_of_calls(
            traces, answer, errors[to], retries_per_failure, timeout, network, now.carried[calls], rows
        )
        seconds[nodes] += call_seconds.reshape(-1, SCENARIOS)
        seconds[nodes][~now.alive[nodes]] = REFUSED
        p50[nodes], p99[nodes] = _quantiles(seconds[nodes])
        log_success = np.log1p(-np.minimum(mesh.calls.propagation[calls] * final_failures, 1.0 - 1e-9))
        log_share = np.bincount(
            topology.source[calls] - nodes.start,
            now.calls_per_request[calls] * now.carried[calls] * log_success,
            nodes.stop - nodes.start,
        )
        errors[nodes] = 1.0 - (1.0 - errors[nodes]) * np.exp(log_share)
    return Response(
        rate, call_rate, utilisation, p50, p99, seconds.mean(axis=1), errors, call_p50, call_p99, call_errors, attempts
    )


def _time_of_calls(
    traces: LayerTraces,
    answer: Floats,
    errors: Floats,
    retries_per_failure: Floats,
    timeout: Floats,
    network: Floats,
    shares: Floats,
    rows: int,
) -> Floats:
    """Return the time that each traced request in a layer waits for its calls, s, ``[rows]``.

    A trace above the timeout waits for the timeout in each attempt. A trace with an error repeats its wait per retry.
    """
    call = traces.call
    tries_on_timeout = 1.0 + retries_per_failure
    tries = 1.0 + retries_per_failure * errors
    limit = timeout[call]
    seconds = np.where(answer > limit, limit * tries_on_timeout[call], answer * tries[call]) + network[call]
    return np.bincount(traces.row, seconds * traces.count * shares[call], rows).astype(np.float64, copy=False)


def _phase(column: Ints) -> Floats:
    """Return a fixed value in 0..1 per trace, spread by the golden ratio: it decides which traced attempts are lost."""
    phase: Floats = np.mod(column * 0.6180339887498949, 1.0)
    return phase


def _quantiles(seconds: Floats) -> tuple[Floats, Floats]:
    partial = np.partition(seconds, MEDIAN, axis=1)
    return partial[:, MEDIAN], seconds.max(axis=1)
