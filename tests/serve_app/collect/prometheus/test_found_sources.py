"""Sources that are found without a setting: a mesh with the ingress controllers in front of it, also when one of them
appears or ends later."""

from datetime import UTC, datetime, timedelta

import pytest

from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.survey import AGAIN_SECONDS
from tests.serve_app.collect.prometheus import standin

AT = datetime(2026, 3, 1, tzinfo=UTC)
METRICS = {
    "istio": "istio_requests_total",
    "nginx-ingress": "nginx_ingress_controller_requests",
    "traefik": "traefik_service_requests_total",
}
LABELS = {
    "destination_service_namespace": "shop",
    "destination_service_name": "web",
    "callee_namespace": "shop",
    "callee": "web",
    "reporter": "destination",
}
CALLER = {"caller_namespace": "edge", "caller": "door"}


class Store:
    """A Prometheus with the metrics of some sources."""

    def __init__(self, *sources: str, failing: str = "") -> None:
        self.sources, self.failing = sources, failing

    def __call__(self, request: standin.Request) -> None:
        text = request.query["query"]
        if self.failing and text.startswith(f"count({METRICS[self.failing]}"):
            request.send(503, b"busy")
            return
        exists = any(METRICS[source] in text for source in self.sources)
        labels = {**LABELS, **(CALLER if "caller" in text else {})}
        request.send(200, standin.vector([(labels, "5")] if exists and "_bucket" not in text else []))


def names(source: MeshSource) -> list[str]:
    assert source.dialect is not None
    return [name.removesuffix("-ambient") for name in source.dialect.names]


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (["istio"], ["istio"]),
        (["istio", "nginx-ingress"], ["istio", "nginx-ingress"]),
        (["traefik", "istio", "nginx-ingress"], ["istio", "nginx-ingress", "traefik"]),
        (["traefik"], ["traefik"]),
    ],
)
def test_ingress_controllers_are_found_beside_a_mesh(sources: list[str], found: list[str]) -> None:
    with standin.start_source(Store(*sources)) as source:
        source.poll(AT)
        assert names(source) == found


@pytest.mark.parametrize(
    ("first", "later", "found"),
    [
        (["istio"], ["istio", "nginx-ingress"], ["istio", "nginx-ingress"]),  # a controller is installed
        (["nginx-ingress"], ["nginx-ingress", "istio"], ["istio", "nginx-ingress"]),  # the mesh was scraped later
        (["istio", "traefik"], ["traefik"], ["istio", "traefik"]),  # the mesh is not observed
        (["istio", "traefik"], ["istio"], ["istio", "traefik"]),  # the controller is not observed
    ],
)
def test_a_source_that_appears_later_is_added(first: list[str], later: list[str], found: list[str]) -> None:
    store = Store(*first)
    with standin.start_source(store) as source:
        source.poll(AT)
        store.sources = tuple(later)
        source.poll(AT + timedelta(seconds=AGAIN_SECONDS + 1))
        assert names(source) == found


@pytest.mark.parametrize(("failing", "is_known"), [("istio", False), ("nginx-ingress", False), ("", True)])
def test_detection_waits_for_an_answer_about_a_better_source(failing: str, is_known: bool) -> None:
    with standin.start_source(Store("nginx-ingress", "istio", failing=failing)) as source:
        poll = source.poll(AT)
        assert (source.dialect is not None) == is_known
        assert (poll.snapshot is not None) == is_known
