"""Services and calls that can appear later: newcomers, canaries, and the calls of misroutes.

They exist from the start without traffic, so that activating them alters no random draw.
"""

from collections import Counter
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lab.simulator.mesh.topology import Ints, MeshSpec, Topology
from lab.simulator.mesh.traces import draw_traces
from lab.simulator.physics.propagation import (
    SCENARIOS,
    CallParameters,
    LayerTraces,
    MeshPhysics,
    ServiceParameters,
)
from lab.simulator.physics.queueing import Floats

MOST_LATENT = 2000  # maximum number of services, enough for a mesh of 100,000
MOST_CALLS = 60  # limit for a service with a twin; twins of hubs would double the mesh's calls
CANARIES = 0.6  # share of latent services that are canaries; the others are newcomers
SIMILAR_FLOW = 1.1  # calls may be swapped if neither destination's rate moves by more than this factor


@dataclass(frozen=True, slots=True)
class _Twins:
    """Latent copies of services, ``[K]``: original, name, and whether it is a canary."""

    like: Ints
    name: tuple[str, ...]
    canary: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _CallIndex:
    """Latent calls, ``[M]``: source, destination, original call, calls per request."""

    source: Ints
    destination: Ints
    like: Ints
    calls_per_request: Floats


def add_latent(mesh: MeshPhysics, spec: MeshSpec, rng: np.random.Generator) -> MeshPhysics:
    """Add newcomers, canaries and misroutes; existing services and calls keep all parameters."""
    if spec.latent <= 0:
        return mesh
    twins = _draw_twins(mesh, spec, rng)
    swaps = _draw_swaps(mesh, max(2, round(spec.latent * spec.services / 2)))
    calls = _join(_calls_of_twins(mesh.topology, twins, rng), _calls_of_swaps(mesh.topology, swaps))
    return _extend(mesh, twins, calls, swaps, rng)


def _draw_twins(mesh: MeshPhysics, spec: MeshSpec, rng: np.random.Generator) -> _Twins:
    topology = mesh.topology
    count = len(topology.node_ids)
    degree = np.bincount(topology.source, minlength=count) + np.bincount(topology.destination, minlength=count)
    eligible = np.flatnonzero((topology.layer > 0) & ~topology.shared & (degree <= MOST_CALLS))
    total = min(max(5, round(spec.latent * spec.services)), MOST_LATENT, len(eligible))
    like = rng.choice(eligible, size=total, replace=False)
    canary = np.arange(total) < round(CANARIES * total)
    numbers = Counter(name.split("/")[1].rsplit("-", 1)[0] for name in topology.node_ids)
    names = []
    for i, is_canary in zip(like, canary, strict=True):
        name = topology.node_ids[i]
        if is_canary:
            names.append(f"{name}-canary")
            continue
        stem = name.rsplit("-", 1)[0]
        word = stem.split("/")[1]
        numbers[word] += 1
        names.append(f"{stem}-{numbers[word]}")
    return _Twins(like, tuple(names), canary)


def _calls_of_twins(topology: Topology, twins: _Twins, rng: np.random.Generator) -> _CallIndex:
    """Return the twins' calls: a canary has all calls of its original, a newcomer some, with less traffic."""
    count = len(topology.node_ids)
    twin = np.full(count, -1)
    twin[twins.like] = np.arange(len(twins.like))
    into, out = np.flatnonzero(twin[topology.destination] >= 0), np.flatnonzero(twin[topology.source] >= 0)
    into_twin, out_twin = twin[topology.destination[into]], twin[topology.source[out]]
    first = np.zeros(len(into), np.bool_)
    first[np.unique(into_twin, return_index=True)[1]] = True
    keep = twins.canary[into_twin] | first | (rng.random(len(into)) < 0.5)
    share = np.where(twins.canary, 1.0, rng.uniform(0.1, 0.3, len(twins.like)))
    into, into_twin = into[keep], into_twin[keep]
    like = np.concatenate([into, out])
    return _CallIndex(
        np.concatenate([topology.source[into], count + out_twin]),
        np.concatenate([count + into_twin, topology.destination[out]]),
        like,
        topology.calls_per_request[like] * np.concatenate([share[into_twin], np.ones(len(out))]),
    )


