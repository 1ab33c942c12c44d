"""Hubble, which sees the HTTP requests of a Cilium network."""

from serve_app.collect.prometheus.naming import (
    CALLEE,
    CALLER,
    NO_NAMESPACE,
    NO_SEPARATOR,
    POD,
    SEPARATOR,
    Derived,
    Keys,
    View,
    rates,
    view_queries,
)
from serve_app.collect.prometheus.query import SECONDS, Dialect, Gap
from serve_app.collect.service_labels import LATE

_REQUESTS, _DURATION = "hubble_http_requests_total", "hubble_http_request_duration_seconds_bucket"
_CONTEXTS = "https://docs.cilium.io/en/stable/observability/metrics/#context-options"


def hubble() -> Dialect:
    """Hubble's metric ``httpV2``, with workloads in its ``labelsContext``.

    Names come from ``source_workload`` and ``destination_workload``, else from the applications, else from the labels
    ``source`` and ``destination`` of ``sourceContext`` and ``destinationContext``. Ends without a name are outside the
    cluster. The older metric ``http`` is not read: its durations swap both ends.

    Both ends of a request may report it. A service is measured by itself where it reports (``reporter="server"``),
    else by its callers; a call by the caller, else by the callee.

    Source: https://docs.cilium.io/en/stable/observability/metrics/ and, in Cilium,
    ``pkg/hubble/metrics/http/handler.go``.
    """

    def view(reporter: str) -> View:
        # Only httpV2 has `status`.
        return View(
            rates(f'{_REQUESTS}{{$match status!="",{reporter}}}'),
            rates(f'{_REQUESTS}{{$match status=~"5..",{reporter}}}'),
            ((rates(f"{_DURATION}{{$match {reporter}}}"), SECONDS),),
        )

    callee, caller = _names("destination", CALLEE), _names("source", CALLER)
    server, client, unnamed_reporter = 'reporter="server"', 'reporter="client"', 'reporter!~"server|client"'
    return Dialect(
        "hubble",
        view_queries(Keys(callee), view(server), view(client), view(unnamed_reporter)),
        view_queries(Keys(caller + callee), view(client), view(server), view(unnamed_reporter)),
        (f'{_REQUESTS}{{$match status!=""}}',),
        external=frozenset({LATE}),  # an end without a name in any context
        gaps=(
            *(
                Gap(
                    f"workload names of {ends}",
                    f'count({_REQUESTS}{{$match status!=""}}) unless on () '
                    f'count({_REQUESTS}{{$match {end}_workload!=""}} or {_REQUESTS}{{$match {end}=~".+/.+"}})',
                    f"{ends} are missing, or are named by a label that may not be a service",
                    f"add {end}_namespace and {end}_workload to the labelsContext of httpV2 in hubble.metrics.enabled "
                    f"({_CONTEXTS})",
                )
                for ends, end in (("callers", "source"), ("services", "destination"))
            ),
            Gap(
                "namespaces",
                f'count({_REQUESTS}{{$match status!="",destination_workload!="",destination_namespace=""}})',
                "services with the same name in different namespaces are merged",
                "add source_namespace and destination_namespace to the labelsContext of httpV2",
            ),
            Gap(
                "metric httpV2",
                "count(hubble_http_responses_total{$match})",
                "the metric http cannot be used: its durations swap source and destination",
                "replace http with httpV2 in hubble.metrics.enabled",
            ),
        ),
    )


def _names(end: str, labels: tuple[str, str]) -> tuple[Derived, Derived]:
    # The contexts write `namespace/name` or `name`; identities, lists of DNS names and addresses are not names.
    char, name = NO_SEPARATOR, "[^/:,]*?[a-z][^/:,]*?"
    pod = f"(?:{POD}{{6,10}}{POD}{{5}})?"
    return (
        Derived(
            labels[0], (f"{end}_namespace", end), f"({char}+){SEPARATOR}.*|{SEPARATOR}([^/]+)/.+", "$1$2", NO_NAMESPACE
        ),
        Derived(
            labels[1],
            (f"{end}_workload", f"{end}_app", end),
            f"({char}+){SEPARATOR}.*|{SEPARATOR}({char}+){SEPARATOR}.*|{SEPARATOR}{SEPARATOR}(?:[^/]+/)?({name}){pod}",
            "$1$2$3",
        ),
    )
