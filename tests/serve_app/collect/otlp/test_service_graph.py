"""Metrics of a service graph from a connector become a snapshot per interval."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from model.snapshot import MeshSnapshot
from serve_app.collect.otlp.decode import JSON, PROTOBUF, decode_metrics, encode_response
from serve_app.collect.otlp.service_graph import KEEP_INTERVALS, ServiceGraph, add_points
from serve_app.errors import DocumentTooLarge, MalformedDocument
from tests.serve_app.collect.otlp.connector import BEGAN, CUMULATIVE, DELTA, Connector, as_delta, split

INTERVAL = 15.0
WEB_CART, CART_DB, USER_WEB = ("web", "cart"), ("cart", "db"), ("user", "web")


def snapshots(requests: Iterable[ExportMetricsServiceRequest]) -> list[MeshSnapshot | None]:
    """Return the snapshot of each request."""
    graph, found = ServiceGraph(), []
    for request in requests:
        points, _ = decode_metrics(request.SerializeToString(), PROTOBUF)
        graph, snapshot = add_points(graph, points, INTERVAL)
        found.append(snapshot)
    return found


def calls(snapshot: MeshSnapshot | None) -> dict[tuple[str, str], list[float]]:
    """Return rate, error rate, p50 and p99 of each call."""
    assert snapshot is not None
    names = [name.removeprefix("default/") for name in snapshot.node_ids]
    ends = [(names[a], names[b]) for a, b in snapshot.edge_index.T.tolist()]
    return dict(zip(ends, snapshot.edge_features.tolist(), strict=True))


def services(snapshot: MeshSnapshot | None) -> dict[str, list[float]]:
    assert snapshot is not None
    names = [name.removeprefix("default/") for name in snapshot.node_ids]
    return dict(zip(names, snapshot.node_features.tolist(), strict=True))


def flushes(
    count: int, connector: Connector | None = None, period: float = INTERVAL
) -> list[ExportMetricsServiceRequest]:
    """150 requests from web to cart between two flushes, a tenth of them failing, in the second bucket."""
    one = connector or Connector()
    found = []
    for i in range(count):
        one.observe(USER_WEB, 300)
        one.observe(WEB_CART, 150, failures=15, bucket=1)
        found.append(one.flush(BEGAN + i * period))
    return found


def test_an_interval_is_a_snapshot_with_rates_errors_and_latencies() -> None:
    nothing, still_nothing, snapshot = snapshots(flushes(3))
    assert nothing is None
    assert still_nothing is None, "one flush has no rates, because its counts began earlier"
    assert calls(snapshot) == {WEB_CART: pytest.approx([10.0, 0.1, 0.15, 0.199])}
    found = services(snapshot)
    assert found.keys() == {"web", "cart"}, "user is no service"
    assert found["web"][:3] == pytest.approx([20.0, 0.0, 0.05])
    assert found["cart"][:4] == pytest.approx([10.0, 0.1, 0.15, 0.199])
    assert snapshot is not None
    assert snapshot.observed_at == datetime.fromtimestamp(BEGAN + INTERVAL, UTC)


VIRTUAL = {"connection_type": "virtual_node"}


def flows(of_call: dict[tuple[str, str], dict[str, str]], *edges: tuple[str, str]) -> MeshSnapshot | None:
    """Return the snapshot of 150 requests in each interval from each client to its server."""
    connector, requests = Connector(of_call=of_call), []
    for i in range(3):
        for one in edges:
            connector.observe(one, 150, bucket=2)
        requests.append(connector.flush(BEGAN + i * INTERVAL))
    return snapshots(requests)[-1]


def test_the_connection_type_tells_virtual_nodes_from_services() -> None:
    of_call = {
        USER_WEB: VIRTUAL,
        ("cart", "pay"): VIRTUAL,
        ("cart", "unknown"): VIRTUAL,
        ("user", "mail"): {**VIRTUAL, "virtual_node": "server"},
        ("ingress", "web"): {**VIRTUAL, "virtual_node": "client"},
        ("mobile", "web"): {**VIRTUAL, "source": "beyla"},
        ("cart", "user"): {"connection_type": "messaging_system"},
    }
    snapshot = flows(of_call, *of_call, ("unknown", "cart"))
    assert set(calls(snapshot)) == {
        ("cart", "pay"), ("user", "mail"), ("mobile", "web"), ("cart", "user"), ("unknown", "cart"),
    }  # fmt: skip
    assert services(snapshot)["web"][0] == pytest.approx(30.0), "with the requests from outside"


def test_a_virtual_server_has_the_latency_that_its_callers_measure() -> None:
    connector, requests = Connector(of_call={("cart", "pay"): VIRTUAL}), []
    for i in range(3):
        connector.observe(("cart", "pay"), 150, bucket=2)
        flush = connector.flush(BEGAN + i * INTERVAL)
        for metric in flush.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name.endswith("server_seconds"):  # the connector counts zeros, because there is no span
                point = metric.histogram.data_points[0]
                point.bucket_counts[:] = [sum(point.bucket_counts), 0, 0, 0, 0]
        requests.append(flush)
    assert services(snapshots(requests)[-1])["pay"][2] == pytest.approx(0.3)


@pytest.mark.parametrize("names", [("user", "web", "user"), ("unknown", "web", "unknown")])
def test_an_old_version_is_read_by_names_unless_they_are_called(names: tuple[str, str, str]) -> None:
    assert flows({}, names[:2]) is not None
    assert calls(flows({}, names[:2])) == {}
    assert set(calls(flows({}, names[:2], names[1:]))) == {names[:2], names[1:]}


def test_names_of_any_alphabet_stay_and_never_become_one() -> None:
    names = ["bank gateway", "bank/gateway", "bank_gateway", "订单服务", "支付服务", "z\u0323", "z\u200b"]
    found = flows({}, *(("web", name) for name in names))
    assert found is not None
    assert found.num_nodes == len(names) + 1
    assert {"default/订单服务", "default/bank~20~gateway", "default/bank/gateway"} < set(found.node_ids)


def test_a_flush_in_several_requests_is_one_snapshot() -> None:
    whole = snapshots(flushes(4))
    parts = snapshots(part for request in flushes(4) for part in split(request, 3))
    assert [one.digest for one in parts if one] == [one.digest for one in whole if one]
    assert sum(one is not None for one in parts) == 2


@pytest.mark.parametrize("jitter", [-0.4, 0.4])
def test_every_flush_is_a_snapshot_even_if_early_or_late(jitter: float) -> None:
    connector, requests = Connector(), []
    for i in range(10):
        connector.observe(WEB_CART, 150)
        requests.append(connector.flush(BEGAN + i * INTERVAL + (i % 2) * jitter))
    assert [one is not None for one in snapshots(requests)] == [False, False] + [True] * 8


def test_delta_metrics_give_the_same_rates_one_interval_earlier() -> None:
    one = flushes(4)
    deltas = [as_delta(now, last) for last, now in pairwise(one)]
    found = snapshots(deltas)
    assert [calls(snapshot) for snapshot in found[1:]] == [calls(snapshot) for snapshot in snapshots(one)[2:]]


Window = tuple[float, float, int, int]  # begin and end, s; requests and failures from web to cart


def deltas(*windows: Window, call: tuple[str, str] = WEB_CART) -> ExportMetricsServiceRequest:
    """Return one request with deltas; a begin of -1 is unknown."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for name, place in (("total", 2), ("failed_total", 3)):
        metric = metrics.add(name=f"traces_service_graph_request_{name}").sum
        metric.is_monotonic, metric.aggregation_temporality = True, DELTA
        for window in windows:
            if not window[place]:
                continue  # an exporter of deltas sends no zeros
            point = metric.data_points.add(as_int=window[place], time_unix_nano=round((BEGAN + window[1]) * 1e9))
            point.start_time_unix_nano = round((BEGAN + window[0]) * 1e9) if window[0] >= 0 else 0
            for key, text in zip(("client", "server"), call, strict=True):
                point.attributes.add(key=key).value.string_value = text
    return request


