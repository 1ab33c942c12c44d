"""Inputs of the network from a snapshot: channels, their units, transforms and noise.

A *channel* is one number of a service or of a call, transformed so that a difference of one step means the same at any
level. Seven channels of a service are its metrics. Two are ratios that do not depend on the load and therefore transfer
between meshes: ``own_time`` (self time: latency without downstream calls) and ``cpu_per_request``. Four channels of a
call are its metrics, the fifth is its ``weight``: its share of the source's outgoing traffic.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernels import passes
from model.errors import IncompatibleWeights
from model.snapshot import LARGEST_VALUE, BoolArray, FloatArray, IntArray

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel.

    Attributes:
        unit: of the value before the transform.
        transform: ``log`` is log(x + offset); ``logit`` is log((x + offset) / (1 - x + offset)).
        offset: smallest value that matters, in the channel's unit; keeps zero finite.
        floor: smallest spread, in transformed units; smaller deviations are never unusual.
        prior: spread assumed for a new channel, in transformed units.
        two_sided: whether a fall is as unusual as a rise (traffic); else only a rise counts (latency, errors).
    """

    name: str
    unit: str
    transform: str
    offset: float
    floor: float
    prior: float
    two_sided: bool = False

    def forward(self, x: Array) -> Array:
        if self.transform == "log":
            return np.asarray(np.log(x + np.float32(self.offset)), dtype=np.float32)
        odds: Array = (x + np.float32(self.offset)) / (1 - x + np.float32(self.offset))
        return np.asarray(np.log(odds), dtype=np.float32)

    def inverse(self, y: float) -> float:
        """Convert back to the channel's unit; never below zero."""
        return float(self.invert(np.asarray(y)))

    def invert(self, y: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert an array back to the channel's unit; never below zero."""
        exact, offset = y.astype(np.float64), self.offset
        if self.transform == "log":
            return np.maximum(np.exp(np.minimum(exact, 60.0)) - offset, 0.0)
        odds = np.exp(np.clip(exact, -60.0, 60.0))
        return np.clip((odds * (1 + offset) - offset) / (1 + odds), 0.0, 1.0)


def rate_of(log_rates: NDArray[np.floating]) -> Array:
    """Return requests/s of services or calls from their first channel; never below zero."""
    return np.maximum(np.exp(log_rates) - np.float32(NODE_CHANNELS[RATE].offset), 0)


NODE_CHANNELS = (
    Channel("request_rate", "1/s", "log", 0.05, 0.05, 0.2, two_sided=True),
    Channel("error_rate", "ratio", "logit", 0.005, 0.10, 0.3),
    Channel("p50_latency", "s", "log", 2e-4, 0.05, 0.15),
    Channel("p99_latency", "s", "log", 2e-4, 0.08, 0.25),
    Channel("cpu_utilization", "ratio", "log", 0.02, 0.05, 0.2),
    Channel("memory_utilization", "ratio", "log", 0.02, 0.03, 0.1),
    Channel("active_connections", "1", "log", 1.0, 0.10, 0.2),
    Channel("own_time", "s", "log", 2e-4, 0.10, 0.25),
    Channel("cpu_per_request", "s", "log", 1e-4, 0.08, 0.25),
)
EDGE_CHANNELS = (
    Channel("requests_per_second", "1/s", "log", 0.05, 0.05, 0.25, two_sided=True),
    Channel("error_rate", "ratio", "logit", 0.005, 0.10, 0.3),
    Channel("p50_latency", "s", "log", 2e-4, 0.05, 0.15),
    Channel("p99_latency", "s", "log", 2e-4, 0.08, 0.25),
    Channel("weight", "ratio", "log", 0.01, 0.05, 0.15, two_sided=True),
)
RATE, ERROR, P50, P99, CPU, MEMORY, CONNECTIONS, OWN_TIME, CPU_PER_REQUEST = range(9)
_NODE_OFFSETS, _EDGE_OFFSETS = (np.array([c.offset for c in of], np.float32) for of in (NODE_CHANNELS, EDGE_CHANNELS))
# Of requests: the share of them below a quantile, and the channels of which a snapshot with few requests says little.
QUANTILES = {"p50_latency": 0.5, "own_time": 0.5, "p99_latency": 0.99}
COUNTED = frozenset({"error_rate", *QUANTILES})
MEDIAN_NOISE = 0.39  # variance of a median's logarithm with one request: 0.25 / (0.798 ** 2)
MANY = 1e9  # requests, if their number is not known
WEIGHT = 4  # the first four channels of a call have the names of a service's channels


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """Ordered channels and their version; part of every checkpoint and saved state."""

    version: int = 3
    node: tuple[Channel, ...] = NODE_CHANNELS
    edge: tuple[Channel, ...] = EDGE_CHANNELS

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(
            fields["version"],
            tuple(Channel(**c) for c in fields["node"]),
            tuple(Channel(**c) for c in fields["edge"]),
        )

    def require(self, other: "FeatureSchema", subject: str) -> None:
        """Refuse ``subject`` if it has another schema, and name the first difference.

        Raises:
            IncompatibleWeights: the schemas differ.
        """
        if self == other:
            return
        for kind in ("node", "edge"):
            ours, theirs = getattr(self, kind), getattr(other, kind)
            for i in range(max(len(ours), len(theirs))):
                a, b = ours[i : i + 1], theirs[i : i + 1]
                if a != b:
                    raise IncompatibleWeights(
                        f"{subject}: {kind} channel {i}: expected {a[0] if a else 'none'}, got "
                        f"{b[0] if b else 'none'}; train again, or use the version that made it"
                    )
        raise IncompatibleWeights(
            f"{subject}: expected feature schema {self.version}, got {other.version}; train again, or use the version "
            "that made it"
        )


SCHEMA = FeatureSchema()


@dataclass(frozen=True, slots=True)
class ChannelValues:
    """Transformed channels of one instant, with the sampling noise that counts bring into them.

    Attributes:
        node: ``[N, 9]``, transformed units; 0 where not observed.
        node_observed: bool ``[N, 9]``.
        node_noise: ``[N, 9]`` variance of the sampling noise, transformed units squared.
        edge, edge_observed, edge_noise: the same, ``[E, 5]``.
    """

    node: Array
    node_observed: BoolArray
    node_noise: Array
    edge: Array
    edge_observed: BoolArray
    edge_noise: Array


def channel_values(
    node_features: FloatArray,
    node_observed: BoolArray,
    edge_features: FloatArray,
    edge_observed: BoolArray,
    edge_index: IntArray,
    interval_seconds: float,
) -> ChannelValues:
    """Compute the channels of every service and call.

    Values above ``LARGEST_VALUE`` are clipped, so that their squares and products stay within float32. The API refuses
    them, but older versions stored them.

    Args:
        node_features, node_observed: ``[N, 7]`` metrics, and which of them were observed.
        edge_features, edge_observed: ``[E, 4]`` likewise.
        interval_seconds: time over which requests were counted, s; sets the sampling noise.
    """
    if passes.are_compiled():
        tables = node_features, edge_features, node_observed, edge_observed
        return ChannelValues(
            *passes.channel_values(interval_seconds, LARGEST_VALUE, _NODE_OFFSETS, _EDGE_OFFSETS, *tables, edge_index)
        )
    node_features = np.minimum(node_features, np.float32(LARGEST_VALUE))
    edge_features = np.minimum(edge_features, np.float32(LARGEST_VALUE))
    count = len(node_features)
    source = edge_index[0]
    node = np.empty((count, len(NODE_CHANNELS)), np.float32)
    observed = np.zeros(node.shape, bool)
    node[:, :OWN_TIME], observed[:, :OWN_TIME] = node_features, node_observed
    node[:, OWN_TIME], observed[:, OWN_TIME] = _own_time(
        node_features, node_observed, edge_features, edge_observed, source
    )
    rate, cpu = node_features[:, RATE], node_features[:, CPU]
    node[:, CPU_PER_REQUEST] = cpu / np.maximum(rate, 0.05)
    observed[:, CPU_PER_REQUEST] = node_observed[:, CPU] & node_observed[:, RATE] & (rate > 0.05)

    edge = np.empty((edge_index.shape[1], len(EDGE_CHANNELS)), np.float32)
    edge_seen = np.ones(edge.shape, bool)
    edge[:, :WEIGHT], edge_seen[:, :WEIGHT] = edge_features, edge_observed
    calls = edge_features[:, RATE]
    outgoing = np.bincount(source, calls, count).astype(np.float32)
    edge[:, WEIGHT] = calls / np.maximum(outgoing[source], 1e-6)
    edge_seen[:, WEIGHT] = outgoing[source] > 0.05

    node_rate = np.where(node_observed[:, RATE], rate, np.bincount(edge_index[1], calls, count)).astype(np.float32)
    node_noise = _noise(node, node_rate * np.float32(interval_seconds), NODE_CHANNELS, interval_seconds)
    edge_noise = _noise(edge, calls * np.float32(interval_seconds), EDGE_CHANNELS, interval_seconds)
    # The share of a source's traffic is a proportion of its outgoing count.
    total = np.maximum(outgoing[source] * np.float32(interval_seconds), 1)
    share = edge[:, WEIGHT]
    edge_noise[:, WEIGHT] = share * (1 - share) / total / (share + np.float32(EDGE_CHANNELS[WEIGHT].offset)) ** 2
    return ChannelValues(
        _transform(node, observed, NODE_CHANNELS),
        observed,
        node_noise,
        _transform(edge, edge_seen, EDGE_CHANNELS),
        edge_seen,
        edge_noise,
    )


def _own_time(
    node: FloatArray, node_observed: BoolArray, edge: FloatArray, edge_observed: BoolArray, source: IntArray
) -> tuple[Array, BoolArray]:
    """Return median latency less the callees' (calls per request x their latency), at least a twentieth of it.

    Parallel calls count as if made in sequence. The ratio is compared with its own past, so a constant factor does not
    matter.
    """
    count = len(node)
    measured = edge_observed[:, P50]
    wait = np.bincount(source, np.where(measured, edge[:, RATE] * edge[:, P50], 0), count)
    calls = np.bincount(source, edge[:, RATE], count)
    blind = np.bincount(source, np.where(measured, 0, edge[:, RATE]), count)
    rate = node[:, RATE]
    is_known = node_observed[:, RATE] & node_observed[:, P50] & (rate > 0.05) & (blind <= 0.05 * calls)
    latency = node[:, P50]
    own = latency - wait / np.maximum(rate, 0.05)
    return np.maximum(own, 0.05 * latency).astype(np.float32), is_known


def _transform(values: Array, observed: BoolArray, channels: tuple[Channel, ...]) -> Array:
    columns = [c.forward(values[:, i]) for i, c in enumerate(channels)]
    return np.where(observed, np.stack(columns, axis=1), np.float32(0)).astype(np.float32)


def count_requests(noise: Array, observed: BoolArray) -> Array:
    """Return the requests ``[N]`` behind each row of sampling noise, ``[N, C]``; ``MANY`` where they are not known."""
    of_median = np.where(observed[:, RATE], noise[:, P50], np.float32(0))
    variance = np.maximum(of_median, np.float32(MEDIAN_NOISE / MANY))
    return np.divide(np.float32(MEDIAN_NOISE), variance, dtype=np.float32)


def _noise(values: Array, requests: Array, channels: tuple[Channel, ...], interval_seconds: float) -> Array:
    """Return the sampling variance of each channel from counting ``requests``, by the delta method.

    A count n has variance n, plus one so that zero is not certain. A proportion p has p(1-p)/n, with one pseudo-count
    so that zero errors in few requests are not certain. A quantile q of a log-normal with sigma 0.5 (typical of
    latencies) has q(1-q)/(n f²), with f its density.
    """
    n = np.maximum(requests, 1)
    noise = np.zeros_like(values)
    for i, channel in enumerate(channels):
        x, offset = values[:, i], np.float32(channel.offset)
        if channel.name in ("request_rate", "requests_per_second"):
            noise[:, i] = (x + 1 / interval_seconds) / interval_seconds / (x + offset) ** 2
        elif channel.name == "error_rate":
            p = (x * n + 0.5) / (n + 1)
            noise[:, i] = p * (1 - p) / n * (1 / (p + offset) + 1 / (1 - p + offset)) ** 2
        elif channel.name in ("p50_latency", "own_time"):
            noise[:, i] = MEDIAN_NOISE / n
        elif channel.name == "p99_latency":
            noise[:, i] = 3.5 / n  # 0.0099 / (0.0533 ** 2)
        elif channel.name in ("cpu_per_request", "active_connections"):
            noise[:, i] = 1 / n
    return noise
