"""What a real Prometheus answers: spellings of bounds, and stores behind it that are away."""

import math
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serve_app.collect.prometheus.client import Prometheus
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings
from tests.live.history import prometheus_with_text
from tests.live.monitor import Monitor
from tests.live.polls import open_source, value_of
from tests.live.programs import free_ports, needs
from tests.live.series import Export
from tests.live.written import LENGTH, STEP, Written, write

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]

AT = datetime.fromtimestamp(int(datetime.now(UTC).timestamp()) // STEP * STEP - 600, UTC)
FIRST = AT - timedelta(seconds=LENGTH)
ENDS = {
    "source_workload_namespace": "shop", "source_canonical_service": "web",
    "destination_service_namespace": "shop", "destination_service_name": "cart",
}  # fmt: skip
# Requests a second of two pods, at most this slow (ms). One answers within 10 ms, the other within 10 to 100.
FAST, SLOW = (10, 10, 10), (0, 10, 10)


def write_mesh(file: Path, bounds: tuple[tuple[str, str, str], tuple[str, str, str]]) -> None:
    """Write a call, seen from both ends; each pod of the callee spells the bounds in its own way."""
    out = Written(int(FIRST.timestamp()))
    for pod, (counts, spellings) in enumerate(zip((FAST, SLOW), bounds, strict=True)):
        for reporter in ("source", "destination"):
            labels = {"reporter": reporter, "pod": f"cart-{pod}", "response_code": "200", **ENDS}
            out.counter("istio_requests_total", labels, 10)
            for le, rate in zip(spellings, counts, strict=True):
                out.counter("istio_request_duration_milliseconds_bucket", {**labels, "le": le}, rate)
    write([out], file)


@pytest.mark.parametrize(
    "bounds",
    [
        (("10", "100", "+Inf"), ("10", "100", "+Inf")),
        (("10", "100", "+Inf"), ("10.0", "100.0", "+Inf")),  # before and after an upgrade to Prometheus 3
        (("1e1", "1E2", "Inf"), ("10.00", "1e+02", "+Inf")),
        (("10", "100.000", "inf"), ("10.000000000000002", "100", "+inf")),
    ],
)
def test_quantiles_do_not_depend_on_the_spelling_of_bounds(
    tmp_path: Path, bounds: tuple[tuple[str, str, str], tuple[str, str, str]]
) -> None:
    write_mesh(tmp_path / "text", bounds)
    with (
        prometheus_with_text(tmp_path / "text", tmp_path, FIRST, Export(interval_seconds=4 * STEP)) as monitor,
        open_source(monitor.url, CollectorSettings(window_seconds=60)) as source,
    ):
        poll = source.poll(AT)
    assert poll.snapshot is not None, poll.why
    wanted = {"request_rate": 20, "p50_latency": 0.010, "p99_latency": 0.010 + 0.090 * 0.98}
    found = {metric: value_of(poll.snapshot, "shop/cart", metric) for metric in wanted}
    assert found == pytest.approx(wanted, rel=0.01)
    assert not math.isnan(poll.snapshot.edge_features[0].sum())


def test_a_store_behind_prometheus_that_is_away_makes_its_answers_incomplete(tmp_path: Path) -> None:
    store = f"http://127.0.0.1:{free_ports(1)[0]}/read"
    with (
        Monitor(tmp_path, remote_reads=[store]) as monitor,
        closing(Prometheus(Endpoint(monitor.url))) as prometheus,
    ):
        answer = prometheus.ask({"q": "up"}, AT, within=20.0)["q"]
    assert answer.failed == "incomplete"
    assert "remote_read" in answer.detail