@pytest.mark.parametrize(
    ("flushed", "rate", "failing"),
    [
        pytest.param([[(0, 15, 150, 0)], [(300, 315, 150, 150)]], 10.0, 1.0, id="after a pause all fail"),
        pytest.param([[(0, 15, 150, 0)], [(-1, 30, 150, 15)]], 10.0, 0.1, id="without starts"),
        pytest.param([[(0, 5, 50, 0)], [(5, 10, 50, 50)], [(10, 15, 50, 0)]], 10.0, 1 / 3,
                     id="several in an interval, one fails"),
        pytest.param([[(0, 5, 50, 0)], [(10, 15, 50, 0)], [(5, 10, 50, 50)]], 10.0, 1 / 3,
                     id="in any order"),
        pytest.param([[(0, 15, 150, 0)], [(15, 30, 150, 0)], [(18, 33, 150, 150)]], 20.0, 0.5, id="two collectors"),
        pytest.param([[(0, 15, 150, 0)], [(15, 30, 150, 0)], [(15, 30, 150, 0)]], 10.0, 0.0, id="sent twice"),
        pytest.param([[(0, 15, 150, 0)], [(15, 30.001, 150, 15)]], 10.0, 0.1, id="nearly in time"),
        pytest.param([[(0, 60, 600, 0)], [(60, 120, 600, 60)]], 10.0, 0.1, id="flushed every minute"),
        pytest.param([[(0, 15, 150, 0)], [(21, 30, 90, 9)]], 10.0, 0.1, id="began again"),
    ],
)  # fmt: skip
def test_a_delta_counts_from_its_own_start(flushed: list[list[Window]], rate: float, failing: float) -> None:
    end = max(window[1] for windows in flushed for window in windows)
    last = snapshots([*(deltas(*windows) for windows in flushed), deltas((end, end + 60, 1, 0))])[-1]
    assert calls(last)[WEB_CART][:2] == pytest.approx([rate, failing], rel=1e-3)


