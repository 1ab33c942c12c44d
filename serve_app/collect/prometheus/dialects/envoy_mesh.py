"""The common part of meshes whose sidecars export only Envoy's metrics."""

from serve_app.collect.prometheus.naming import POD_NAME, SEPARATOR, Derived, Keys, View, first_of, rates, view_queries
from serve_app.collect.prometheus.query import MILLISECONDS, Query, by
from serve_app.settings.roles import Role

_CLUSTER = "envoy_cluster_upstream"


def cluster_queries(keys: Keys, selector: str) -> dict[Role, Query]:
    """Return the queries for requests, failures and latencies of Envoy clusters.

    A metrics profile may leave out ``upstream_rq_completed``; the sum over all response classes is the same number.
    """
    queries = view_queries(keys, cluster_view(selector))
    requests, classes = queries["requests"], f"{_CLUSTER}_rq_xx{{$match {selector}}}"
    return {**queries, "requests": Query(f"{requests.promql} or {keys.sum(rates(classes))}", keys.labels)}


def cluster_view(selector: str) -> View:
    """Return the requests of Envoy clusters.

    Requests are completed ones: ``upstream_rq_total`` does not count requests that got no connection, so a dead service
    would lose its callers.
    """
    return View(
        rates(f"{_CLUSTER}_rq_completed{{$match {selector}}}"),
        rates(f'{_CLUSTER}_rq_xx{{$match {selector},envoy_response_code_class="5"}}'),
        ((rates(f"{_CLUSTER}_rq_time_bucket{{$match {selector}}}"), MILLISECONDS),),
    )


def sidecar_queries(keys: Keys, inbound: str) -> dict[Role, Query]:
    """Return :func:`cluster_queries` for the clusters that carry requests into a service, and its connections."""
    in_use = keys.sum(f"{_CLUSTER}_cx_active{{$match {inbound}}}")
    return {**cluster_queries(keys, inbound), "connections": Query(in_use, keys.labels)}


def serving(keys: Keys, selector: str) -> Query:
    """Return the query for each workload's service, from the sidecars' pods."""
    workload = (
        first_of("workload_namespace", "namespace", "kubernetes_namespace"),
        Derived("workload", ("pod", "kubernetes_pod_name"), f"{SEPARATOR}?{POD_NAME}(?:{SEPARATOR}.*)?", "$1$2$3"),
    )
    pairs = Keys(workload + keys.derived, keys.helpers)
    series = f"{_CLUSTER}_cx_active{{$match {selector}}}"
    return Query(f"group by ({by(pairs.labels)}) ({pairs.sum(series)})", pairs.labels, joined_by="max")
