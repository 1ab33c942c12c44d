"""Span metrics of OpenTelemetry's connector, Tempo, Alloy or Beyla."""

from serve_app.collect.prometheus.dialects.opentelemetry_names import PEERS, peer_names, service_names
from serve_app.collect.prometheus.naming import CALLEE, CALLER, NO_NAMESPACE, Keys, View, added, view_queries
from serve_app.collect.prometheus.query import MILLISECONDS, SECONDS, Dialect, Gap

# The connector today, and Beyla; Tempo, Alloy and Beyla; the connector without a namespace.
_PREFIXES = ("traces_span_metrics_", "traces_spanmetrics_", "")
# The connector and Alloy name the unit. The `latency` of Tempo and Beyla is in seconds.
_SECONDS, _MILLISECONDS = ("duration_seconds", "latency"), ("duration_milliseconds",)
_NAME = "service"  # of Tempo; others write `service_name`, which comes first
_INTO, _OUT_OF = "(SPAN_KIND_)?(SERVER|CONSUMER)", "(SPAN_KIND_)?(CLIENT|PRODUCER)"
_FAILED = 'status_code=~"(STATUS_CODE_)?(ERROR|Error)"'


def span_metrics() -> Dialect:
    """Span counts, errors and durations: server and consumer spans for services, client and producer spans for calls.

    The metrics have several names; the first one that has a service counts for it. Their names say whether durations
    are in seconds or milliseconds. Calls need a dimension with the callee's name (``peer.service`` or
    ``server.address``), which no system adds by default. Without it, take calls from a service graph beside these
    metrics. For service names, see :func:`service_names` and :func:`peer_names`.

    Source: OpenTelemetry's ``connector/spanmetricsconnector/README.md``,
    https://grafana.com/docs/tempo/latest/metrics-from-traces/span-metrics/span-metrics-metrics-generator/ and
    ``pkg/export/prom`` of Beyla.
    """
    helpers, callee = peer_names(CALLEE)
    call = Keys(service_names(CALLER, _NAME) + callee, helpers)
    into, out_of = (f'span_kind=~"{kinds}"' for kinds in (_INTO, _OUT_OF))
    all_calls = f'{{$match __name__=~"({"|".join(_PREFIXES)})calls_total"'
    calls = f"count({all_calls},{out_of}"
    graph = 'use source = ["span-metrics", "opentelemetry"] with the metrics of a service graph'
    return Dialect(
        "span-metrics",
        view_queries(Keys(service_names(CALLEE, _NAME)), _view(into)),
        view_queries(call, _view(out_of)),
        tuple(f"{prefix}calls_total{{$match {into}}}" for prefix in _PREFIXES),
        default_namespace=NO_NAMESPACE,
        gaps=(
            Gap(
                "names of callees",
                calls + "".join(f',{peer}=""' for peer in PEERS) + "})",
                "calls of these clients are missing",
                f"add the dimensions peer.service and server.address to the span metrics, or {graph}",
                of_calls=True,
            ),
            Gap(
                "spans of clients",
                f"count({all_calls},{into}}}) unless on () {calls}}})",
                "calls are missing: there are services without a graph",
                f"export spans of clients too, or {graph}",
                of_calls=True,
            ),
        ),
    )


def _view(kind: str) -> View:
    def every(part: str, names: tuple[str, ...], more: str = "") -> list[str]:
        """Return the rates of these metrics with each prefix, without services that an earlier prefix has."""
        rates = []
        for number, prefix in enumerate(_PREFIXES):
            earlier = " or ".join(_by_service(f"{before}calls_total{{$match {kind}}}") for before in _PREFIXES[:number])
            for name in names:
                if name == "latency" and not prefix:
                    continue  # the processor's name for milliseconds
                rate = _by_service(f"rate({prefix}{name}{part}{{$match {kind}{more}}}[$window])")
                rates.append(f"({rate} unless on ({_NAME}) ({earlier}))" if number else rate)
        return rates

    return View(
        added(*every("_total", ("calls",))),
        added(*every("_total", ("calls",), f",{_FAILED}")),
        tuple(
            (added(*every("_bucket", names)), unit)
            for names, unit in ((_SECONDS, SECONDS), (_MILLISECONDS, MILLISECONDS))
        ),
    )


def _by_service(series: str) -> str:
    return f'label_replace({series}, "{_NAME}", "$1", "service_name", "(.+)")'
