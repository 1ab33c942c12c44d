"""Decodes OTLP metrics: the data points of an OpenTelemetry collector's service graph connector."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from serve_app.collect.prometheus.dialects.opentelemetry import OWN_MEANING, USER, VIRTUAL
from serve_app.errors import DocumentTooLarge, MalformedDocument

JSON, PROTOBUF = "application/json", "application/x-protobuf"
Attributes = tuple[tuple[str, bytes], ...]  # keys and encoded values
Measure = Literal["requests", "failures", "server_buckets", "client_buckets"]
_PREFIX = "traces_service_graph_request_"
# The connector's names since 2023, and the same without the unit, as some exporters send them.
_MEASURES: dict[str, Measure] = {
    f"{_PREFIX}total": "requests",
    f"{_PREFIX}failed_total": "failures",
    f"{_PREFIX}server_seconds": "server_buckets",
    f"{_PREFIX}server": "server_buckets",
    f"{_PREFIX}client_seconds": "client_buckets",
    f"{_PREFIX}client": "client_buckets",
}
FREE_PARTS = 100  # parts that may always be tiny
MIN_BYTES = 10  # mean size of a message or JSON object; real ones are larger, and tiny ones cost seconds of CPU time
MAX_SCALE = 30  # of an exponential histogram; real ones are between -10 and 20
# The bounds to which its counts are converted, s: 0.06 ms to 512 s, 9% apart.
_EXPONENTS = np.arange(-14 * 8, 9 * 8 + 1) / 8
EXPONENTIAL_BOUNDS: Final = tuple((2.0**_EXPONENTS).tolist())
_SECONDS = {"ms": 1e-3}  # of one unit; all other units are seconds
# The connector sets `failed` to the outcome of the last request, so it does not tell series apart.
_NO_IDENTITY = frozenset({"client", "server", "failed"})


@dataclass(frozen=True, slots=True)
class Point:
    """One data point of a call.

    Attributes:
        attributes: all other attributes of the point and its resource. They distinguish series of the same call.
        start: when counting began, ns of Unix time; 0: unknown.
        at: when it was measured, ns of Unix time.
        is_delta: whether it counts the requests from ``start`` to ``at`` only, instead of all since ``start``.
        counts: number of requests, in total or in each bucket.
        bounds: upper bounds of all buckets except the last, s; empty for a total.
    """

    measure: Measure
    client: str
    server: str
    attributes: Attributes
    start: int
    at: int
    is_delta: bool
    counts: tuple[float, ...]
    bounds: tuple[float, ...] = ()


def decode_metrics(body: bytes, media_type: str) -> tuple[list[Point], int]:
    """Decode an ``ExportMetricsServiceRequest`` (:data:`PROTOBUF` or :data:`JSON`) to the data points of a service
    graph, and count the other data points, which are ignored.

    Raises:
        MalformedDocument: it is not such a message.
        DocumentTooLarge: it has a huge number of tiny parts.
    """
    if media_type == JSON:
        _require_size(body.count(b"{"), body)
    request = ExportMetricsServiceRequest()
    try:
        if media_type == JSON:
            if not body.lstrip().startswith(b"{"):
                raise json_format.ParseError("something other than an object")
            json_format.Parse(body, request, ignore_unknown_fields=True)
        else:
            request.ParseFromString(body)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedDocument(
            f"body: expected an ExportMetricsServiceRequest as {media_type}, got {str(error)[:200]}; send OTLP metrics"
        ) from None
    points: list[Point] = []
    parts, point_count = len(request.resource_metrics), 0
    _require_size(parts, body)
    for resource in request.resource_metrics:
        parts += len(resource.scope_metrics)
        _require_size(parts, body)
        for metrics in (scope.metrics for scope in resource.scope_metrics):
            parts += len(metrics)
            _require_size(parts, body)
            for metric in metrics:
                kind = metric.WhichOneof("data")
                if kind is not None:
                    point_count += len(getattr(metric, kind).data_points)
                    _require_size(parts + point_count, body)
                    points += _points(metric, kind, resource.resource.attributes)
    return points, point_count - len(points)


def virtual_end(client: str, attributes: Attributes) -> Literal["client", "server", ""]:
    """Return the end of a call that is a virtual node; empty if both send spans."""
    if (_CONNECTION_TYPE, _VIRTUAL) not in attributes or not _OWN_MEANING.isdisjoint(attributes):
        return ""
    for end in ENDS:
        if (VIRTUAL, _encode_text(end)) in attributes:
            return end
    return "client" if client == USER else "server"


def has_connection_type(attributes: Attributes) -> bool:
    """Return whether a point says what kind of call it counts. Old versions never do."""
    return any(key == _CONNECTION_TYPE and value != _encode_text("") for key, value in attributes)


def encode_response(media_type: str, ignored_points: int) -> bytes:
    """Return the answer to a request with this many ignored data points."""
    response = ExportMetricsServiceResponse()
    if ignored_points:
        response.partial_success.rejected_data_points = ignored_points
        response.partial_success.error_message = (
            f"expected metrics of the service graph connector ({_PREFIX}total and others) with the attributes client "
            "and server, as monotonic sums or histograms; other data points are ignored"
        )
    if media_type == JSON:
        text: str = json_format.MessageToJson(response, indent=None)
        return text.encode()
    content: bytes = response.SerializeToString()
    return content


def _require_size(parts: int, body: bytes) -> None:
    limit = FREE_PARTS + len(body) // MIN_BYTES
    if parts > limit:
        raise DocumentTooLarge(
            f"body: expected at most {limit} messages in {len(body)} bytes, got {parts} or more; "
            "send metrics with names and values"
        )


def _points(metric: Any, kind: str, resource: Iterable[Any]) -> Iterator[Point]:
    measure = _MEASURES.get(metric.name)
    is_counter = measure in ("requests", "failures")
    if measure is None or kind not in (("sum",) if is_counter else ("histogram", "exponential_histogram")):
        return
    data = getattr(metric, kind)
    if is_counter and not data.is_monotonic:
        return
    if data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED:
        return
    is_delta = data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    resource_attributes = [(f"resource.{pair.key}", _encode(pair.value)) for pair in resource]
    seconds = _SECONDS.get(metric.unit, 1.0)
    for point in data.data_points:
        names = {pair.key: pair.value.string_value for pair in point.attributes if pair.key in _NO_IDENTITY}
        client, server = names.get("client", ""), names.get("server", "")
        counts, bounds = _COUNTS[kind](point, seconds)
        is_recorded = not point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
        if client and server and counts and point.time_unix_nano and is_recorded:
            own_attributes = (
                (pair.key, _encode(pair.value)) for pair in point.attributes if pair.key not in _NO_IDENTITY
            )
            attributes = tuple(sorted([*resource_attributes, *own_attributes]))
            times = point.start_time_unix_nano, point.time_unix_nano
            yield Point(measure, client, server, attributes, *times, is_delta, counts, bounds)


def _count(point: Any, _: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a point's counts and bounds; empty if they are unusable."""
    value = float(getattr(point, point.WhichOneof("value") or "as_int"))
    return ((value,), ()) if 0 <= value < math.inf else ((), ())


