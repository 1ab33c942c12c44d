"""Kong Gateway, as the front door of a mesh."""

from serve_app.collect.prometheus.dialects.front_door import front_door
from serve_app.collect.prometheus.naming import CALLEE, NO_NAMESPACE, SEPARATOR, Derived, View, rates
from serve_app.collect.prometheus.query import MILLISECONDS, Dialect, Gap

_REQUESTS = "kong_http_requests_total"
_PLUGIN = "in the KongClusterPlugin of the plugin prometheus (https://developer.konghq.com/plugins/prometheus/)"


def kong() -> Dialect:
    """Kong's metrics, from its plugin ``prometheus``: the gateway, and its calls to services.

    Its ingress controller names a service ``namespace.name.port``, and by its route in the Gateway API:
    ``httproute.namespace.route.0``. Without Kubernetes, a name has no dot. A scrape may rename ``service`` to
    ``exported_service``. A call's latency is the upstream server's response time. The gateway's latency is the whole
    request's time.

    Source: ``kong/plugins/prometheus/exporter.lua`` of Kong, ``internal/dataplane/kongstate`` of its ingress controller
    and https://developer.konghq.com/plugins/prometheus/.
    """

    def view(latency: str, matchers: str = "") -> View:
        failure_matchers = f'{matchers}code=~"5.."'
        return View(
            rates(f"{_REQUESTS}{{$match {matchers}}}".replace(" }", "}")),
            rates(f"{_REQUESTS}{{$match {failure_matchers}}}"),
            ((rates(f"kong_{latency}_latency_ms_bucket{{$match {matchers}}}".replace(" }", "}")), MILLISECONDS),),
        )

    return front_door(
        "kong",
        "kong",
        _service(),
        view("upstream", 'route!="",'),
        (f"{_REQUESTS}{{$match}}",),
        all_requests=view("request"),
        gaps=(
            Gap(
                "latencies",
                f"count({_REQUESTS}{{$match}}) unless on () count(kong_request_latency_ms_bucket{{$match}})",
                "latency at the gateway is unknown",
                f"set latency_metrics to true {_PLUGIN}",
            ),
        ),
    )


def _service() -> tuple[Derived, Derived]:
    labels, char = ("exported_service", "service"), f"[^.{SEPARATOR}]"
    kubernetes = f"{SEPARATOR}?(?:httproute[.])?(?:svc[.])?({char}+)[.]({char}+)[.].+"
    return (
        Derived(CALLEE[0], labels, kubernetes, "$1", NO_NAMESPACE),
        Derived(CALLEE[1], labels, f"{kubernetes}|{SEPARATOR}?({char}+)(?:{SEPARATOR}.*)?", "$2$3"),
    )
