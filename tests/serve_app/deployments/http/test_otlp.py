"""Metrics of OpenTelemetry over HTTP: the real exporter, and requests that are refused."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from serve_app.access import Scope, editing
from serve_app.collect.otlp.decode import JSON, PROTOBUF
from serve_app.deployments.http.bodies import MAX_METRICS_BYTES
from tests.serve_app.collect.otlp.connector import BEGAN, Connector
from tests.serve_app.running import Service, eventually, problem, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
INTERVAL = 15.0
PATH = "/v1/meshes/{}/otlp/v1/metrics"
CALL = {"client": "web", "server": "cart"}
BINARY, ZIPPED = {"content-type": PROTOBUF}, {"content-type": PROTOBUF, "content-encoding": "gzip"}


@pytest.mark.slow
def test_the_exporter_of_the_sdk_feeds_a_mesh(tmp_path: Path) -> None:
    """The exporter uses gzip and a token for this mesh only."""
    tokens, config = tmp_path / "tokens.toml", tmp_path / "tagae.toml"
    writer = editing.create(tokens, "collector", [Scope.WRITE], ["shop"])
    reader = editing.create(tokens, "reader", [Scope.READ])
    config.write_text(
        f"""
        serve.port = 0
        serve.tokens_file = "{tokens}"
        store.path = "{tmp_path / "state"}"
        collector.interval_seconds = 1
        """
    )
    with (
        start_service("--config", str(config)) as (_, url),
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {reader}"}, timeout=PATIENCE_SECONDS) as http,
    ):
        exporter = OTLPMetricExporter(
            endpoint=url + PATH.format("shop"),
            headers={"authorization": f"Bearer {writer}"},
            compression=Compression.Gzip,
        )
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
        meter = provider.get_meter("traces_service_graph")
        requests = meter.create_counter("traces_service_graph_request_total")
        failures = meter.create_counter("traces_service_graph_request_failed_total")
        seconds = [
            meter.create_histogram(f"traces_service_graph_request_{side}_seconds", "s") for side in ("server", "client")
        ]
        meter.create_counter("of_something_else").add(1)

        def flush() -> bool:
            requests.add(10, CALL)
            failures.add(5, CALL)
            for histogram in seconds:
                histogram.record(7.0, CALL)
            provider.force_flush()
            meshes = http.get("/v1/meshes").raise_for_status().json()
            return any(row["mesh"] == "shop" and row["sequence"] >= 2 for row in meshes)

        assert eventually(flush)
        graph = http.get("/v1/meshes/shop/graph").raise_for_status().json()
        provider.shutdown()
    assert [row["name"] for row in graph["services"]] == ["cart", "web"]
    (call,) = graph["calls"]
    assert (call["source"], call["destination"]) == ("default/web", "default/cart")
    assert call["requests_per_second"] > 0
    assert call["error_rate"] == pytest.approx(0.5)
    assert call["p50_latency"] == pytest.approx(7.5), "the middle of the bucket from 5 to 10 s"


def flushes(count: int) -> list[bytes]:
    connector, found = Connector(), []
    for i in range(count):
        connector.observe(("web", "cart"), 150, failures=15, bucket=1)
        found.append(connector.flush(BEGAN + i * INTERVAL).SerializeToString())
    return found


def test_requests_become_snapshots_and_repeated_ones_do_not_count(service: Service) -> None:
    path = PATH.format("otlp")
    for body in flushes(5):
        for _ in range(2):
            answer = service.http.post(path, content=gzip.compress(body), headers=ZIPPED)
            assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", PROTOBUF)
    verdict = service.http.get("/v1/meshes/otlp/verdict").json()
    assert verdict["sequence"] == 3
    assert datetime.fromisoformat(verdict["observed_at"]) == datetime.fromtimestamp(BEGAN + 3 * INTERVAL, UTC)
    assert service.http.delete("/v1/meshes/otlp").status_code == 204


def test_json_is_answered_in_json(service: Service) -> None:
    connector = Connector()
    connector.observe(("web", "cart"), 1)
    request = connector.flush(BEGAN)
    body = json_format.MessageToJson(request)
    answer = service.http.post(PATH.format("otlp"), content=body, headers={"content-type": JSON})
    assert (answer.status_code, answer.json(), answer.headers["content-type"]) == (200, {}, JSON)


def test_other_metrics_are_named_in_the_answer(service: Service) -> None:
    request = Connector().flush(BEGAN)
    request.resource_metrics[0].scope_metrics[0].metrics.add(name="http").gauge.data_points.add(as_int=1)
    answer = service.http.post(PATH.format("other"), content=request.SerializeToString(), headers=BINARY)
    partial = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_data_points) == (200, 1)
    assert "service graph" in partial.error_message
    assert service.http.get("/v1/meshes/other/verdict").status_code == 404


def test_invalid_requests_are_refused(service: Service) -> None:
    path, most = PATH.format("otlp"), MAX_METRICS_BYTES

    def post(content: bytes, headers: dict[str, str], to: str = path) -> httpx.Response:
        return service.http.post(to, content=content, headers=headers)

    bomb = gzip.compress(bytes(100 * most))
    assert len(bomb) < most
    problem(post(bomb, ZIPPED), 413, "document-too-large")
    problem(post(bytes(most + 1), BINARY), 413, "document-too-large")
    problem(post(b"no gzip", ZIPPED), 400, "malformed-document")
    problem(post(gzip.compress(b"")[:-1], ZIPPED), 400, "malformed-document")
    problem(post(b"\x0a\xff", BINARY), 400, "malformed-document")
    problem(post(b"[]", {"content-type": JSON}), 400, "malformed-document")
    problem(post(b"", {**BINARY, "content-encoding": "br"}), 415, "unsupported-media-type")
    problem(post(b"", {"content-type": "text/csv"}), 415, "unsupported-media-type")
    problem(post(b"", BINARY, PATH.format("Bad")), 400, "bad-mesh-name")
    future = Connector()
    future.observe(("web", "cart"), 1)
    ahead = future.flush(datetime(2500, 1, 1, tzinfo=UTC).timestamp())
    problem(post(ahead.SerializeToString(), BINARY), 422, "ahead-of-clock", "/observed_at")


def test_a_late_collector_is_refused_and_counted_from_then_on(service: Service) -> None:
    path = PATH.format("late")
    snapshot = {
        "observed_at": datetime.fromtimestamp(BEGAN + 2 * INTERVAL, UTC).isoformat(),
        "services": [{"namespace": "default", "name": "web", "metrics": {"request_rate": 1}}],
    }
    assert service.http.post("/v1/meshes/late/snapshots", content=json.dumps(snapshot)).status_code == 200
    statuses = [service.http.post(path, content=body, headers=BINARY).status_code for body in flushes(6)]
    assert statuses == [200, 200, 409, 409, 200, 200]
    assert service.http.get("/v1/meshes/late/verdict").json()["sequence"] == 3
