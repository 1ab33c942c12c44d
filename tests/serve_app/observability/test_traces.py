"""Traces of snapshots: one tree over all processes, with a real service and a collector that decodes what it gets."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.snapshot import MeshSnapshot
from serve_app.api.codec import snapshot_document
from serve_app.errors import BadSettings, StaleSnapshot
from serve_app.exporter import PrometheusInstruments
from serve_app.observability import export, spans
from serve_app.observability.export import SpanQueue, start_export
from serve_app.observability.traces import check_traces
from serve_app.settings import Settings
from serve_app.settings.observability import TraceSettings
from tests.serve_app.alerts.alerting import metric_value
from tests.serve_app.observability.trace_collector import ReceivedSpan, TraceCollector, run_trace_collector
from tests.serve_app.running import eventually, record_simulation, start_service
from tests.serve_app.sidecar.beside import SECONDS, message, open_client, start_sidecar
from tests.timing import PATIENCE_SECONDS

CUT = MeshSpec(services=120, namespaces=6, seed=5)
CLIENT = "00f067aa0ba902b7"  # id of the client's span
GATE, INGRESS = (f"{place} POST /v1/meshes/{{mesh}}/snapshots" for place in ("gate", "ingress"))


@dataclass(frozen=True, slots=True)
class TracedService:
    """A service whose spans come to a collector."""

    http: httpx.Client
    collector: TraceCollector
    process: psutil.Process
    place: str

    def push(self, mesh: str, snapshot: MeshSnapshot, trace: str = "", flags: str = "01") -> httpx.Response:
        """Push a snapshot as a client with a span of its own."""
        headers = {"traceparent": f"00-{trace}-{CLIENT}-{flags}"} if trace else {}
        content = json.dumps(snapshot_document(snapshot))
        return self.http.post(f"/v1/meshes/{mesh}/snapshots", content=content, headers=headers)

    def log_lines(self) -> list[str]:
        """All lines of the logs of this service's replicas and proxies."""
        arguments = [part for child in self.process.children(recursive=True) for part in child.cmdline()]
        folder = next(found[1] for part in arguments if (found := re.match(r"--session[_-]dir=(.+)", part)))
        files = [file for file in (Path(folder) / "logs" / "serve").glob("*.log") if not file.name.startswith("contr")]
        assert len(files) > 2, "these are not the logs"
        return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceCollector]:
    with run_trace_collector() as running:
        yield running