def _draw_swaps(mesh: MeshPhysics, limit: int) -> Ints:
    """Return pairs of calls ``[P, 2]`` whose destinations can be swapped without much change in rates and latencies."""
    topology = mesh.topology
    count = len(topology.node_ids)
    source, to = topology.source, topology.destination
    flow = mesh.usual_rate[source] * topology.calls_per_request
    busy = np.flatnonzero((flow >= min(5.0, float(np.quantile(flow, 0.7)))) & ~topology.shared[to])
    busy = busy[np.argsort(flow[busy], kind="stable")]
    first = np.concatenate([busy[: max(len(busy) - k, 0)] for k in range(1, 6)])
    second = np.concatenate([busy[k:] for k in range(1, 6)])
    keys = source * count + to
    valid = (flow[second] < SIMILAR_FLOW * flow[first]) & (source[first] != source[second]) & (to[first] != to[second])
    valid &= (topology.layer[source[first]] < topology.layer[to[second]]) & (
        topology.layer[source[second]] < topology.layer[to[first]]
    )
    valid &= ~np.isin(source[first] * count + to[second], keys) & ~np.isin(source[second] * count + to[first], keys)
    first, second = first[valid], second[valid]
    dissimilarity = np.abs(np.log(flow[second] / flow[first]))
    dissimilarity += 0.5 * np.abs(np.log(mesh.usual_p50[to[second]] / mesh.usual_p50[to[first]]))
    used_services: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for i in np.argsort(dissimilarity, kind="stable"):
        a, b = int(first[i]), int(second[i])
        ends = {int(source[a]), int(source[b]), int(to[a]), int(to[b])}
        if len(pairs) < limit and not ends & used_services:
            pairs.append((a, b))
            used_services |= ends
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _calls_of_swaps(topology: Topology, pairs: Ints) -> _CallIndex:
    """Return the first caller's calls to the second's destination, then the reverse, with the original timeouts."""
    first, second = pairs.T
    return _CallIndex(
        np.concatenate([topology.source[first], topology.source[second]]),
        np.concatenate([topology.destination[second], topology.destination[first]]),
        np.concatenate([second, first]),
        np.concatenate([topology.calls_per_request[first], topology.calls_per_request[second]]),
    )


def _join(index: _CallIndex, extra: _CallIndex) -> _CallIndex:
    return _CallIndex(*(np.concatenate([getattr(index, f.name), getattr(extra, f.name)]) for f in fields(_CallIndex)))


def _extend(mesh: MeshPhysics, twins: _Twins, calls: _CallIndex, swaps: Ints, rng: np.random.Generator) -> MeshPhysics:
    old = mesh.topology
    count, call_count = len(old.node_ids), len(old.source)
    like = np.concatenate([np.arange(count), twins.like])
    call_like = np.concatenate([np.arange(call_count), calls.like])
    order, position = _sorted_by(old.layer[like])
    source = position[np.concatenate([old.source, calls.source])]
    destination = position[np.concatenate([old.destination, calls.destination])]
    call_order = np.lexsort((destination, source))
    call_position = np.empty_like(call_order)
    call_position[call_order] = np.arange(len(call_order))
    layer = old.layer[like][order]
    bounds = np.searchsorted(layer, np.arange(len(old.node_slices) + 1))
    names = (*old.node_ids, *twins.name)
    topology = Topology(
        node_ids=tuple(names[i] for i in order),
        namespace=old.namespace[like][order],
        layer=layer,
        shared=old.shared[like][order],
        source=source[call_order],
        destination=destination[call_order],
        calls_per_request=np.concatenate([old.calls_per_request, calls.calls_per_request])[call_order],
        node_slices=tuple(slice(a, b) for a, b in pairwise(bounds)),
        call_slices=tuple(slice(a, b) for a, b in pairwise(np.searchsorted(source[call_order], bounds))),
        latent=order >= count,
        latent_calls=call_order >= call_count,
    )
    at, call_at = like[order], call_like[call_order]
    services = ServiceParameters(*(getattr(mesh.services, f.name)[at] for f in fields(ServiceParameters)))
    parameters = CallParameters(*(getattr(mesh.calls, f.name)[call_at] for f in fields(CallParameters)))
    first = call_count + len(calls.source) - 2 * len(swaps)
    latent_of_swaps = np.arange(first, call_count + len(calls.source)).reshape(2, -1).T
    return replace(
        mesh,
        topology=topology,
        services=services,
        calls=parameters,
        traces=_extend_traces(
            mesh,
            topology,
            position,
            call_position,
            _canary_calls(twins, calls, count, call_count),
            services.parallelism,
            rng,
        ),
        usual_rate=np.where(topology.latent, 0.0, mesh.usual_rate[at]),
        usual_p50=mesh.usual_p50[at],
        usual_utilisation=mesh.usual_utilisation[at],
        newcomers=position[count + np.flatnonzero(~twins.canary)],
        canaries=position[np.stack([twins.like, count + np.arange(len(twins.like))], axis=1)][twins.canary],
        misroutes=call_position[np.concatenate([swaps, latent_of_swaps], axis=1)],
    )


