"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, from a thread of its own.

A request never waits for the collector. Ended spans wait in a bounded queue. Spans are dropped and counted if the queue
is full or the collector does not accept them.
"""

import atexit
import logging
import os
import socket
import threading
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from serve_app.metrics import SPANS_DROPPED, Instruments
from serve_app.net.endpoint import read_headers
from serve_app.observability.spans import record_with
from serve_app.settings.observability import TraceSettings

MAX_WAITING = 2048  # spans
BATCH = 256  # spans in one request
EXPORT_SECONDS = 1.0  # between two requests while fewer spans wait
TIMEOUT_SECONDS = 10.0  # for one batch, including retries
FLUSH_SECONDS = 2.0  # time to send the last spans when the process ends
EXPORTER_LOG = "opentelemetry.exporter.otlp"  # logs each failure; we log only their begin and end
log = logging.getLogger(__name__)


def start_export(settings: TraceSettings, component: str, instruments: Instruments) -> "SpanQueue":
    """Record the spans of this process, and send them to the collector of the settings.

    Args:
        component: what this process is, such as ``session``.
    """
    queue = SpanQueue(CollectorExport(settings, instruments), instruments)
    resource = Resource.create(
        {
            "service.name": "tagae",
            "service.version": version("tagae"),
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            "tagae.component": component,
        }
    ).merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    # Record all traces unless their client or OTEL_TRACES_SAMPLER decides otherwise.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(queue)
    record_with(provider.get_tracer("tagae"))
    atexit.register(queue.flush)
    return queue


class SpanQueue(SpanProcessor):
    """Passes ended spans to the exporting thread unless the queue is full."""

    def __init__(self, export: "CollectorExport", instruments: Instruments) -> None:
        self._export, self._instruments = export, instruments
        # Larger than our limit, so that the library's queue never drops a span without counting it.
        self._batches = BatchSpanProcessor(export, MAX_WAITING + BATCH, 1000 * EXPORT_SECONDS, BATCH)

    def on_end(self, span: ReadableSpan) -> None:
        if not (span.context and span.context.trace_flags.sampled):
            return
        if self._export.reserve():
            self._batches.on_end(span)
        else:
            self._instruments.count(SPANS_DROPPED, reason="full")

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send what waits, for at most a few seconds; call it when the process ends."""
        sending = threading.Thread(target=self._batches.force_flush, name="last spans", daemon=True)
        sending.start()
        sending.join(seconds)


class CollectorExport(SpanExporter):
    """Sends batches of spans to the collector, and counts the spans that it does not accept."""

    def __init__(self, settings: TraceSettings, instruments: Instruments) -> None:
        session = requests.Session()
        if settings.headers_file:
            session.auth = partial(_with_headers, settings.headers_file)
        self._url, self._instruments = settings.url, instruments
        self._otlp = OTLPSpanExporter(
            self._url,
            certificate_file=str(settings.ca_file) if settings.ca_file else None,
            timeout=TIMEOUT_SECONDS,
            session=session,
        )
        self._reason = _LastMessage()
        library = logging.getLogger(EXPORTER_LOG)
        library.addHandler(self._reason)
        library.propagate = False
        self._lock, self._waiting, self._fails = threading.Lock(), 0, False

    def reserve(self) -> bool:
        """Reserve space for one more span in the queue. Returns whether there was space."""
        with self._lock:
            has_room = self._waiting < MAX_WAITING
            self._waiting += has_room
        return has_room

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch. The queue's thread calls this."""
        result = SpanExportResult.FAILURE
        try:
            result = self._otlp.export(spans)
        finally:
            with self._lock:
                self._waiting -= len(spans)
            self._report(result is not SpanExportResult.SUCCESS, len(spans))
        return result

    def shutdown(self) -> None:
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _report(self, fails: bool, spans: int) -> None:
        """Count dropped spans. Log when exports begin to fail, and when they work again."""
        if fails:
            self._instruments.count(SPANS_DROPPED, spans, reason="failed")
        if fails and not self._fails:
            log.warning("traces: %s takes no spans, which are dropped until it does: %s", self._url, self._reason.text)
        elif self._fails and not fails:
            log.warning("traces: %s takes spans again", self._url)
        self._fails = fails


def _with_headers(file: Path, request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Add the headers of a file, which is read each time, because secrets are rotated."""
    request.headers.update(read_headers(file))
    return request


class _LastMessage(logging.Handler):
    """Keeps the exporter's newest message: its result does not say why it failed."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