@pytest.fixture(scope="module", params=["session", pytest.param("replicas", marks=pytest.mark.slow)])
def service_with_traces(
    request: pytest.FixtureRequest, collector: TraceCollector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TracedService]:
    """A service that sends traces and writes its log as JSON, with each place where it can score."""
    folder, place = tmp_path_factory.mktemp("traced"), request.param
    (folder / "headers").write_text("x-api-key: s3cret\n", encoding="ascii")
    (folder / "settings.toml").write_text(
        f"""
        [traces]
        endpoint = "{collector.url}"
        headers_file = "{folder}/headers"
        [logs]
        format = "json"
        [scorer]
        place = "{place}"
        device = "cpu"
        [partition]
        max_services = 40
        [store]
        path = "{folder}/state"
        """,
        encoding="utf-8",
    )
    with (
        start_service("--port", "0", "--config", str(folder / "settings.toml")) as (process, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        yield TracedService(http, collector, process, place)


def child_names(trace: list[ReceivedSpan], parent: str) -> list[str]:
    """The names of the spans below a span, in the order of their begin."""
    return [span.name for span in trace if span.parent == parent]


def find(trace: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = (span for span in trace if span.name == name)
    return found


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_the_spans_of_one_push_are_one_tree(service_with_traces: TracedService) -> None:
    snapshots = record_simulation(CUT, 2)
    trace_ids = [f"{1 + i + 16 * (service_with_traces.place == 'session'):032x}" for i in range(2)]
    for trace, snapshot in zip(trace_ids, snapshots, strict=True):
        response = service_with_traces.push("shop", snapshot, trace)
        assert response.status_code == 200, response.text
    collector = service_with_traces.collector
    last = Counter([GATE, "store", "session.push", INGRESS])
    if service_with_traces.place == "replicas":  # each process sends its spans when it wants to
        last += Counter({"scorer.score": 2, "meta-model.decide": 1})
    collector.wait_for(lambda: last <= Counter(span.name for span in collector.trace(trace_ids[-1])))
    spans_of_push = collector.trace(trace_ids[-1])
    assert collector.headers[-1]["x-api-key"] == "s3cret"

    known = {span.id for span in spans_of_push} | {CLIENT}
    assert len(known) == len(spans_of_push) + 1
    assert {span.parent for span in spans_of_push} <= known
    assert child_names(spans_of_push, CLIENT) == [GATE]
    assert child_names(spans_of_push, find(spans_of_push, GATE).id) == [INGRESS]
    assert child_names(spans_of_push, find(spans_of_push, INGRESS).id) == ["ingress.decode", "session.push"]
    session = find(spans_of_push, "session.push")
    stages = child_names(spans_of_push, session.id)
    assert list(dict.fromkeys(stages)) == ["prepare", "score", "gather", "decide", "store"]
    assert session.attributes == {
        "tagae.mesh": "shop",
        "tagae.sequence": 2,
        "tagae.services": snapshots[-1].num_nodes,
        "tagae.calls": snapshots[-1].num_edges,
        "tagae.status": "warming_up",
    }
    scorers = [span for span in spans_of_push if span.name == "scorer.score"]
    components = {"gate", "ingress", "session"}
    if service_with_traces.place == "replicas":
        assert {span.parent for span in scorers} == {find(spans_of_push, "score").id}
        assert len(scorers) == 2  # groups; one replica can get both
        decide = [span for span in spans_of_push if span.name == "decide"]
        assert find(spans_of_push, "meta-model.decide").parent in {span.id for span in decide}
        components |= {"scorer", "meta-model"}
    assert {span.resource["tagae.component"] for span in spans_of_push} == components
    assert {span.resource["service.name"] for span in spans_of_push} == {"tagae"}
    assert all(span.begin <= span.end for span in spans_of_push)
    assert not any(span.error for span in spans_of_push)


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_refused_snapshot_is_a_failed_span_and_a_client_can_ask_for_no_trace(
    service_with_traces: TracedService,
) -> None:
    first, second = record_simulation(MeshSpec(services=30, seed=1), 2)
    stale, untraced = (f"{n + 16 * (service_with_traces.place == 'session'):032x}" for n in (8, 9))
    assert service_with_traces.push("pair", second, untraced, flags="00").status_code == 200
    assert service_with_traces.push("pair", first, stale).status_code == 409
    collector = service_with_traces.collector
    collector.wait_for(lambda: {GATE, "session.push"} <= {span.name for span in collector.trace(stale)})
    assert find(collector.trace(stale), GATE).attributes["http.response.status_code"] == 409
    failed = find(collector.trace(stale), "session.push")
    assert "expected a snapshot after the newest one" in str(failed.error)
    assert failed.events == ["exception"]
    assert collector.trace(untraced) == []


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_collector_that_is_away_fails_no_push_and_the_log_says_so_as_json(service_with_traces: TracedService) -> None:
    collector, trace = service_with_traces.collector, f"{12 + 16 * (service_with_traces.place == 'session'):032x}"
    collector.status = 400
    try:
        for snapshot in record_simulation(MeshSpec(services=30, seed=2), 3):
            assert service_with_traces.push("away", snapshot, trace).status_code == 200
        said = "takes no spans"

        def complaints() -> list[dict[str, Any]]:
            return [json.loads(line) for line in service_with_traces.log_lines() if said in line]

        assert eventually(lambda: {one["component"] for one in complaints()} >= {"gate", "ingress", "session"})
    finally:
        collector.status = 200
    lines = [json.loads(line) for line in service_with_traces.log_lines()]  # every line of every process
    names = {"time", "level", "logger", "message", "component", "mesh", "sequence", "trace_id"}
    assert all(names <= line.keys() <= names | {"exception"} for line in lines)
    assert {line["level"] for line in complaints()} == {"warning"}
    last = record_simulation(MeshSpec(services=30, seed=2), 4)[-1]
    assert service_with_traces.push("away", last, trace).status_code == 200
    collector.wait_for(lambda: "session.push" in {span.name for span in collector.trace(trace)})


def test_one_process_sends_spans_and_writes_json(tmp_path: Path) -> None:
    with run_trace_collector() as collector:
        settings = {"store.path": str(tmp_path), "traces.endpoint": collector.url, "logs.format": "json"}
        snapshot, trace = record_simulation(MeshSpec(services=30, seed=1), 1)[0], 32 * "a"
        with start_sidecar(settings=settings) as sidecar:
            with open_client(sidecar.address) as client:
                metadata = (("traceparent", f"00-{trace}-{CLIENT}-01"),)
                client.Push(message(snapshot), timeout=SECONDS, metadata=metadata)
            collector.wait_for(lambda: "session.push" in {span.name for span in collector.trace(trace)})
        lines = [json.loads(line) for line in sidecar.output.splitlines()]
        assert "ready after" in lines[-1]["message"]
        assert {line["component"] for line in lines} == {"single"}
        push = find(collector.trace(trace), "session.push")
        assert find(collector.trace(trace), "gate POST /v1/meshes/{mesh}/snapshots").parent == CLIENT
        assert push.attributes["tagae.sequence"] == 1
        assert list(dict.fromkeys(child_names(collector.trace(trace), push.id))) == [
            "prepare",
            "score",
            "gather",
            "decide",
            "store",
        ]


@pytest.fixture
def recording() -> Iterator[Any]:
    """Starts an export in this process; nothing is recorded after the test."""
    yield start_export
    spans.record_with(None)


def count_dropped(instruments: PrometheusInstruments, reason: str) -> float:
    return metric_value(instruments, "tagae_spans_dropped_total", reason=reason)


def test_spans_that_do_not_fit_are_dropped_and_counted(recording: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_WAITING", 5)
    monkeypatch.setattr(export, "EXPORT_SECONDS", 1000.0)
    instruments = PrometheusInstruments()
    with run_trace_collector() as collector:
        queue: SpanQueue = recording(TraceSettings(endpoint=collector.url), "test", instruments)
        for _ in range(8):
            with spans.span("work"):
                pass
        assert count_dropped(instruments, "full") == 3
        queue.flush(PATIENCE_SECONDS)
        assert len(collector.spans) == 5
        with spans.span("work"):
            pass
        queue.flush(PATIENCE_SECONDS)
        assert len(collector.spans) == 6
        assert count_dropped(instruments, "full") == 3
        assert count_dropped(instruments, "failed") == 0


def test_spans_that_the_collector_does_not_take_are_counted_and_logged_once(
    recording: Any, caplog: pytest.LogCaptureFixture
) -> None:
    instruments = PrometheusInstruments()
    with run_trace_collector(status=400) as collector:
        queue: SpanQueue = recording(TraceSettings(endpoint=collector.url), "test", instruments)
        for number in (1, 2):
            with spans.span("work"):
                pass
            queue.flush(PATIENCE_SECONDS)
            assert count_dropped(instruments, "failed") == number
        collector.status = 200
        with spans.span("work"):
            pass
        queue.flush(PATIENCE_SECONDS)
    ours = [record for record in caplog.records if record.name.startswith("serve_app")]
    assert [record.getMessage() for record in ours] == [
        f"traces: {collector.url}/v1/traces takes no spans, which are dropped until it does: "
        "Failed to export spans batch code: 400, reason: Bad Request",
        f"traces: {collector.url}/v1/traces takes spans again",
    ]


def test_the_standard_variables_choose_the_share_of_traces_that_start_here(
    recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with run_trace_collector() as collector:
        chosen = TraceSettings(endpoint=collector.url)
        queue: SpanQueue = recording(chosen, "test", PrometheusInstruments())
        with spans.span("of this process"):
            assert not int(spans.traceparent()[-2:], 16) & 1  # the flag of a sampled trace
            assert spans.trace_id() is not None
        with spans.span("of a client", f"00-{32 * 'b'}-{CLIENT}-01"):
            pass
        with spans.span("of a client with a wrong header", "00-zz-1"):
            pass
        queue.flush(PATIENCE_SECONDS)
    assert [(span.name, span.parent) for span in collector.spans] == [("of a client", CLIENT)]


def test_an_error_that_leaves_a_span_marks_it_as_failed(recording: Any) -> None:
    def work() -> None:
        with spans.span("outer", kind="server", mesh="shop"):
            spans.annotate(sequence=7)
            with spans.span("inner"):
                spans.add_event("retry", deployment="Scorer")
                raise StaleSnapshot("it is older")

    with run_trace_collector() as collector:
        queue: SpanQueue = recording(TraceSettings(endpoint=collector.url), "test", PrometheusInstruments())
        with pytest.raises(StaleSnapshot):
            work()
        queue.flush(PATIENCE_SECONDS)
    inner, outer = collector.spans
    assert (inner.parent, inner.trace, outer.parent) == (outer.id, outer.trace, "")
    assert (inner.error, outer.error) == ("it is older", "it is older")
    assert inner.events == ["retry", "exception"]
    assert outer.attributes == {"tagae.mesh": "shop", "tagae.sequence": 7}


def test_without_an_endpoint_nothing_is_recorded_or_imported() -> None:
    with spans.span("one", mesh="shop") as span:
        span.set(sequence=1)
        span.fail("why")
    assert (spans.traceparent(), spans.trace_id(), spans.is_recording()) == ("", None, False)
    code = (
        "import sys, serve_app.deployments.session.mesh_session, serve_app.observability.traces as s\n"
        "from serve_app.settings import Settings\n"
        "s.start_traces(Settings().traces, 'session', None)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.trace'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=2 * PATIENCE_SECONDS
    )
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serve_app.observability.export", None)
    check_traces(TraceSettings())
    with pytest.raises(BadSettings, match=r"traces\.endpoint: .* pip install 'tagae\[otel\]'"):
        check_traces(TraceSettings(endpoint="http://127.0.0.1:4318"))


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(
            BadSettings, match=rf"traces\.ca_file .*{name}: expected certificates in PEM, .*; correct it"
        ):
            check_traces(TraceSettings(endpoint="http://127.0.0.1:4318", ca_file=tmp_path / name))


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://otlp.example/tempo/v1/traces", "https://otlp.example/tempo/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_path_of_otlp(endpoint: str, url: str) -> None:
    assert Settings(traces={"endpoint": endpoint}).traces.url == url
