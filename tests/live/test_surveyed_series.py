"""What a real Prometheus has of a mesh decides how the mesh is polled: scrapes, lag, clusters, pairs of servers."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.snapshot import NODE_METRICS
from serve_app.collect.base import Poll
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_lines, write_lines
from tests.live.programs import needs

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
NOW = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=2)
CALLS = (("gw", "web"), ("web", "cart"), ("cart", "db"))
SERVICES = ["shop/cart", "shop/db", "shop/gw", "shop/web"]


@dataclass(frozen=True, slots=True)
class Scraped:
    """Series that are scraped alike; ``since`` and ``until`` are relative to ``NOW``, s."""

    samples: Mapping[str, float]  # rate of a counter by series, 1/s; or value of a gauge
    step: float = 15.0
    since: float = -1500.0
    until: float = 600.0
    is_gauge: bool = False

    def lines(self) -> Iterator[tuple[str, str]]:
        """The name of the metric and the line, of each sample."""
        for number, (series, value) in enumerate(self.samples.items()):
            at = self.since + (number * 0.37 % 0.9) * self.step
            while at <= self.until:
                count = value if self.is_gauge else 1000 + value * (at - self.since)
                yield series.split("{")[0], f"{series} {count:.6f} {NOW.timestamp() + at:.3f}\n"
                at += self.step


def istio(rate: float = 40.0, namespace: str = "shop", reporters: str = "both", **labels: str) -> dict[str, float]:
    """A mesh of four services in a row. ``reporters``: both ends of a call, or the waypoint."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    series: dict[str, float] = {}
    for source, destination in CALLS:
        for reporter in ("source", "destination") if reporters == "both" else (reporters,):
            ends = (
                f'reporter="{reporter}",source_workload_namespace="{namespace}",source_canonical_service="{source}",'
                f'source_workload="{source}",destination_workload="{destination}",destination_service_name='
                f'"{destination}",destination_service_namespace="{namespace}",destination_workload_namespace='
                f'"{namespace}",destination_canonical_service="{destination}",request_protocol="http"'
            )
            series[f'istio_requests_total{{{ends},response_code="200",response_flags="-"{more}}}'] = rate
    return series


def linkerd(namespace: str = "shop", rate: float = 7.0) -> dict[str, float]:
    series: dict[str, float] = {}
    for source, destination in CALLS:
        inbound = f'direction="inbound",namespace="{namespace}",deployment="{destination}"'
        outbound = (
            f'direction="outbound",namespace="{namespace}",deployment="{source}",dst_namespace="{namespace}",'
            f'dst_service="{destination}",dst_deployment="{destination}"'
        )
        for side in (inbound, outbound):
            series[f"request_total{{{side}}}"] = rate
            series[f'response_total{{{side},classification="success"}}'] = rate
            series[f'response_latency_ms_bucket{{{side},le="+Inf"}}'] = rate
    return series


