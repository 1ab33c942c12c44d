"""Real Envoys whose Prometheus scrapes them every 15, 30 or 60 s: the same mesh, with the same rates.

Three servers scrape one mesh at the same time, so that all of them together cost one wait of six minutes.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from model.snapshot import EdgeMetric, MeshSnapshot, NodeMetric
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.source import Poll
from serve_app.doctor.telemetry import TelemetryReport, check_telemetry
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.mesh import NEEDS, LiveMesh
from tests.live.monitor import Monitor
from tests.live.programs import needs
from tests.live.shop import OUTSIDE, Measured
from tests.live.topology import ENTRY, NAMESPACE, SHOP, expected_rates, node
from tests.timing import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    needs(*NEEDS),
]
INTERVALS = (15.0, 30.0, 60.0)  # s
RATE = 20.0  # requests a second from outside
LONGEST = 1800.0  # s; the load ends even if the test does not
SAMPLES = 6  # of each series at the longest interval: four for a window, and those between the polls
POLLS, BEHIND = 4, 15.0  # of each server, an interval of the collector apart; age of the newest, s
PATIENT = CollectorSettings(deadline_seconds=60)
SERIES = "envoy_cluster_upstream_rq_total"


@dataclass(frozen=True)
class Scraped:
    """What was read from one Prometheus.

    Attributes:
        polls: oldest first.
        window_seconds: the rate window that its interval needs.
        measured: by the clients in that window before the newest poll.
        report: of the doctor.
    """

    polls: list[Poll]
    window_seconds: float
    measured: Mapping[tuple[str, str], Measured]
    report: TelemetryReport

    @property
    def newest(self) -> MeshSnapshot:
        snapshot = self.polls[-1].snapshot
        assert snapshot is not None, self.polls[-1].why
        return snapshot


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[float, Scraped]]:
    """The same minutes of the same mesh, by scrape interval."""
    folder = tmp_path_factory.mktemp("intervals")
    first, *others = INTERVALS
    with ExitStack() as opened:
        mesh = opened.enter_context(LiveMesh(folder, scrape_seconds=first))
        urls = {first: mesh.prometheus}
        for seconds in others:
            own = folder / f"{seconds:g}"
            own.mkdir()
            monitor = opened.enter_context(Monitor(own, [mesh.scrape_config(seconds)], retention="1h"))
            urls[seconds] = monitor.url
        mesh.load(RATE, LONGEST, seed=3)
        slowest = max(INTERVALS)
        full = f"min(count_over_time({SERIES}[{SAMPLES * slowest:g}s]))"
        monitor.program.wait_until(lambda: value(urls[slowest], full) >= SAMPLES, SAMPLES * slowest + PATIENCE_SECONDS)
        now = datetime.now(UTC)
        yield {seconds: read(mesh, url, seconds, now) for seconds, url in urls.items()}


def read(mesh: LiveMesh, url: str, seconds: float, now: datetime) -> Scraped:
    """Poll a Prometheus as the collector does, and ask the doctor about it."""
    settings = MeshSettings(prometheus=url)
    ages = [BEHIND + PATIENT.interval_seconds * number for number in reversed(range(POLLS))]
    with closing(MeshSource(settings, PATIENT)) as source:
        polls = [source.poll(now - timedelta(seconds=age)) for age in ages]
    window = max(4 * seconds, PATIENT.window_seconds)
    until = now.timestamp() - BEHIND
    report = check_telemetry(settings, PATIENT, now - timedelta(seconds=BEHIND), NAMESPACE)
    return Scraped(polls, window, mesh.measured(until - window, until), report)


def value(url: str, promql: str) -> float:
    reply = httpx.get(f"{url}/api/v1/query", params={"query": promql}, trust_env=False).json()
    return max((float(one["value"][1]) for one in reply["data"]["result"]), default=0.0)


@pytest.mark.parametrize("seconds", INTERVALS)
def test_the_interval_is_found_and_the_window_follows(scraped: dict[float, Scraped], seconds: float) -> None:
    poll = scraped[seconds].polls[-1]
    assert poll.survey is not None
    assert poll.survey.mesh.interval_seconds == seconds
    assert [one.subject for one in poll.remarks] == (["scrapes"] if seconds > INTERVALS[0] else [])
    if poll.remarks:
        assert (
            f"every {seconds:g} s: their rates are over {scraped[seconds].window_seconds:g} s" in poll.remarks[0].found
        )


@pytest.mark.parametrize("seconds", INTERVALS)
def test_no_service_and_no_call_comes_and_goes(scraped: dict[float, Scraped], seconds: float) -> None:
    for poll in scraped[seconds].polls:
        assert poll.snapshot is not None, poll.why
        assert not poll.masked
        assert set(poll.snapshot.node_ids) == {node(service.name) for service in SHOP}
        assert set(rates_of_calls(poll.snapshot)) == set(expected_rates(RATE))


@pytest.mark.parametrize("seconds", INTERVALS)
def test_rates_are_those_that_clients_measured(scraped: dict[float, Scraped], seconds: float) -> None:
    """The samples of a window begin and end up to an interval from its ends, so its rate is of other seconds."""
    one = scraped[seconds]
    calls, into = rates_of_calls(one.newest), dict(zip(one.newest.node_ids, rates(one.newest), strict=True))
    for ends in expected_rates(RATE):
        assert calls[ends] == pytest.approx(one.measured[ends].requests / one.window_seconds, rel=0.15), ends
    assert into[node(ENTRY)] == pytest.approx(one.measured[OUTSIDE, ENTRY].requests / one.window_seconds, rel=0.15)


@pytest.mark.parametrize("seconds", INTERVALS)
def test_latencies_are_in_seconds_and_of_the_window(scraped: dict[float, Scraped], seconds: float) -> None:
    """On a busy machine a client waits much longer than its sidecar measures, and some seconds are slow."""
    one = scraped[seconds]
    for ends, p50 in by_ends(one.newest, EdgeMetric.P50_LATENCY).items():
        assert 0.1 * one.measured[ends].p50 < p50 < 4 * one.measured[ends].p50, ends


@pytest.mark.parametrize("seconds", INTERVALS)
def test_the_doctor_shows_the_interval_and_the_mesh(scraped: dict[float, Scraped], seconds: float) -> None:
    report = scraped[seconds].report
    assert report.mesh is not None
    assert (report.mesh.services, report.mesh.calls, report.mesh.entry_points) == (7, 8, (node(ENTRY),))
    (found,) = (one for one in report.findings if one.subject == "scrapes")
    assert f"every {seconds:g} s" in found.found
    assert found.outcome == ("warning" if seconds > INTERVALS[0] else "ok")


def rates(snapshot: MeshSnapshot) -> list[float]:
    column: list[float] = snapshot.node_features[:, NodeMetric.REQUEST_RATE].tolist()
    return column


def rates_of_calls(snapshot: MeshSnapshot) -> dict[tuple[str, str], float]:
    return by_ends(snapshot, 0)


def by_ends(snapshot: MeshSnapshot, metric: int) -> dict[tuple[str, str], float]:
    """One metric of the calls, by the names of their ends."""
    names = [name.removeprefix(f"{NAMESPACE}/") for name in snapshot.node_ids]
    values = snapshot.edge_features[:, metric].tolist()
    return {(names[a], names[b]): value for (a, b), value in zip(snapshot.edge_index.T, values, strict=True)}
