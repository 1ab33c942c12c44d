"""The ingress controllers that configure HAProxy, as the front door of a mesh."""

from serve_app.collect.prometheus.dialects.front_door import front_door, one_label
from serve_app.collect.prometheus.naming import View, rates
from serve_app.collect.prometheus.query import Dialect

_BACKENDS = "([^_]+)_(?:svc_)?([^_]+)_[^_]+"


def haproxy_ingress() -> Dialect:
    """HAProxy's backend metrics, which HAProxy Ingress names ``namespace_name_port`` and the ingress controller of
    HAProxy Technologies ``namespace_svc_name_port``.

    HAProxy measures averages of the last 1024 requests, but no distributions, so latencies are unknown. Requests that
    match no Ingress are not counted.

    Source: ``addons/promex/README`` of HAProxy and https://haproxy-ingress.github.io/docs/configuration/keys/.
    """
    metric, selector = "haproxy_backend_http", f'proxy=~"{_BACKENDS}"'
    requests = f"{metric}_requests_total{{$match {selector}}}"
    view = View(rates(requests), rates(f'{metric}_responses_total{{$match {selector},code="5xx"}}'), ())
    return front_door("haproxy-ingress", "haproxy", one_label("proxy", _BACKENDS, "$1", "$2"), view, (requests,))
