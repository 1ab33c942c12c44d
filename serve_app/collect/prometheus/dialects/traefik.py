"""The ingress controller Traefik, as the front door of a mesh."""

from serve_app.collect.prometheus.dialects.front_door import front_door
from serve_app.collect.prometheus.naming import CALLEE, NO_NAMESPACE, SEPARATOR, Derived, View, rates
from serve_app.collect.prometheus.query import SECONDS, Dialect, Gap

_SERVICE, _ENTRY = "traefik_service", "traefik_entrypoint"
_DOCS = "https://doc.traefik.io/traefik/observability/metrics/prometheus/"


def traefik() -> Dialect:
    """Traefik's metrics: the controller, and its calls to services.

    Traefik names a Kubernetes service ``namespace-name-port@kubernetes``. The end of the namespace is ambiguous: the
    first hyphen counts, unless another source of the mesh knows the service. A port with hyphens is recognised if it
    begins with the name of a protocol. Other providers write ``name@provider``. A scrape may rename ``service`` to
    ``exported_service``.

    Source: ``pkg/observability/metrics/prometheus.go`` of Traefik and
    https://doc.traefik.io/traefik/observability/metrics/prometheus/.
    """

    def view(metric: str, selector: str) -> View:
        return View(
            rates(f"{metric}_requests_total{{$match {selector}}}"),
            rates(f'{metric}_requests_total{{$match {selector},code=~"5.."}}'),
            ((rates(f"{metric}_request_duration_seconds_bucket{{$match {selector}}}"), SECONDS),),
        )

    return front_door(
        "traefik",
        "traefik",
        _service(),
        view(_SERVICE, 'service!~".+@internal",exported_service!~".+@internal"'),
        (f"{_SERVICE}_requests_total{{$match}}", f"{_ENTRY}_requests_total{{$match}}"),
        all_requests=view(_ENTRY, 'entrypoint!~"traefik|metrics"'),  # those serve Traefik's own pages
        joined_names=True,
        gaps=(
            Gap(
                "metrics of services",
                f"count({_ENTRY}_requests_total{{$match}}) unless on () count({_SERVICE}_requests_total{{$match}})",
                "calls of the controller are missing",
                f"set metrics.prometheus.addServicesLabels to true in Traefik ({_DOCS})",
            ),
        ),
    )


def _service() -> tuple[Derived, Derived]:
    labels, suffix = ("exported_service", "service"), f"(?:{SEPARATOR}.*)?"
    protocol = "(?:https?|h2c?|grpc|tcp)(?:-[a-z0-9-]+)?"
    kubernetes = [
        "([^-]+)-(.+)-[0-9]+",
        f"([^-]+)-(.+)-{protocol}",  # the last one: a service may be called `cart-web` or `cart-grpc`
        "([^-]+)-(.+)-[^-]+",
        "([^-]+)-([^-]+)",  # without a port
    ]
    text = "|".join(f"{pattern}@kubernetes[a-z]*" for pattern in kubernetes)
    groups = range(1, 2 * len(kubernetes) + 1)
    namespaces, names = ("".join(f"${{{group}}}" for group in groups if group % 2 == odd) for odd in (1, 0))
    elsewhere = f"([^@{SEPARATOR}]+)@[^{SEPARATOR}]+"
    return (
        Derived(CALLEE[0], labels, f"{SEPARATOR}?(?:{text}){suffix}", namespaces, NO_NAMESPACE),
        Derived(CALLEE[1], labels, f"{SEPARATOR}?(?:{text}|{elsewhere}){suffix}", f"{names}${{{len(groups) + 1}}}"),
    )
