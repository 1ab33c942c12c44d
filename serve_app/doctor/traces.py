"""Checks whether the collector of traces accepts spans."""

import httpx

from serve_app.collect.base import Finding
from serve_app.errors import BadSettings
from serve_app.net.endpoint import SecretUnreadable, read_headers, ssl_context
from serve_app.net.http import first_line
from serve_app.observability.traces import check_traces
from serve_app.settings.observability import TraceSettings

DEADLINE_SECONDS = 5.0


def check_trace_collector(settings: TraceSettings) -> Finding:
    """Send a request without spans to the collector of the settings."""
    headers = {"content-type": "application/x-protobuf", "user-agent": "tagae"}
    try:
        check_traces(settings)
        headers |= read_headers(settings.headers_file) if settings.headers_file else {}
        response = httpx.post(
            settings.url, headers=headers, verify=ssl_context(settings.ca_file), timeout=DEADLINE_SECONDS
        )
    except (BadSettings, SecretUnreadable) as error:
        return Finding("traces", "problem", str(error), "correct the settings of traces")
    except httpx.HTTPError as error:
        remedy = "start the collector, or correct traces.endpoint; until then spans are dropped, but verdicts continue"
        return Finding("traces", "warning", f"{settings.url} does not answer: {first_line(error)}", remedy)
    if response.status_code != httpx.codes.OK:
        remedy = "give the URL of OTLP over HTTP (port 4318 by default) in traces.endpoint, and its headers_file"
        return Finding("traces", "warning", f"{settings.url} answers spans with {response.status_code}", remedy)
    return Finding("traces", "ok", f"{settings.url} takes spans")