def containers(cores: float, namespace: str = "shop", **labels: str) -> tuple[dict[str, float], dict[str, float]]:
    """CPU of the pods, 1/s, and what kube-state-metrics says about them. The limit is one core."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    used: dict[str, float] = {}
    state: dict[str, float] = {}
    for _, name in CALLS:
        pod = f'namespace="{namespace}",pod="{name}-0"'
        container = f'{pod},container="{name}"'
        used[f"container_cpu_usage_seconds_total{{{container}{more}}}"] = cores
        state[f'kube_pod_container_resource_limits{{{container},resource="cpu",unit="core"{more}}}'] = 1.0
        state[f'kube_pod_owner{{{pod},owner_kind="StatefulSet",owner_name="{name}"{more}}}'] = 1.0
        state[f'kube_pod_status_phase{{{pod},phase="Running"{more}}}'] = 1.0
        state[f'kube_pod_info{{{pod},node="n1",created_by_kind="StatefulSet",created_by_name="{name}"{more}}}'] = 1.0
        state[f"kube_pod_container_info{{{container}{more}}}"] = 1.0
    return used, state


@dataclass
class Mesh:
    """A Prometheus with these series, and the source that polls it."""

    url: str
    now: float = field(default_factory=NOW.timestamp)

    @contextmanager
    def source(self, collector: Mapping[str, Any] | None = None, **mesh: Any) -> Iterator[MeshSource]:
        settings = MeshSettings.model_validate({"prometheus": self.url, **mesh})
        patient = {"deadline_seconds": 60.0, **(collector or {})}
        with closing(MeshSource(settings, CollectorSettings.model_validate(patient), lambda: self.now)) as source:
            yield source

    def poll(self, seconds: float = 0.0, collector: Mapping[str, Any] | None = None, **mesh: Any) -> Poll:
        """Poll once, so long after ``NOW``."""
        with self.source(collector, **mesh) as source:
            return poll_at(source, seconds)


def poll_at(source: MeshSource, seconds: float) -> Poll:
    poll = source.poll(NOW + timedelta(seconds=seconds))
    assert not [answer.detail for answer in poll.answers.values() if answer.failed]
    return poll


@contextmanager
def prometheus_of(folder: Path, *scraped: Scraped) -> Iterator[Mesh]:
    by_metric: dict[str, list[str]] = {}
    for one in scraped:
        for metric, line in one.lines():
            by_metric.setdefault(metric, []).append(line)
    text = folder / "series.txt"
    write_lines(by_metric, text)
    with prometheus_with_lines(text, folder) as monitor:
        yield Mesh(monitor.url)


def poll_once(folder: Path, *scraped: Scraped, seconds: float = 0.0, **mesh: Any) -> Poll:
    """Poll a Prometheus with these series once, so long after ``NOW``; ``mesh``: its settings."""
    with prometheus_of(folder, *scraped) as one:
        return one.poll(seconds, **mesh)


def poll_often(folder: Path, instants: Iterable[int], *scraped: Scraped) -> list[Poll]:
    """Poll a Prometheus with these series with one source at each instant, s after ``NOW``."""
    with prometheus_of(folder, *scraped) as mesh, mesh.source() as source:
        return [poll_at(source, seconds) for seconds in instants]


def services(poll: Poll) -> list[str]:
    assert poll.snapshot is not None, poll.why
    return sorted(poll.snapshot.node_ids)


def value(poll: Poll, service: str, metric: str = "request_rate") -> float:
    assert poll.snapshot is not None, poll.why
    row, column = poll.snapshot.node_ids.index(service), NODE_METRICS.index(metric)
    return float(poll.snapshot.node_features[row, column]) if poll.snapshot.node_observed[row, column] else np.nan


def subjects(poll: Poll) -> list[str]:
    return [one.subject for one in poll.remarks]


@pytest.mark.parametrize("step", [5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 90.0, 120.0])
def test_the_window_follows_the_scrape_interval(tmp_path: Path, step: float) -> None:
    polls = poll_often(tmp_path, range(0, 180, 15), Scraped(istio(), step))
    assert {tuple(services(poll)) for poll in polls} == {tuple(SERVICES)}
    assert [value(poll, "shop/web") for poll in polls] == pytest.approx([40.0] * len(polls), rel=0.02)
    survey = polls[-1].survey
    assert survey is not None
    assert survey.mesh.interval_seconds == step
    assert subjects(polls[-1]) == (["scrapes"] if step > 15 else [])


def test_a_young_mesh_is_looked_at_again_until_its_interval_is_known(tmp_path: Path) -> None:
    polls = poll_often(tmp_path, range(0, 360, 15), Scraped(istio(), 60.0, since=-65))
    assert polls[0].survey is not None
    assert polls[0].survey.mesh.interval_seconds is None
    known = [poll.survey.mesh.interval_seconds for poll in polls if poll.survey]
    assert known[-1] == 60.0
    assert {tuple(services(poll)) for poll in polls[-8:]} == {tuple(SERVICES)}


def test_a_window_of_the_settings_stays_and_the_remark_names_what_to_change(tmp_path: Path) -> None:
    poll = poll_once(tmp_path, Scraped(istio(), 60.0), seconds=45, collector={"window_seconds": 60.0})
    assert "set window_seconds = 240" in poll.why
    assert "scrape_interval to 15 s" in poll.why


@pytest.mark.parametrize("labels", [{}, {"job": "slow-pods"}])
def test_a_part_that_is_scraped_less_often_does_not_come_and_go(tmp_path: Path, labels: dict[str, str]) -> None:
    parts = Scraped(istio()), Scraped(istio(3.0, "slow", **labels), 60.0)
    polls = poll_often(tmp_path, range(0, 120, 15), *parts)
    expected = sorted(SERVICES + [name.replace("shop", "slow") for name in SERVICES])
    assert {tuple(services(poll)) for poll in polls} == {tuple(expected)}
    (remark,) = polls[-1].remarks
    assert "every 60 s" in remark.found
    assert labels.get("job", "slow/") in remark.found


def test_containers_have_a_window_of_their_own(tmp_path: Path) -> None:
    used, state = containers(0.3)
    parts = Scraped(istio()), Scraped(used, 60.0), Scraped(state, 30.0, is_gauge=True)
    polls = poll_often(tmp_path, range(0, 120, 15), *parts)
    assert [value(poll, "shop/web", "cpu_utilization") for poll in polls] == pytest.approx([0.3] * 8, rel=0.05)
    assert "containers are scraped every 60 s" in polls[0].why


def test_after_a_time_without_scrapes_the_window_is_the_same(tmp_path: Path) -> None:
    parts = Scraped(istio(), until=-225), Scraped(istio(), since=-75)
    polls = poll_often(tmp_path, (0, 60, 120), *parts)
    assert [poll.survey.mesh.interval_seconds for poll in polls if poll.survey] == [15.0] * 3
    assert [value(poll, "shop/web") for poll in polls] == pytest.approx([40.0] * 3, rel=0.03)


def test_another_interval_is_noticed_at_run_time(tmp_path: Path) -> None:
    parts = Scraped(istio(), 15.0, since=-1500, until=0), Scraped(istio(), 60.0, since=0, until=1500)
    polls = poll_often(tmp_path, range(-60, 1200, 30), *parts)
    windows = [poll.survey.mesh.window_seconds for poll in polls if poll.survey]
    assert windows[0] == 60.0
    assert windows[-1] == 240.0
    assert services(polls[-1]) == SERVICES


@pytest.mark.parametrize(("step", "lag"), [(15.0, 120.0), (30.0, 200.0), (60.0, 150.0)])
def test_a_lag_of_all_data_is_named_and_followed(tmp_path: Path, step: float, lag: float) -> None:
    with prometheus_of(tmp_path, Scraped(istio(), step, until=-lag)) as mesh, mesh.source() as source:
        first = poll_at(source, -15)
        assert lag <= first.behind_seconds <= lag + 2 * step + 45
        second = poll_at(source, -first.behind_seconds)
    assert "lag" in subjects(first)
    assert services(second) == SERVICES
    assert value(second, "shop/web") == pytest.approx(40.0, rel=0.02)


def test_with_an_age_of_the_settings_the_remark_names_the_setting(tmp_path: Path) -> None:
    poll = poll_once(tmp_path, Scraped(istio(), until=-120), seconds=-15, collector={"behind_seconds": 15.0})
    assert poll.behind_seconds == 0
    assert "set behind_seconds = 1" in poll.why


def test_a_part_whose_targets_died_is_no_lag(tmp_path: Path) -> None:
    parts = Scraped(istio()), Scraped(istio(3.0, "dead"), until=-90)
    with prometheus_of(tmp_path, *parts) as mesh, mesh.source() as source:
        polls = []
        for seconds in range(0, 240, 15):
            mesh.now = NOW.timestamp() + seconds + 15
            polls.append(poll_at(source, seconds))
    assert {poll.behind_seconds for poll in polls} == {0.0}


def test_a_lag_beyond_the_lookback_is_named(tmp_path: Path) -> None:
    poll = poll_once(tmp_path, Scraped(istio(), until=-700), seconds=-15)
    assert poll.snapshot is None
    assert "is 11 minutes old" in poll.why
    assert "behind_seconds = 780" in poll.why


@pytest.mark.parametrize("label", ["cluster", "k8s_cluster_name", "kubernetes_cluster"])
def test_only_the_busiest_of_several_clusters_is_read_and_it_stays_so(tmp_path: Path, label: str) -> None:
    parts = (
        Scraped(istio(60.0, **{label: "prod"}), until=0),
        Scraped(istio(0.0, **{label: "prod"}), since=0),  # a fault of prod is no reason to show staging
        Scraped(istio(3.0, **{label: "staging"})),
        Scraped(istio(1.0, **{label: "dev"})),
    )
    with prometheus_of(tmp_path, *parts) as mesh, mesh.source() as source:
        polls = [poll_at(source, seconds) for seconds in (-600, -15, 300, 599)]
        staging, two = mesh.poll(match={label: "staging"}), mesh.poll(match={label: ["staging", "dev"]})
    assert [value(poll, "shop/web") for poll in polls] == pytest.approx([60.0, 60.0, 0.0, 0.0], rel=0.01, abs=0.01)
    assert f'set match = {{{label} = "prod"}}' in polls[0].why
    assert "reading prod, 94% of the requests" in polls[0].why
    assert (value(staging, "shop/web"), subjects(staging)) == (pytest.approx(3.0, rel=0.01), [])
    assert value(two, "shop/web") == pytest.approx(4.0, rel=0.01)


def test_clusters_without_a_common_service_are_one_mesh(tmp_path: Path) -> None:
    parts = Scraped(istio(cluster="a")), Scraped(istio(5.0, "bank", cluster="b"))
    poll = poll_once(tmp_path, *parts)
    assert len(services(poll)) == 8
    assert "no service in common" in poll.why


def test_a_mesh_across_clusters_is_read_as_a_whole_and_can_be_kept_apart(tmp_path: Path) -> None:
    near = {"source_cluster": "a", "destination_cluster": "a"}
    far = {"source_cluster": "a", "destination_cluster": "b"}
    with prometheus_of(tmp_path, Scraped(istio(10.0, **near)), Scraped(istio(2.0, **far))) as mesh:
        together, apart = mesh.poll(), mesh.poll(cluster_label="destination_cluster")
    assert value(together, "shop/web") == pytest.approx(12.0, rel=0.01)
    assert "call each other" in together.why
    assert services(apart) == [f"{end}.{name}" for end in "ab" for name in SERVICES if (end, name) != ("b", "shop/gw")]
    assert apart.snapshot is not None
    ends = [tuple(apart.snapshot.node_ids[i] for i in pair) for pair in apart.snapshot.edge_index.T.tolist()]
    assert ("a.shop/gw", "b.shop/web") in ends


@pytest.mark.parametrize("source", ["istio", "auto"])
def test_the_cluster_is_in_the_name_and_resources_belong_to_it(tmp_path: Path, source: str) -> None:
    scraped = [Scraped(istio(rate, cluster=name)) for name, rate in (("prod", 9.0), ("dev", 1.0))]
    for name, cores in (("prod", 0.8), ("dev", 0.1)):
        used, state = containers(cores, cluster=name)
        scraped += [Scraped(used), Scraped(state, is_gauge=True)]
    poll = poll_once(tmp_path, *scraped, source=source, cluster_label="cluster")
    assert services(poll) == [f"{cluster}.{name}" for cluster in ("dev", "prod") for name in SERVICES]
    assert value(poll, "prod.shop/web", "cpu_utilization") == pytest.approx(0.8, rel=0.05)
    assert value(poll, "dev.shop/web", "cpu_utilization") == pytest.approx(0.1, rel=0.05)
    assert value(poll, "dev.shop/web") == pytest.approx(1.0, rel=0.01)


def test_matchers_restrict_the_metrics_that_have_the_label(tmp_path: Path) -> None:
    """Containers have the label, kube-state-metrics does not, and Kafka has one of the same name."""
    used, state = containers(0.4, cluster="prod")
    other, _ = containers(9.0, cluster="dev")
    unlabelled = {series.replace(',cluster="prod"', ""): one for series, one in state.items()}
    lag = {'kafka_consumergroup_lag{consumergroup="cart",topic="orders",cluster="events"}': 12.0}
    scraped = (
        Scraped(istio(9.0, cluster="prod")),
        Scraped(istio(1.0, cluster="dev")),
        Scraped(used),
        Scraped(other),
        Scraped(unlabelled, is_gauge=True),
        Scraped(lag, is_gauge=True),
    )
    poll = poll_once(tmp_path, *scraped, match={"cluster": "prod"})
    assert value(poll, "shop/web") == pytest.approx(9.0, rel=0.01)
    assert value(poll, "shop/web", "cpu_utilization") == pytest.approx(0.4, rel=0.05)
    assert poll.snapshot is not None
    assert [(signal.service, signal.value) for signal in poll.snapshot.signals if "queue" in signal.kind.value] == [
        ("shop/cart", 12.0)
    ]


@pytest.mark.parametrize("label", ["cluster", "k8s_cluster_name", "environment"])
def test_metrics_that_only_another_mesh_has_do_not_count(tmp_path: Path, label: str) -> None:
    """The pods of the other mesh have native sidecars with limits; pods of this mesh have none."""
    parts = [istio(40.0, **{label: "prod"}), istio(3.0, **{label: "staging"})]
    states = []
    for used, state in (containers(0.5, **{label: one}) for one in ("prod", "staging")):
        parts.append(used)
        states.append(state)
    for _, name in CALLS:
        sidecar = f'namespace="shop",pod="{name}-0",container="proxy",{label}="staging"'
        states.append({f'kube_pod_init_container_info{{{sidecar},restart_policy="Always"}}': 1.0})
        states.append({f'kube_pod_init_container_resource_limits{{{sidecar},resource="cpu"}}': 9.0})
    scraped = [*map(Scraped, parts), *(Scraped(state, is_gauge=True) for state in states)]
    poll = poll_once(tmp_path, *scraped, source="istio", match={label: "prod"})
    assert value(poll, "shop/cart", "cpu_utilization") == pytest.approx(0.5, rel=0.01)
    assert poll.why == ""


@pytest.mark.parametrize("match", [{"environment": "prod", "cluster": "a"}, {"environment": "prod"}])
def test_a_label_that_another_mesh_has_may_lack_on_the_resources_of_this_one(
    tmp_path: Path, match: dict[str, str]
) -> None:
    """In production only the mesh has the label ``cluster``, elsewhere everything has."""
    used, state = containers(0.5, environment="prod")
    others_used, others_state = containers(0.9, environment="staging", cluster="a")
    scraped = [
        Scraped(istio(environment="prod", cluster="a")),
        Scraped(istio(3.0, environment="prod", cluster="b")),
        Scraped(istio(2.0, environment="staging", cluster="a")),
        *map(Scraped, (used, others_used)),
        *(Scraped(one, is_gauge=True) for one in (state, others_state)),
    ]
    poll = poll_once(tmp_path, *scraped, source="istio", match=match)
    assert value(poll, "shop/cart") == pytest.approx(40, rel=0.01)
    assert value(poll, "shop/cart", "cpu_utilization") == pytest.approx(0.5, rel=0.01)


def test_matchers_of_a_label_that_only_resources_have_restrict_only_these(tmp_path: Path) -> None:
    scraped = [Scraped(istio())]
    for name, cores in (("prod", 0.5), ("dev", 0.2)):
        used, state = containers(cores, cluster=name)
        scraped += [Scraped(used), Scraped(state, is_gauge=True)]
    with prometheus_of(tmp_path, *scraped) as mesh:
        unset, poll = mesh.poll(), mesh.poll(match={"cluster": "prod"})
    assert "containers of 2 clusters" in unset.why
    assert value(poll, "shop/web", "cpu_utilization") == pytest.approx(0.5, rel=0.05)
    assert "no series of the mesh has the label cluster" in poll.why


@pytest.mark.parametrize(
    ("match", "why"),
    [({"cluster": "nope"}, '"dev", "prod"'), ({"clutser": "prod"}, "correct the label"), ({"cluster": "pro.*"}, "dev")],
)
def test_matchers_that_fit_nothing_are_explained(tmp_path: Path, match: dict[str, str], why: str) -> None:
    parts = Scraped(istio(cluster="prod")), Scraped(istio(1.0, cluster="dev"))
    poll = poll_once(tmp_path, *parts, match=match)
    assert poll.snapshot is None
    assert why in poll.why


def test_matchers_are_literal(tmp_path: Path) -> None:
    names = 'a"b', "a.b", "a\\b"
    scraped = [
        Scraped(istio(float(i + 1), cluster=name.replace("\\", "\\\\").replace('"', '\\"')))
        for i, name in enumerate(names)
    ]
    with prometheus_of(tmp_path, *scraped) as mesh:
        rates = [value(mesh.poll(match={"cluster": name}), "shop/web") for name in names]
        both = value(mesh.poll(match={"cluster": ["a.b", 'a"b']}), "shop/web")
    assert [*rates, both] == pytest.approx([1.0, 2.0, 3.0, 3.0], rel=0.01)


@pytest.mark.parametrize(
    ("label", "more"),
    [("prometheus_replica", {"prometheus": "monitoring/k8s"}), ("replica", {}), ("__replica__", {"cluster": "prod"})],
)
def test_one_server_of_a_pair_is_read_and_the_other_one_when_it_stops(
    tmp_path: Path, label: str, more: dict[str, str]
) -> None:
    one, other = (istio(40.0, **{label: server, **more}) for server in "ab")
    parts = Scraped(one, until=300), Scraped(other)
    with prometheus_of(tmp_path, *parts) as mesh, mesh.source() as source:
        polls = []
        for seconds in range(0, 600, 15):
            mesh.now = NOW.timestamp() + seconds + 15  # the newest snapshot is so old
            polls.append(poll_at(source, seconds))
    assert {tuple(services(poll)) for poll in polls} == {tuple(SERVICES)}
    rates = [value(poll, "shop/web") for poll in polls]
    assert rates == pytest.approx([40.0] * len(polls), rel=0.1)
    assert "replicas" in subjects(polls[0])
    assert "reading b" in polls[-1].why


def test_two_jobs_that_scrape_the_same_targets_are_named(tmp_path: Path) -> None:
    jobs = [Scraped(istio(job=job)) for job in ("envoy-stats", "kubernetes-pods")]
    with prometheus_of(tmp_path, *jobs) as mesh:
        both, one = mesh.poll(), mesh.poll(match={"job": "envoy-stats"})
    assert 'match = {job = "envoy-stats"}' in both.why
    assert subjects(both) == ["jobs"]
    assert (value(one, "shop/web"), one.why) == (pytest.approx(40, rel=0.01), "")


def test_a_label_of_replicas_of_pods_is_no_pair(tmp_path: Path) -> None:
    parts = [Scraped(istio(10.0, replica=str(i), pod=f"web-{i}")) for i in range(2)]
    poll = poll_once(tmp_path, *parts)
    assert value(poll, "shop/web") == pytest.approx(20.0, rel=0.01)
    assert subjects(poll) == []


def test_servers_of_two_clusters_are_no_pair(tmp_path: Path) -> None:
    parts = Scraped(istio(30.0, prometheus="prod/k8s")), Scraped(istio(2.0, prometheus="dev/k8s"))
    poll = poll_once(tmp_path, *parts)
    assert value(poll, "shop/web") == pytest.approx(30.0, rel=0.01)
    assert subjects(poll) == ["clusters"]


def test_a_pair_in_each_of_two_clusters(tmp_path: Path) -> None:
    parts = [
        Scraped(istio(rate, cluster=cluster, prometheus_replica=f"{cluster}-{i}"))
        for cluster, rate in (("prod", 30.0), ("dev", 2.0))
        for i in range(2)
    ]
    with prometheus_of(tmp_path, *parts) as mesh:
        busiest, named = mesh.poll(), mesh.poll(cluster_label="cluster")
    assert value(busiest, "shop/web") == pytest.approx(30.0, rel=0.01)
    assert value(named, "prod.shop/web") == pytest.approx(30.0, rel=0.01)
    assert value(named, "dev.shop/web") == pytest.approx(2.0, rel=0.01)


def test_another_kind_of_mesh_is_found_when_the_first_one_ends(tmp_path: Path) -> None:
    parts = Scraped(istio(), until=0), Scraped(linkerd(), since=-60, until=1500)
    with prometheus_of(tmp_path, *parts) as mesh, mesh.source() as source:
        polls = [poll_at(source, seconds) for seconds in range(-30, 900, 30)]
        back = poll_at(source, 900)
    rates = [value(poll, "shop/web") for poll in polls if poll.snapshot]
    assert rates[0] == pytest.approx(40.0, rel=0.02)
    assert rates[-1] == pytest.approx(7.0, rel=0.02)
    assert value(back, "shop/web") == pytest.approx(7.0, rel=0.02)


def test_telemetry_of_another_kind_beside_the_mesh_changes_nothing(tmp_path: Path) -> None:
    parts = Scraped(linkerd()), Scraped(istio(1.0, "trial"), since=0, until=1500)
    polls = poll_often(tmp_path, (-30, 300, 590), *parts)
    assert [value(poll, "shop/web") for poll in polls] == pytest.approx([7.0] * 3, rel=0.02)


def test_waypoints_that_come_later_are_read(tmp_path: Path) -> None:
    parts = (
        Scraped(istio(5.0)),
        Scraped(istio(8.0, "ambient", "waypoint"), since=0, until=1500),
    )
    with prometheus_of(tmp_path, *parts) as mesh, mesh.source() as source:
        first, later = poll_at(source, -30), [poll_at(source, seconds) for seconds in (300, 580, 595)]
    assert services(first) == SERVICES
    assert "ambient/web" in services(later[-1])
