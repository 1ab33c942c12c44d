"""The common part of ingress controllers, which stand in front of a mesh or alone."""

from serve_app.collect.prometheus.naming import (
    CALLEE,
    CALLER,
    NO_NAMESPACE,
    POD_NAME,
    SEPARATOR,
    Derived,
    Keys,
    View,
    both,
    view_queries,
)
from serve_app.collect.prometheus.query import Dialect, Gap

Names = tuple[Derived, Derived]


def front_door(
    name: str,
    controller: str,
    callee: Names,
    forwarded_requests: View,
    signature: tuple[str, ...],
    *,
    all_requests: View | None = None,
    joined_names: bool = False,
    gaps: tuple[Gap, ...] = (),
) -> Dialect:
    """The dialect of a controller, which is named by its workload, and its calls to services.

    Args:
        controller: name to use if the scrape adds neither a pod nor a job.
        callee: the service behind it, from the labels of ``forwarded_requests``.
        forwarded_requests: requests that it passes on.
        all_requests: None: only the requests that it passes on.
        signature, joined_names, gaps: see :class:`Dialect`.
    """
    door = Keys(_workload(CALLEE, controller))
    views = (all_requests, forwarded_requests) if all_requests else (forwarded_requests,)
    return Dialect(
        name,
        both(view_queries(door, *views), view_queries(Keys(callee), forwarded_requests)),
        view_queries(Keys(_workload(CALLER, controller) + callee), forwarded_requests),
        signature,
        front_door=True,
        joined_names=joined_names,
        gaps=gaps,
    )


def one_label(label: str, pattern: str, namespace: str, name: str) -> Names:
    """Return the namespace and name of a service, from a label that contains both."""
    return (
        Derived(CALLEE[0], (label,), pattern, namespace, NO_NAMESPACE),
        Derived(CALLEE[1], (label,), pattern, name),
    )


def _workload(labels: tuple[str, str], controller: str) -> Names:
    return (
        Derived(labels[0], ("namespace",), otherwise=NO_NAMESPACE),
        Derived(
            labels[1], ("pod", "job"), f"{POD_NAME}{SEPARATOR}.*|{SEPARATOR}(?:.*/)?([^/]+)", "$1$2$3$4", controller
        ),
    )
