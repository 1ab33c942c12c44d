"""Natural variation: daily and weekly load, call mix, speed, short slowdowns."""

import math
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from lab.simulator.mesh.topology import MeshSpec, Topology
from lab.simulator.physics.queueing import Floats

DAY = 86_400.0  # s
HIGHEST, LOWEST = 0.7023, -0.9838  # of the daily curve in :func:`entry_factor`, before its amplitude
WEEKEND_CENTRE, WEEKEND_HALF, WEEKEND_CHANGE = 144.0, 24.0, 6.0  # h since Monday 0:00, h, h from one level to the other
HICCUP_SECONDS, HICCUP_STRENGTH = 22.5, 1.0  # mean duration of a slowdown; its largest extra time, as a factor


@dataclass(frozen=True, slots=True)
class Variation:
    """Amplitudes of the variation.

    Attributes:
        day_amplitude, day_phase: of each namespace's load, at its gateways, ``[N]``.
        entry, service, call, memory: the slow noise's standard deviations in load, speed, calls per request (in
            logarithms) and memory, ``[N]``, ``[N]``, ``[E]``, ``[N]``.
        entry_fast: standard deviation of the load from one tick to the next, in logarithms.
        memory_of_noise: correlation of the slow noise with its value one tick before.
        hiccup, hiccup_ends: probabilities per tick that a service's slowdown begins and ends.
    """

    day_amplitude: Floats
    day_phase: Floats
    entry: Floats
    service: Floats
    call: Floats
    memory: Floats
    entry_fast: float
    memory_of_noise: float
    hiccup: float
    hiccup_ends: float


@dataclass(frozen=True, slots=True)
class Noise:
    """Current slow noise, in standard deviations, and the factor of slowdowns on the service time."""

    entry: Floats
    service: Floats
    call: Floats
    memory: Floats
    hiccup: Floats


def draw_variation(spec: MeshSpec, topology: Topology, rng: np.random.Generator) -> Variation:
    """Draw a mesh's variation; some meshes vary more than others."""
    services, calls = len(topology.node_ids), len(topology.source)
    scale = rng.lognormal(0.0, 0.4)
    namespace = topology.namespace
    amplitude, phase = rng.uniform(0.12, 0.32), rng.uniform(0.0, 2.0 * math.pi)
    amplitude = amplitude if spec.day_amplitude is None else spec.day_amplitude
    shift = rng.normal(0.0, 0.3, int(namespace.max()) + 1)
    minutes = rng.uniform(8.0, 40.0)
    return Variation(
        day_amplitude=np.full(services, amplitude),
        day_phase=phase + shift[namespace],
        entry=np.full(services, 0.05 * scale),
        service=np.clip(0.015 * scale * rng.lognormal(0.0, 0.6, services), 0.002, 0.12),
        call=np.clip(0.025 * scale * rng.lognormal(0.0, 0.5, calls), 0.003, 0.15),
        memory=rng.uniform(0.003, 0.015, services),
        entry_fast=0.015 * scale,
        memory_of_noise=math.exp(-spec.interval_seconds / (minutes * 60.0)),
        hiccup=min(spec.hiccups_per_hour * spec.interval_seconds / 3600.0, 1.0),
        hiccup_ends=min(1.0, spec.interval_seconds / HICCUP_SECONDS),
    )


def first_noise(topology: Topology, rng: np.random.Generator) -> Noise:
    """Draw the noise in its stationary state."""
    services, calls = len(topology.node_ids), len(topology.source)
    entry, service, memory = rng.standard_normal((3, services))
    return Noise(entry, service, rng.standard_normal(calls), memory, np.ones(services))


def next_noise(variation: Variation, noise: Noise, rng: np.random.Generator) -> Noise:
    """Advance the Ornstein-Uhlenbeck processes by a step, with a fixed number of random draws."""
    services, calls = len(noise.service), len(noise.call)
    keep = variation.memory_of_noise
    fresh = math.sqrt(1.0 - keep * keep)
    entry, service, memory = rng.standard_normal((3, services))
    call = rng.standard_normal(calls)
    begins, ends, size = rng.random((3, services))
    hiccup = np.where(ends < variation.hiccup_ends, 1.0, noise.hiccup)
    hiccup = np.where(begins < variation.hiccup, 1.1 + HICCUP_STRENGTH * size * size, hiccup)
    return Noise(
        keep * noise.entry + fresh * entry,
        keep * noise.service + fresh * service,
        keep * noise.call + fresh * call,
        keep * noise.memory + fresh * memory,
        hiccup,
    )


def day_amplitude(ratio: float) -> float:
    """Return the amplitude with which the busiest time of a day has ``ratio`` times the load of the quietest."""
    return (ratio - 1.0) / (HIGHEST - LOWEST * ratio)


def week_factor(weekend: float, when: datetime) -> float:
    """Return the load over a working day's load: ``weekend`` on Saturday and Sunday, UTC. It changes in the hours
    around midnight."""
    hours = when.weekday() * 24.0 + when.hour + when.minute / 60.0 + when.second / 3600.0
    distance = abs((hours - WEEKEND_CENTRE + 84.0) % 168.0 - 84.0)
    share = min(max((WEEKEND_HALF + WEEKEND_CHANGE / 2.0 - distance) / WEEKEND_CHANGE, 0.0), 1.0)
    return 1.0 + (weekend - 1.0) * share


def entry_factor(variation: Variation, noise: Noise, seconds: float, rng: np.random.Generator) -> Floats:
    """Return the load over its mean, ``seconds`` after midnight UTC, ``[N]``."""
    angle = 2.0 * math.pi * seconds / DAY + variation.day_phase
    day = 1.0 + variation.day_amplitude * (0.8 * np.sin(angle) + 0.2 * np.sin(2.0 * angle + 1.0))
    fast = variation.entry_fast * rng.standard_normal(len(noise.entry))
    return day * np.exp(variation.entry * noise.entry + fast)