def test_many_deltas_in_an_interval_count_once_if_they_are_sent_again() -> None:
    second_by_second = deltas(*((second, second + 1, 10, 1) for second in range(30)))
    end = deltas((30, 90, 1, 0))
    once, twice = (snapshots([*([second_by_second] * times), end])[-1] for times in (1, 2))
    assert calls(twice) == calls(once)


def test_deltas_of_a_call_that_stops_are_0_until_it_is_forgotten() -> None:
    def flush(second: int, *, is_made: bool) -> ExportMetricsServiceRequest:
        request = deltas((second, second + 15, 300, 0), call=USER_WEB)
        if is_made:
            request.MergeFrom(deltas((second, second + 15, 150, 0)))
        return request

    found = snapshots(flush(15 * i, is_made=i < 3) for i in range(130))
    rates = [calls(one).get(WEB_CART, [None])[0] for one in found if one]
    assert rates[:3] == pytest.approx([10.0] * 3)
    assert set(rates[3:120]) == {0.0}
    assert rates[-1] is None
    assert services(found[100])["cart"][0] == 0.0


@pytest.mark.parametrize("scale", [-1, 0, 3, 5, 8])
@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_exponential_histograms_are_read(scale: int, unit: str, temporality: int) -> None:
    """Half of the requests take 0.15 s and half 3 s."""
    connector, requests, base = Connector(unit=unit), [], 2.0 ** (2.0**-scale)
    for i in range(4):
        connector.observe(WEB_CART, 150)
        flush = connector.flush(BEGAN + i * INTERVAL)
        for metric in flush.resource_metrics[0].scope_metrics[0].metrics:
            if metric.WhichOneof("data") != "histogram":
                continue
            point = metric.histogram.data_points[0]
            exponential = metric.exponential_histogram  # takes the place of the other one
            exponential.aggregation_temporality = temporality
            one = exponential.data_points.add(scale=scale, zero_count=0, time_unix_nano=point.time_unix_nano)
            since = round((BEGAN + (i - 1) * INTERVAL) * 1e9)
            one.start_time_unix_nano = since if temporality == DELTA else point.start_time_unix_nano
            one.attributes.extend(point.attributes)
            indices = [math.ceil(math.log(t * {"s": 1, "ms": 1e3}[unit], base)) - 1 for t in (0.15, 3.0)]
            one.positive.offset = indices[0]
            counts = np.zeros(indices[1] - indices[0] + 1, int)
            np.add.at(counts, [0, -1], 74 * (1 if temporality == DELTA else i + 1))
            counts[0] += 2 * (1 if temporality == DELTA else i + 1)  # so that the median is one of them
            one.positive.bucket_counts.extend(counts.tolist())
        requests.append(flush)
    p50, p99 = calls(snapshots(requests)[-1])[WEB_CART][2:]
    width = base * 2 ** (1 / 8)  # bounds in milliseconds are not those that are kept
    assert 0.15 / width <= p50 <= 0.15 * width
    assert 3.0 / width <= p99 <= 3.0 * width


