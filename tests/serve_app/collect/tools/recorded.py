"""Answers of Loki, Tempo and Jaeger in the shapes that their documentation shows, and a server that sends them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.serve_app.collect.prometheus.standin import Request, start_server

AT = 1_772_334_735  # Unix time of the newest line and trace, s: 2026-03-01T03:12:15Z
SEARCH, LINES, TRACES = "/api/search", "/loki/api/v1/query_range", "/api/traces"


def line(before: float, text: str) -> list[Any]:
    """A log line, so many seconds before ``AT``. Loki adds its metadata if a label asks for it."""
    return [str(round(1e9 * (AT - before))), text, {"detected_level": "error"}]


def loki(*streams: list[list[Any]]) -> dict[str, Any]:
    found = [{"stream": {"namespace": "shop", "pod": f"cart-{i}"}, "values": each} for i, each in enumerate(streams)]
    return {"status": "success", "data": {"resultType": "streams", "result": found, "stats": {"summary": {}}}}


def tempo(trace: str = "2f3e0cee77ae5dc9c17ade3689eb2e54", before: float = 0, **attributes: Any) -> dict[str, Any]:
    """A trace of a search: a request that failed in a service, with these attributes of the failing span."""
    span = {
        "spanID": "563d623c76514f8e",
        "startTimeUnixNano": str(round(1e9 * (AT - before + 0.03))),
        "durationNanos": "446979497",
        "attributes": [
            {"key": key.replace("__", "."), "value": {kind_of(value): str(value)}} for key, value in attributes.items()
        ],
    }
    return {
        "traceID": trace,
        "rootServiceName": "web",
        "rootTraceName": "GET /checkout",
        "startTimeUnixNano": str(round(1e9 * (AT - before))),
        "durationMs": 2310,
        "spanSet": {"spans": [span], "matched": 1},
        "spanSets": [{"spans": [span], "matched": 1}],
    }


def kind_of(value: Any) -> str:
    return "intValue" if isinstance(value, int) else "stringValue"


def found(*traces: dict[str, Any]) -> dict[str, Any]:
    metrics = {"inspectedTraces": 3, "inspectedBytes": "9024", "totalBlocks": 2}
    return {"traces": list(traces), "metrics": metrics} if traces else {"metrics": metrics}


def jaeger(*failing: dict[str, Any]) -> dict[str, Any]:
    """A trace from ``web`` to ``cart`` and from there to ``db``, with these tags of the spans of ``cart``."""

    def span(name: str, process: str, after: float, tags: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "traceID": "72f277edac0b77f5",
            "spanID": f"{name}-{after}",
            "operationName": name,
            "references": [],
            "startTime": round(1e6 * (AT + after)),
            "duration": 2_310_000,
            "tags": [{"key": key, "type": type(value).__name__, "value": value} for key, value in tags.items()],
            "logs": [],
            "processID": process,
            "warnings": None,
        }

    spans = [
        *(span("POST /items", "p2", 0.1 + i, tags) for i, tags in enumerate(failing)),
        span("GET /checkout", "p1", 0, {"error": True, "http.status_code": 500}),
        span("SELECT", "p3", 9, {"db.system": "postgresql"}),
    ]
    processes = {f"p{i}": {"serviceName": name, "tags": []} for i, name in enumerate(("web", "cart", "db"), 1)}
    trace = {"traceID": "72f277edac0b77f5", "spans": spans, "processes": processes, "warnings": None}
    return {"data": [trace], "total": 0, "limit": 0, "offset": 0, "errors": None}


@contextmanager
def serve_answers(answers: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a server that sends these answers, by path: JSON, bytes, a status, or what a function does. Yields its URL
    and the queries that arrive."""

    def behave(request: Request) -> None:
        answer = answers[request.path.partition("?")[0]]
        if callable(answer):
            answer(request)
        elif isinstance(answer, int):
            request.send(answer, b'{"error":"<b>no</b> secret-of-the-server"}')
        else:
            request.send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    with start_server(behave) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.asked  # type: ignore[attr-defined]
