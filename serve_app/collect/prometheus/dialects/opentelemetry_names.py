"""Service names in OpenTelemetry metrics."""

from serve_app.collect.prometheus.naming import CALLER, NO_NAMESPACE, NO_SEPARATOR, SEPARATOR, Derived, first_of

PEER = "peer"
PEER_NAMES = ("service_peer_name", "peer_service")  # labels with a service's name
PEER_HOSTS = ("server_address", "net_peer_name")
PEERS = PEER_NAMES + PEER_HOSTS  # labels that name a client's callee
PUBLIC = "com|net|org|io|dev|app|cloud|ai|co|edu|gov"  # a host in such a domain is outside the cluster


def service_names(labels: tuple[str, str], *names: str) -> tuple[Derived, Derived]:
    """Return the namespace and name of the service that reports.

    The name is the first of the labels ``names`` that is not empty, else the job, which OpenTelemetry writes as
    ``service.namespace/service.name``. A scrape of a collector renames the job to ``exported_job``; the labels
    ``namespace`` and ``job`` then name the collector. A Kubernetes namespace takes precedence over an OpenTelemetry
    namespace.
    """
    sep, char = SEPARATOR, NO_SEPARATOR
    return (
        Derived(
            labels[0],
            ("k8s_namespace_name", "service_namespace", "exported_job", "service_name", "namespace", "job"),
            f"({char}+){sep}.*"
            f"|{sep}({char}+){sep}.*"
            f"|{sep}{sep}([^{sep}/]+)/.*"
            f"|{sep}{sep}{sep}{sep}({char}+){sep}.*"  # scraped from the service itself
            f"|{sep}{sep}{sep}{char}*{sep}{char}*{sep}([^{sep}/]+)/.+",
            "$1$2$3$4$5",
            NO_NAMESPACE,
        ),
        Derived(
            labels[1],
            (*names, "exported_job", "job"),
            f"{sep}{{0,{len(names) - 1}}}({char}+){sep}.*"
            f"|{sep}{{{len(names)}}}(?:[^{sep}/]*/)?({char}+){sep}.*"
            f"|{sep}{{{len(names) + 1}}}(?:[^/]*/)?(.+)",
            "$1$2$3",
        ),
    )


def peer_names(labels: tuple[str, str]) -> tuple[tuple[Derived, ...], tuple[Derived, Derived]]:
    """Return a callee's namespace and name, from the first of :data:`PEERS` that is not empty.

    A host in the cluster is ``name``, ``name.namespace`` or ``name.namespace.svc``, the last with or without the
    cluster's domain. The name of a service keeps its dots, unless it is such a host with ``.svc``.
    Without a namespace, the callee is in the caller's namespace. Other hosts are services in the namespace
    ``external``.

    Returns:
        Helper labels, and the two labels derived from them.
    """
    sep, char = SEPARATOR, NO_SEPARATOR
    helpers = (
        first_of(PEER, *PEER_HOSTS),
        Derived(PEER, (PEER,), "([^:]+):[0-9]+"),
        Derived(PEER, PEER_NAMES, f"{sep}*({char}+)(?:{sep}.*)?", "service:$1"),
        Derived(PEER, (PEER,), "service:([^.:]+[.][^.:]+[.]svc(?:[.].+)?)"),
        Derived(PEER, (PEER,), f"(?:service:)?(.+[.](?:{PUBLIC}))", "external:$1"),
    )
    return helpers, (
        Derived(
            labels[0],
            ("k8s_namespace_name", CALLER[0], PEER),
            f"{char}+{sep}{char}*{sep}[^.:{sep}]+[.]([^.:{sep}]+)(?:[.]svc(?:[.].+)?)?"
            f"|{char}*{sep}({char}+){sep}(?:service:.+|[^.:{sep}]+(?:[.][^.:{sep}]+(?:[.]svc(?:[.].+)?)?)?)",
            "$1$2",
            "external",
        ),
        Derived(
            labels[1],
            (PEER,),
            "external:(.+)|service:(.+)|([^.:]+)(?:[.][^.:]+(?:[.]svc(?:[.].+)?)?)?|(.+)",
            "$1$2$3$4",
        ),
    )
