"""A collector of traces on a free port: it decodes OTLP over HTTP and keeps the spans."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.http_server import QuietHandler, serve_in_thread
from tests.timing import PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """One span, with ids in hexadecimal. ``resource`` has the attributes of its process."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    begin: int
    end: int
    error: str | None
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[str]


@dataclass
class TraceCollector:
    """Takes spans, or refuses them with a ``status``."""

    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: int = 0
    came: threading.Condition = field(default_factory=threading.Condition)
    url: str = ""

    def take(self, body: bytes, headers: dict[str, str]) -> int:
        with self.came:
            self.requests += 1
            self.headers.append(headers)
            if self.status == 200:
                self.spans += _decode(ExportTraceServiceRequest.FromString(body))
            self.came.notify_all()
            return self.status

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until the spans that came, or the requests, satisfy a condition."""
        with self.came:
            assert self.came.wait_for(is_there, PATIENCE_SECONDS), [span.name for span in self.spans]

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        return sorted((span for span in self.spans if span.trace == trace_id), key=lambda span: span.begin)


@contextmanager
def run_trace_collector(**state: Any) -> Iterator[TraceCollector]:
    collector = TraceCollector(**state)

    class Post(QuietHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            self.send(collector.take(self.body(), dict(self.headers)))

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Post)) as collector.url:
        yield collector


def _decode(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        of_process = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None,
                    _attributes(span.attributes),
                    of_process,
                    [event.name for event in span.events],
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}