def _sorted_by(layer: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(layer, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return order, position


def _canary_calls(twins: _Twins, calls: _CallIndex, count: int, call_count: int) -> Ints:
    """Return the canaries' calls ``[P, 2]``, before sorting: the original call, and the canary's. ``count`` and
    ``call_count`` are the numbers of services and calls without latent ones."""
    is_canary = np.concatenate([np.zeros(count, np.bool_), twins.canary])
    rows = np.flatnonzero(is_canary[calls.source] | is_canary[calls.destination])
    return np.stack([calls.like[rows], call_count + rows], axis=1)


def _extend_traces(
    mesh: MeshPhysics,
    topology: Topology,
    position: Ints,
    call_position: Ints,
    canary_calls: Ints,
    parallelism: Floats,
    rng: np.random.Generator,
) -> tuple[LayerTraces, ...]:
    """Return the existing traces at their new positions, and the latent calls' traces.

    A canary answers the same requests as its service. With other traces, the callers' percentiles would change with the
    canary's share.
    """
    latent = draw_traces(topology, parallelism, rng, latent=True)
    pairs = call_position[canary_calls]
    traces = []
    for nodes, calls, before, before_calls, old, new in zip(
        topology.node_slices,
        topology.call_slices,
        mesh.topology.node_slices,
        mesh.topology.call_slices,
        mesh.traces,
        latent,
        strict=True,
    ):
        row = position[old.row // SCENARIOS + before.start] * SCENARIOS + old.row % SCENARIOS
        column = position[old.column // SCENARIOS] * SCENARIOS + old.column % SCENARIOS
        call = call_position[old.call + before_calls.start] - calls.start
        canary_pairs = pairs[(pairs[:, 1] >= calls.start) & (pairs[:, 1] < calls.stop)]
        is_other = ~np.isin(new.call + calls.start, canary_pairs[:, 1])
        at, canary = _traces_of(call + calls.start, canary_pairs)
        traces.append(
            LayerTraces(
                np.concatenate(
                    [
                        row - nodes.start * SCENARIOS,
                        new.row[is_other],
                        (topology.source[canary] - nodes.start) * SCENARIOS + row[at] % SCENARIOS,
                    ]
                ),
                np.concatenate(
                    [
                        column,
                        new.column[is_other],
                        topology.destination[canary] * SCENARIOS + column[at] % SCENARIOS,
                    ]
                ),
                np.concatenate([call, new.call[is_other], canary - calls.start]),
                np.concatenate([old.count, new.count[is_other], old.count[at]]),
            )
        )
    return tuple(traces)


def _traces_of(call: Ints, pairs: Ints) -> tuple[Ints, Ints]:
    """Return the traces of each pair's first call, and for each trace the second call, ``[K]`` each.

    Args:
        call: ``[T]``, each trace's call.
        pairs: ``[P, 2]`` calls.
    """
    order = np.argsort(call, kind="stable")
    first, last = (np.searchsorted(call[order], pairs[:, 0], side) for side in ("left", "right"))
    at = [order[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *at]), np.repeat(pairs[:, 1], last - first)
