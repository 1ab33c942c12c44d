"""The ingress controller ingress-nginx, as the front door of a mesh."""

from serve_app.collect.prometheus.naming import (
    CALLEE,
    CALLER,
    POD_NAME,
    SEPARATOR,
    Derived,
    Keys,
    View,
    both,
    first_of,
    rates,
    view_queries,
)
from serve_app.collect.prometheus.query import SECONDS, Dialect, Gap

_METRIC = "nginx_ingress_controller"


def nginx_ingress() -> Dialect:
    """The metrics of ingress-nginx: the controller, and its calls to the services of Ingresses.

    The controller is named by its workload, from ``controller_pod``. A scrape may rename the labels of the Ingress to
    ``exported_namespace`` and ``exported_service``. Requests that match no Ingress count for the controller only. A
    call's latency is the upstream server's response time, so slow clients do not count. The controller's latency is the
    whole request's time.

    Source: ``internal/ingress/metric/collectors/socket.go`` of ingress-nginx and
    https://kubernetes.github.io/ingress-nginx/user-guide/monitoring/.
    """
    of_ingresses = 'ingress!~"-?",'  # of the default backend, it is empty or a hyphen

    def view(matchers: str, *durations: str) -> View:
        every = f"{{$match {matchers}}}".replace(" }", "}")
        return View(
            rates(f"{_METRIC}_requests{every}"),
            rates(f'{_METRIC}_requests{{$match {matchers}status=~"5.."}}'),
            tuple((rates(f"{_METRIC}_{duration}_duration_seconds_bucket{every}"), SECONDS) for duration in durations),
        )

    all_requests, to_services = view("", "request"), view(of_ingresses, "response", "request")
    controller, callee = _controller(CALLEE), _service()
    services = both(view_queries(Keys(controller), all_requests), view_queries(Keys(callee), to_services))
    return Dialect(
        "nginx-ingress",
        services,
        view_queries(Keys(_controller(CALLER) + callee), to_services),
        (f"{_METRIC}_requests{{$match}}",),
        front_door=True,
        gaps=(
            Gap(
                "names of services",
                f'count({_METRIC}_requests{{$match {of_ingresses}service=~"-?",exported_service=~"-?"}})',
                "calls of the controller to these services are missing",
                "let the Ingress name a Service as its backend",
            ),
            Gap(
                "durations",
                f"count({_METRIC}_requests{{$match}}) unless on () "
                f"count({_METRIC}_request_duration_seconds_bucket{{$match}})",
                "latency at the front door is unknown",
                "remove request_duration_seconds from --exclude-socket-metrics of the controller",
            ),
        ),
    )


def _controller(labels: tuple[str, str]) -> tuple[Derived, Derived]:
    return (
        Derived(labels[0], ("controller_namespace",), otherwise="ingress-nginx"),
        Derived(labels[1], ("controller_pod",), POD_NAME, "$1$2$3", "ingress-nginx-controller"),
    )


def _service() -> tuple[Derived, Derived]:
    name = f"{SEPARATOR}*([a-z0-9][^{SEPARATOR}]*)(?:{SEPARATOR}.*)?"  # a hyphen is not a name
    return (
        first_of(CALLEE[0], "exported_namespace", "namespace"),
        Derived(CALLEE[1], ("exported_service", "service"), name),
    )