def test_a_repeated_request_changes_nothing() -> None:
    for requests in (flushes(4), [as_delta(b, a) for a, b in pairwise(flushes(5))]):
        twice = snapshots(request for one in requests for request in (one, one))
        assert [one.digest for one in twice if one] == [one.digest for one in snapshots(requests) if one]


def test_the_counters_of_several_collectors_add_up() -> None:
    """The connector does not name its instance. Only the start of counting distinguishes its replicas."""
    first, second = flushes(4), flushes(4, Connector(start=BEGAN - 60))
    mixed = [request for pair in zip(first, second, strict=True) for request in pair]
    found = [one for one in snapshots(mixed) if one]
    assert [calls(one)[WEB_CART][0] for one in found] == pytest.approx([20.0, 20.0])


@pytest.mark.parametrize(("start", "rate"), [(50.0, 10.0), (45.0, 20 / 3), (-7200.0, None)])
def test_after_a_restart_a_collector_counts_from_its_own_start(start: float, rate: float | None) -> None:
    """One that began long before the last interval is another collector, whose counts are older."""
    restarted = Connector(start=BEGAN + start)
    later = []
    for i in range(4, 7):
        restarted.observe(WEB_CART, 100 if i == 4 else 150)
        later.append(restarted.flush(BEGAN + i * INTERVAL))
    found = snapshots([*flushes(4), *later])
    assert [one is not None for one in found] == [False, False, True, True, True, rate is not None, True]
    if rate is not None:
        assert calls(found[-2])[WEB_CART][0] == pytest.approx(rate)
    assert calls(found[-1])[WEB_CART][0] == pytest.approx(10.0)


def test_counters_that_fall_without_a_new_start_count_as_restarted() -> None:
    connector, again = Connector(start=0), Connector(start=0)
    requests = flushes(3, connector)
    for i in range(3, 6):
        again.observe(WEB_CART, 30)
        requests.append(again.flush(BEGAN + i * INTERVAL))
    found = snapshots(requests)
    assert [calls(one)[WEB_CART][0] for one in found[4:]] == pytest.approx([2.0, 2.0])


def test_a_new_call_of_a_known_collector_counts_from_zero() -> None:
    """So the first failures are seen at once: before them, there is no series of failures."""
    connector, requests = Connector(), []
    for i in range(4):
        connector.observe(WEB_CART, 150, failures=75 if i == 2 else 0)
        if i >= 2:
            connector.observe(CART_DB, 45)
        requests.append(connector.flush(BEGAN + i * INTERVAL))
    assert calls(snapshots(requests)[3]) == {
        WEB_CART: pytest.approx([10.0, 0.5, 0.05, 0.099]),
        CART_DB: pytest.approx([3.0, 0.0, 0.05, 0.099]),
    }


def test_a_known_call_without_requests_is_listed_with_0() -> None:
    connector, requests = Connector(), []
    for i in range(5):
        connector.observe(WEB_CART, 150)
        connector.observe(CART_DB, 0 if i == 3 else 45)
        requests.append(connector.flush(BEGAN + i * INTERVAL))
    quiet = snapshots(requests)[4]
    assert calls(quiet)[CART_DB][:2] == [0.0, 0.0]
    assert services(quiet)["db"][0] == 0.0


def test_the_calls_of_a_silent_collector_are_not_zero() -> None:
    """They are unobserved. The calls of the other collector are observed."""
    mesh, other = Connector(), Connector(start=BEGAN - 60)
    requests = []
    for i in range(5):
        mesh.observe(WEB_CART, 150)
        requests.append(mesh.flush(BEGAN + i * INTERVAL))
        if i < 3:
            other.observe(CART_DB, 45)
            requests.append(other.flush(BEGAN + i * INTERVAL + 5))
    found = [one for one in snapshots(requests) if one]
    assert [set(calls(one)) for one in found] == [{WEB_CART, CART_DB}, {WEB_CART, CART_DB}, {WEB_CART}]
    assert services(found[-1]).keys() == {"web", "cart"}