def _buckets(point: Any, seconds: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    bounds = tuple(bound * seconds for bound in point.explicit_bounds)
    ascending = all(a < b for a, b in pairwise(bounds)) and all(map(math.isfinite, bounds))
    if not bounds or not ascending or len(point.bucket_counts) != len(bounds) + 1:
        return (), ()
    return tuple(map(float, point.bucket_counts)), bounds


def _exponential_buckets(point: Any, seconds: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Convert an exponential histogram, whose bounds vary, to counts of fixed buckets. The count of a wider bucket is
    spread over it."""
    if abs(point.scale) > MAX_SCALE:
        return (), ()
    positive = np.array(point.positive.bucket_counts, np.float64)
    bounds = (point.positive.offset + np.arange(len(positive) + 1.0)) * 2.0**-point.scale + math.log2(seconds)
    below = point.zero_count + sum(point.negative.bucket_counts)
    cumulative = below + np.interp(_EXPONENTS, bounds, np.append(0, positive.cumsum()))
    counts = np.diff(cumulative, prepend=0, append=below + positive.sum())
    return tuple(count or 0.0 for count in counts.tolist()), EXPONENTIAL_BOUNDS  # one shared object for most points


_COUNTS = {"sum": _count, "histogram": _buckets, "exponential_histogram": _exponential_buckets}


def _encode_text(text: str) -> bytes:
    return _encode(AnyValue(string_value=text))


def _encode(value: Message) -> bytes:
    content: bytes = value.SerializeToString(deterministic=True)
    return content


ENDS: Final = ("client", "server")
_CONNECTION_TYPE, _VIRTUAL = "connection_type", _encode_text(VIRTUAL)
_OWN_MEANING = frozenset(("source", _encode_text(source)) for source in OWN_MEANING)
