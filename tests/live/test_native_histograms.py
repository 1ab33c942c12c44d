"""Native histograms: a mesh that has them instead of buckets, in a real Prometheus."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.net.endpoint import Endpoint
from serve_app.settings import MeshSettings
from tests.live import remote_write
from tests.live.monitor import Monitor
from tests.live.programs import needs
from tests.live.test_dialects import CASES, PATIENT, check
from tests.live.written import LENGTH, STEP, Labels, Written

pytestmark = [pytest.mark.live, needs("prometheus")]
PLAIN = ["istio", "graph"]
DERIVED = ["beyla", "sdk", "nginx-daemon", "nginx-before-istio", "spans-connector", "consul"]  # names from labels


class NativelyWritten(Written):
    """Series with native histograms; beside buckets if ``classic`` is set."""

    def __init__(self, begin: int, classic: bool = False) -> None:
        super().__init__(begin)
        self.histograms: list[tuple[str, Labels, float, float]] = []
        self._classic = classic

    def histogram(self, metric: str, labels: Labels, rate: float, latency: float) -> None:
        """Durations that are all in the middle of the bucket of ``latency``."""
        if self._classic:
            super().histogram(metric, labels, rate, latency)
        in_ms = "milliseconds" in metric or metric.endswith("_rq_time")
        # With buckets too, the native histogram has other durations, to show which one is read.
        value = latency * (0.02 if self._classic else 0.9) * (1000 if in_ms else 1)
        self.histograms.append((metric, labels, rate, value))

    def send(self, url: str) -> None:
        """Write all series to a Prometheus."""
        times = range(0, LENGTH + STEP, STEP)
        numbers = (
            (
                metric,
                labels,
                [remote_write.number(self.begin + at, 1000 + value * at if grows else value) for at in times],
            )
            for metric, rows in self.rows.items()
            for labels, grows, value in rows
        )
        histograms = (
            (metric, labels, [remote_write.histogram(self.begin + at, 1000 + round(rate * at), value) for at in times])
            for metric, labels, rate, value in self.histograms
        )
        all_series = [
            remote_write.series({**labels, "__name__": metric}, samples)
            for metric, labels, samples in (*numbers, *histograms)
        ]
        remote_write.send(url, b"".join(all_series))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """A Prometheus that accepts native histograms."""
    options = ("--enable-feature=native-histograms", "--web.enable-remote-write-receiver")
    with Monitor(tmp_path, options=options) as monitor:
        yield monitor.url


def written(url: str, write: Callable[[Written], None], classic: bool = False) -> datetime:
    begin = int(datetime.now(UTC).timestamp()) - LENGTH
    out = NativelyWritten(begin, classic)
    write(out)
    out.send(url)
    return datetime.fromtimestamp(begin + LENGTH, UTC)


def keeps_histograms(url: str, at: datetime) -> bool:
    """Whether ``label_replace`` keeps native histograms. Early versions of Prometheus lose them."""
    remote_write.send(url, remote_write.series({"__name__": "probe"}, [remote_write.histogram(at.timestamp(), 9, 0.1)]))
    with closing(Prometheus(Endpoint(url))) as client:
        query = 'histogram_count(label_replace(probe, "a", "b", "", ""))'
        return len(client.ask({"probe": query}, at, 60)["probe"].samples) > 0


@pytest.mark.parametrize("name", [*PLAIN, *DERIVED])
def test_quantiles_of_native_histograms_are_read(prometheus: str, name: str) -> None:
    case = CASES[name]
    at = written(prometheus, case.write)
    if name in DERIVED and not keeps_histograms(prometheus, at):
        pytest.skip("label_replace of this Prometheus loses native histograms: no latencies, see the next test")
    for source in (case.source, "auto"):
        with closing(MeshSource(MeshSettings(prometheus=prometheus, source=source), PATIENT)) as mesh:
            first, second = (mesh.poll(at) for _ in range(2))
        assert {role: answer.detail for role, answer in second.answers.items() if answer.failed} == {}
        for poll in (first, second):
            assert poll.snapshot is not None, poll.why
            check(case, poll.snapshot)


@pytest.mark.parametrize("name", ["beyla", "sdk", "nginx-daemon"])
def test_rates_and_failures_are_read_from_native_histograms(prometheus: str, name: str) -> None:
    case = CASES[name]
    at = written(prometheus, case.write)
    with closing(MeshSource(MeshSettings(prometheus=prometheus, source=case.source), PATIENT)) as mesh:
        poll = mesh.poll(at)
    assert {role: answer.detail for role, answer in poll.answers.items() if answer.failed} == {}
    assert poll.snapshot is not None, poll.why
    check(case, poll.snapshot, latencies=keeps_histograms(prometheus, at))


@pytest.mark.parametrize("name", ["istio", "beyla", "nginx-before-istio", "consul"])
def test_buckets_are_read_where_both_exist(prometheus: str, name: str) -> None:
    case = CASES[name]
    at = written(prometheus, case.write, classic=True)
    with closing(MeshSource(MeshSettings(prometheus=prometheus, source=case.source), PATIENT)) as mesh:
        poll = mesh.poll(at)
    assert poll.snapshot is not None, poll.why
    assert ("services", "buckets") in poll.answers
    check(case, poll.snapshot)