def test_series_that_are_no_longer_sent_are_forgotten() -> None:
    old = Connector(start=BEGAN - 60)
    old.observe(CART_DB, 45)
    graph = ServiceGraph()
    for request in [old.flush(BEGAN), *flushes(KEEP_INTERVALS + 3)]:
        graph, _ = add_points(graph, decode_metrics(request.SerializeToString(), PROTOBUF)[0], INTERVAL)
    assert {series[1:3] for series in graph.counters} == {WEB_CART, USER_WEB}


def test_histograms_in_milliseconds_are_read_as_seconds() -> None:
    slow = snapshots(flushes(3, Connector(unit="ms")))[2]
    assert calls(slow)[WEB_CART][2:] == pytest.approx([0.15e-3, 0.199e-3])


def test_json_is_the_same_as_protobuf() -> None:
    (request,) = flushes(1)
    assert decode_metrics(json_format.MessageToJson(request).encode(), JSON) == decode_metrics(
        request.SerializeToString(), PROTOBUF
    )


def test_other_metrics_are_ignored_and_counted() -> None:
    (request,) = flushes(1)
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    metrics.add(name="http_requests").gauge.data_points.add(as_int=1)
    metrics.add(name="traces_service_graph_request_total").gauge.data_points.add(as_int=1)
    unnamed = metrics.add(name="traces_service_graph_request_total").sum
    unnamed.is_monotonic, unnamed.aggregation_temporality = True, 2
    unnamed.data_points.add(as_int=1, time_unix_nano=1)
    for wrong in (float("nan"), float("inf"), -1.0):
        metrics.add().CopyFrom(metrics[0])
        metrics[-1].sum.data_points[0].as_double = wrong
    metrics.add(name="empty")
    points, ignored = decode_metrics(request.SerializeToString(), PROTOBUF)
    assert (len(points), ignored) == (len(decode_metrics(flushes(1)[0].SerializeToString(), PROTOBUF)[0]), 6)
    answer = ExportMetricsServiceResponse.FromString(encode_response(PROTOBUF, ignored))
    assert answer.partial_success.rejected_data_points == 6
    assert encode_response(PROTOBUF, 0) == b""
    assert encode_response(JSON, 0) == b"{}"


@pytest.mark.parametrize("spoil", ["bounds", "counts"])
def test_a_broken_histogram_is_ignored(spoil: str) -> None:
    (request,) = flushes(1)
    point = request.resource_metrics[0].scope_metrics[0].metrics[-1].histogram.data_points[0]
    if spoil == "bounds":
        point.explicit_bounds[0] = 9
    else:
        point.bucket_counts.append(1)
    assert decode_metrics(request.SerializeToString(), PROTOBUF)[1] == 1


@pytest.mark.parametrize(
    ("body", "media_type"),
    [(b"\x0a\xff", PROTOBUF), (b"{", JSON), (b"[]", JSON), (b'{"resourceMetrics": 1}', JSON), (b"[" * 10**5, JSON)],
)
def test_a_body_that_is_no_request_is_malformed(body: bytes, media_type: str) -> None:
    with pytest.raises(MalformedDocument, match="expected an ExportMetricsServiceRequest"):
        decode_metrics(body, media_type)


def tiny(metrics: int = 1, points: int = 0) -> bytes:
    """Return a request with this number of empty metrics, and of empty points in the last one."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for _ in range(metrics):
        last = scope.metrics.add()
    for _ in range(points):
        last.sum.data_points.add()
    return request.SerializeToString()


MANY = 10**5


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b'{"resourceMetrics":[' + b",".join([b"{}"] * MANY) + b"]}", JSON),
        (b"\x0a\x00" * MANY, PROTOBUF),
        (tiny(metrics=MANY), PROTOBUF),
        (tiny(points=MANY), PROTOBUF),
    ],
    ids=["objects", "resources", "metrics", "points"],
)
def test_a_body_of_tiny_parts_is_refused(body: bytes, media_type: str) -> None:
    """It would cost seconds of CPU time."""
    with pytest.raises(DocumentTooLarge, match="or more"):
        decode_metrics(body, media_type)


@given(st.binary(max_size=200), st.sampled_from([PROTOBUF, JSON]))
def test_no_body_breaks_the_decoder(body: bytes, media_type: str) -> None:
    try:
        points, _ = decode_metrics(body, media_type)
    except (MalformedDocument, DocumentTooLarge):
        return
    add_points(ServiceGraph(), points, INTERVAL)
