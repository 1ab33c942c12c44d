"""Linkerd's proxies."""

from collections.abc import Sequence

from serve_app.collect.prometheus.query import MILLISECONDS, SECONDS, Dialect, Query
from serve_app.collect.service_labels import SAFE
from serve_app.settings.roles import Role

# Labels that name a proxy's workload. Linkerd's scrape configurations copy them from the pod, which has one of these.
_KINDS = (
    "deployment", "statefulset", "daemonset", "rollout", "deploymentconfig", "cronjob", "replicationcontroller",
)  # fmt: skip
_OF_RUNS = ("replicaset", "k8s_job")  # their names may end with the version or the time of a run
# Linkerd names workloads that it does not know, such as Argo Rollouts, with this label. An operator may own other
# workloads.
_ROOT = "root_parent"
WORKLOAD = "|".join((*_KINDS, "workload"))
_CALLEE_KINDS = tuple(f"dst_{kind}" for kind in (*_KINDS, *_OF_RUNS))
_HOST = "authority"  # the only name of an unresolved callee
_HASH, _POD = f"-{SAFE}{{8,10}}", f"-{SAFE}{{5}}"  # shorter hashes may be parts of a name
_ENDS = (  # ends of names by label; the last match counts
    ("pod", ""),
    ("pod", "-[0-9]+"),
    ("pod", _POD),
    ("pod", f"-[0-9]{{8,10}}{_POD}"),
    ("pod", f"{_HASH}{_POD}"),
    ("replicaset", ""),
    ("replicaset", _HASH),
    ("k8s_job", ""),
    ("k8s_job", "-[0-9]{8,10}"),
    (_ROOT, ""),
)


def linkerd() -> Dialect:
    """Linkerd's proxies [doc]: requests into a workload, and requests from a workload to a service.

    Proxies count their requests by workload, and their calls by the callee's service and workload. A call to a pod's
    address, such as a database client's, has no service; its callee is the workload.
    """
    service = ("namespace", WORKLOAD)
    serving = ("dst_namespace", "|".join(_CALLEE_KINDS), "dst_namespace", "dst_service")
    of_pairs = ", ".join(("dst_namespace", *_CALLEE_KINDS, "dst_service"))
    services = _queries(service, (("", ()),), 'direction="inbound"')
    open_connections = _by_workload("tcp_open_connections", 'direction="inbound",peer!="dst"', (), is_counter=False)
    services["connections"] = Query(open_connections, service)
    callees = (
        ('dst_service!=""', ("dst_namespace", "dst_service")),
        ('dst_service="",dst_namespace!=""', ("dst_namespace", *_CALLEE_KINDS)),
        (f'dst_service="",dst_namespace="",{_HOST}=~"[^.]+[.][^.]+[.]svc([.:].*)?"', (_HOST,)),
    )
    callee = f"dst_namespace|{_HOST}", "|".join(("dst_service", *_CALLEE_KINDS, _HOST))
    calls = _queries((*service, *callee), callees, 'direction="outbound"')
    return Dialect(
        "linkerd",
        services,
        calls,
        ("response_latency_ms_bucket{$match}",),
        names_workloads=True,
        serves=Query(
            f'sum by ({of_pairs}) (request_total{{$match direction="outbound",dst_service!=""}})',
            serving,
            joined_by="max",
        ),
    )


def _queries(
    labels: tuple[str, ...], callees: Sequence[tuple[str, tuple[str, ...]]], direction: str
) -> dict[Role, Query]:
    """Return the queries by role. ``callees`` are matchers of disjoint series, and the labels that name the callees of
    each."""

    def join_callees(metric: str, matcher: str = "", *more: str) -> str:
        parts = (
            _by_workload(metric, ",".join(filter(None, (direction, callee_matcher, matcher))), (*names, *more))
            for callee_matcher, names in callees
        )
        return " or ".join(parts)

    failures = join_callees("response_total", 'classification="failure"')
    return {
        "requests": Query(join_callees("request_total"), labels, SECONDS),
        "failures": Query(f"({failures}) > 0", labels, SECONDS),
        "buckets": Query(join_callees("response_latency_ms_bucket", "", "le"), labels, MILLISECONDS),
    }


def _by_workload(metric: str, matchers: str, more: tuple[str, ...], *, is_counter: bool = True) -> str:
    """Return PromQL for sums by the proxies' workload and ``more`` labels. For proxies without a workload, it comes
    from the pod names."""

    def value(matchers: str) -> str:
        series = f"{metric}{{$match {matchers}}}"
        return f"rate({series}[$window])" if is_counter else series

    nameless = ",".join((matchers, *(f'{kind}=""' for kind in _KINDS)))
    with_workload = f"sum by ({', '.join(('namespace', *_KINDS, *more))}) ({value(matchers)})"
    # Sums of series without a workload have no workload label.
    without_workload = f"sum by ({', '.join(('namespace', *more))}) ({metric}{{$match {nameless}}})"
    by_pod = f"sum by ({', '.join(('namespace', 'pod', *_OF_RUNS, _ROOT, *more))}) ({value(nameless)})"
    for label, end in _ENDS:
        by_pod = f'label_replace({by_pod}, "workload", "$1", "{label}", "(.+){end}")'
    by_pod = f"sum by ({', '.join(('namespace', 'workload', *more))}) ({by_pod})"
    return f"({with_workload} unless {without_workload} or {by_pod})"
