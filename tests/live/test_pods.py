"""CPU, memory and controllers as real clusters export them, read from a real Prometheus. Each case is a namespace."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import pytest

from serve_app.collect.base import Poll
from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.detect import MeshSource
from serve_app.collect.prometheus.kubernetes import ANNOTATIONS, AUTOSCALERS, CONTROLLERS
from serve_app.collect.prometheus.query import Query
from serve_app.net.endpoint import Endpoint
from serve_app.settings import CollectorSettings, MeshSettings
from tests.live.history import prometheus_with_lines
from tests.live.polls import value_of
from tests.live.programs import needs
from tests.live.written import LENGTH, STEP, Written, write
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]

GI = 2.0**30
NONE = {"owner_kind": "<none>", "owner_name": "<none>", "owner_is_controller": "<none>"}
Labels = dict[str, str]


class World(Written):
    """Series of a namespace. Gauges are constant, counters grow at a constant rate."""

    def __init__(self, namespace: str, end: int) -> None:
        super().__init__(end - LENGTH)
        self.namespace = namespace

    def add(self, metric: str, value: float, **labels: str) -> None:
        """Add a series that has not ended."""
        self.add_until(0, metric, value, **labels)

    def add_until(self, ended: int, metric: str, value: float, **labels: str) -> None:
        """Add a series that ended so many seconds ago."""
        self.ends[metric, len(self.rows.get(metric, ()))] = LENGTH - ended
        add = self.counter if metric.endswith("_total") else self.gauge
        add(metric, {"namespace": self.namespace, **labels}, value)

    def service(self, name: str = "cart") -> None:
        self.add(
            "istio_requests_total", 10.0, reporter="destination", destination_workload=name, response_code="200",
            destination_workload_namespace=self.namespace, destination_service_namespace=self.namespace,
            destination_service_name=name,
        )  # fmt: skip

    def owner(self, series: str, kind: str, name: str, *, owned: Labels, **more: str) -> None:
        labels = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true", **owned, **more}
        self.add(series, 1.0, **labels)

    def pod(self, pod: str, kind: str = "StatefulSet", name: str = "cart", **more: str) -> None:
        self.owner("kube_pod_owner", kind, name, owned={"pod": pod, "uid": f"u-{pod}"}, **more)

    def specify(self, pod: str, container: str, amount: str, cores: float, memory: float, **more: str) -> None:
        """Add limits or requests; of init containers if ``amount`` begins with ``init ``."""
        series = f"kube_pod_{'init_' if amount.startswith('init ') else ''}container_resource_{amount.split()[-1]}"
        for resource, value in (("cpu", cores), ("memory", memory)):
            if value:
                self.add(series, value, pod=pod, container=container, resource=resource, uid=f"u-{pod}", **more)

    def use(self, pod: str, container: str, cores: float, memory: float, *, ended: int = 0, **more: str) -> None:
        labels = {"pod": pod, "container": container, **more}
        self.add_until(ended, "container_cpu_usage_seconds_total", cores, **labels)
        self.add_until(ended, "container_memory_working_set_bytes", memory, **labels)

    def running(self, pod: str = "cart-0", container: str = "main", share: float = 0.5) -> None:
        """Add a container that uses this share of 1 core and 1 GiB."""
        self.specify(pod, container, "limits", 1.0, GI)
        self.use(pod, container, share, share * GI)


Case = tuple[float | None, float | None, Callable[[World], None]]  # share of CPU and of memory
CASES: dict[str, Case] = {}


def case(cpu: float | None, memory: float | None) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Make a case of a function that writes series about the service ``cart``."""

    def add(write: Callable[[World], None]) -> Callable[[World], None]:
        CASES[write.__name__.replace("_", "-")] = (cpu, memory, write)
        return write

    return add


@case(0.5, 0.5)
def pairs_of_everything(w: World) -> None:
    """Two kube-state-metrics, scraped by two Prometheus servers without deduplication."""
    for ksm in ("ksm-0", "ksm-1"):
        for replica in ("a", "b"):
            more = {"instance": ksm, "prometheus_replica": replica}
            w.pod("cart-0", **more)
            w.specify("cart-0", "main", "limits", 1.0, GI, **more)
            w.add("kube_pod_info", 1.0, pod="cart-0", node="n1", uid="u-cart-0", **more)
    for replica in ("a", "b"):
        w.use("cart-0", "main", 0.5, GI / 2, prometheus_replica=replica)


@case(0.5, 0.5)
def another_uid(w: World) -> None:
    """A pod of a stateful set that was made again: both of its kinds are there for a while."""
    for uid in ("u-1", "u-2"):
        w.pod("cart-0", uid=uid)
        w.add("kube_pod_container_resource_limits", 1.0, pod="cart-0", container="main", resource="cpu", uid=uid)
        w.add("kube_pod_container_resource_limits", GI, pod="cart-0", container="main", resource="memory", uid=uid)
    w.use("cart-0", "main", 0.5, GI / 2)


@case(0.5, 0.5)
def federated(w: World) -> None:
    w.pod("cart-0")
    w.specify("cart-0", "main", "limits", 1.0, GI)
    for job in ("kubelet", "federate"):
        w.use("cart-0", "main", 0.5, GI / 2, job=job, endpoint="https-metrics" if job == "kubelet" else "web")


@case(0.8, 0.5)
def reported_by_core(w: World) -> None:
    w.pod("cart-0")
    w.specify("cart-0", "main", "limits", 1.0, GI)
    for target in ("a", "b"):
        for core, cores in (("cpu00", 0.5), ("cpu01", 0.3)):
            labels = {"pod": "cart-0", "container": "main", "cpu": core, "instance": target}
            w.add("container_cpu_usage_seconds_total", cores, **labels)
    w.add("container_memory_working_set_bytes", GI / 2, pod="cart-0", container="main")


@case(0.2, 0.1)
def restarted(w: World) -> None:
    """The container that was killed keeps its last value: without markers of staleness, for five minutes."""
    w.pod("cart-0")
    w.specify("cart-0", "main", "limits", 1.0, GI)
    w.use("cart-0", "main", 0.9, 0.99 * GI, ended=75, id="/kubepods/pod1/old", image="cart:1", cpu="total")
    w.use("cart-0", "main", 0.2, 0.1 * GI, id="/kubepods/pod1/new", image="", cpu="total")


@case(0.5, 0.5)
def cgroups_of_pods(w: World) -> None:
    """The cgroup of the pod and its pause container are no containers."""
    w.pod("cart-0")
    w.running()
    w.use("cart-0", "", 0.6, 0.6 * GI, id="/kubepods/pod1")
    w.use("cart-0", "POD", 0.1, 0.1 * GI, id="/kubepods/pod1/pause")


@case(0.5, 0.5)
def evicted(w: World) -> None:
    for pod, phase in (("cart-0", "Running"), ("cart-1", "Failed"), ("cart-2", "Succeeded")):
        w.pod(pod)
        w.running(pod, share=0.5 if phase == "Running" else 1.0)
        for one in ("Running", "Failed", "Succeeded"):
            w.add("kube_pod_status_phase", float(one == phase), pod=pod, phase=one)


@case(0.25, 0.8)
def cpu_without_limit(w: World) -> None:
    """CPU and memory are independent: a limit of memory, and a request of CPU."""
    w.pod("cart-0")
    w.specify("cart-0", "main", "limits", 0.0, GI)
    w.specify("cart-0", "main", "requests", 2.0, GI / 2)
    w.use("cart-0", "main", 0.5, 0.8 * GI)


@case(0.125, 0.25)
def best_effort(w: World) -> None:
    """Without limits and requests, on a node of 16 cores and 64 GiB."""
    w.pod("cart-0")
    w.add("kube_pod_info", 1.0, pod="cart-0", node="n1", host_network="true")
    w.use("cart-0", "main", 2.0, 16 * GI)


@case(0.9, 0.9)
def sidecar_without_limits(w: World) -> None:
    w.pod("cart-0")
    w.add("kube_pod_info", 1.0, pod="cart-0", node="n1")
    w.running(share=0.9)
    w.use("cart-0", "log", 0.01, 0.01 * GI)


@case(0.3, 0.3)
def native_sidecar_beside_init(w: World) -> None:
    """An init container that ends does not count, although it has limits."""
    w.pod("cart-0")
    w.running(share=0.5)
    w.specify("cart-0", "proxy", "init limits", 1.0, GI)
    w.use("cart-0", "proxy", 0.1, 0.1 * GI)
    w.specify("cart-0", "migrate", "init limits", 8.0, 8 * GI)
    w.add("kube_pod_init_container_info", 1.0, pod="cart-0", container="proxy", restart_policy="Always")
    w.add("kube_pod_init_container_info", 1.0, pod="cart-0", container="migrate")


@case(None, None)
def usage_without_capacity(w: World) -> None:
    w.pod("cart-0")
    w.use("cart-0", "main", 0.5, GI)


@case(None, None)
def usage_without_owner(w: World) -> None:
    w.running()


@case(0.4, 0.4)
def rollout(w: World) -> None:
    """Stable and canary of an Argo Rollout."""
    for number, share in enumerate((0.3, 0.5)):
        replica_set = f"cart-{number}c9d8f7b6"
        w.owner("kube_replicaset_owner", "Rollout", "cart", owned={"replicaset": replica_set})
        w.pod(f"{replica_set}-x", "ReplicaSet", replica_set)
        w.running(f"{replica_set}-x", share=share)
        w.add("kube_replicaset_spec_replicas", 2.0 + number, replicaset=replica_set)
        w.add("kube_replicaset_created", 1.7e9 + number, replicaset=replica_set)
        w.add("kube_horizontalpodautoscaler_info", 1.0, horizontalpodautoscaler="cart", scaletargetref_kind="Rollout",
              scaletargetref_name="cart", instance=f"ksm-{number}")  # fmt: skip
        labels = {"horizontalpodautoscaler": "cart", "instance": f"ksm-{number}"}
        w.add("kube_horizontalpodautoscaler_status_desired_replicas", 5.0, **labels)


@case(0.5, 0.5)
def knative(w: World) -> None:
    """A replica set of a deployment, which a revision owns. Old replica sets are still there."""
    for replica_set, replicas in (("cart-4d5f", 0.0), ("cart-6b7c", 1.0)):
        w.owner("kube_replicaset_owner", "Deployment", "cart", owned={"replicaset": replica_set})
        w.add("kube_replicaset_spec_replicas", replicas, replicaset=replica_set)
    w.owner("kube_deployment_owner", "Revision", "cart-00001", owned={"deployment": "cart"})
    w.pod("cart-6b7c-x", "ReplicaSet", "cart-6b7c")
    w.running("cart-6b7c-x")
    w.add("kube_deployment_spec_replicas", 1.0, deployment="cart")
    w.add("kube_deployment_metadata_generation", 7.0, deployment="cart")


@case(0.5, 0.5)
def terminating(w: World) -> None:
    """The last pod of a replica set that is scaled to zero."""
    w.owner("kube_replicaset_owner", "Deployment", "cart", owned={"replicaset": "cart-4d5f"})
    w.add("kube_replicaset_spec_replicas", 0.0, replicaset="cart-4d5f")
    w.pod("cart-4d5f-x", "ReplicaSet", "cart-4d5f")
    w.running("cart-4d5f-x")


@case(0.5, 0.5)
def without_replica_sets(w: World) -> None:
    """Many clusters drop the series of replica sets, because there are so many."""
    w.pod("cart-6c8d4f7bb-x", "ReplicaSet", "cart-6c8d4f7bb")
    w.running("cart-6c8d4f7bb-x")


@case(0.5, 0.5)
def bare_replica_set(w: World) -> None:
    w.add("kube_replicaset_owner", 1.0, replicaset="cart", **NONE)
    w.pod("cart-x", "ReplicaSet", "cart")
    w.running("cart-x")
    w.add("kube_replicaset_spec_replicas", 3.0, replicaset="cart")
    w.add("kube_replicaset_created", 1.7e9, replicaset="cart")
    w.add("kube_replicaset_annotations", 1.0, replicaset="cart", annotation_tagae_io_mute="being moved")


@case(0.5, 0.5)
def cron_job(w: World) -> None:
    w.owner("kube_job_owner", "CronJob", "cart", owned={"job_name": "cart-28371234"})
    w.add("kube_job_status_active", 1.0, job_name="cart-28371234")
    w.pod("cart-28371234-x", "Job", "cart-28371234")
    w.running("cart-28371234-x")


@case(0.5, 0.5)
def job(w: World) -> None:
    w.add("kube_job_owner", 1.0, job_name="cart", **NONE)
    w.pod("cart-x", "Job", "cart")
    w.running("cart-x")


@case(0.5, 0.5)
def deployment_config(w: World) -> None:
    labels = {"replicationcontroller": "cart-3"}
    w.owner("kube_replicationcontroller_owner", "DeploymentConfig", "cart", owned=labels)
    w.add("kube_replicationcontroller_spec_replicas", 2.0, **labels)
    w.add("kube_replicationcontroller_created", 1.7e9, **labels)
    w.pod("cart-3-x", "ReplicationController", "cart-3")
    w.running("cart-3-x")


@case(0.5, 0.5)
def clone_set(w: World) -> None:
    w.pod("cart-x", "CloneSet", "cart")
    w.running("cart-x")
    w.add("kruise_cloneset_spec_replicas", 4.0, cloneset="cart")
    w.add("kruise_cloneset_metadata_generation", 2.0, cloneset="cart")


@case(0.5, 0.5)
def bare_pod(w: World) -> None:
    w.add("kube_pod_owner", 1.0, pod="cart", **NONE)
    w.running("cart")
    w.add("kube_pod_annotations", 1.0, pod="cart", annotation_tagae_io_sensitivity="low")


@case(0.5, 0.5)
def bare_pod_of_today(w: World) -> None:
    """Newer versions of kube-state-metrics leave the labels empty."""
    w.add("kube_pod_owner", 1.0, pod="cart")
    w.running("cart")


@case(0.5, 0.5)
def daemon_set(w: World) -> None:
    w.pod("cart-x", "DaemonSet", "cart")
    w.running("cart-x")
    w.add("kube_daemonset_status_desired_number_scheduled", 40.0, daemonset="cart")
    w.add("kube_daemonset_metadata_generation", 5.0, daemonset="cart")


@case(0.5, 0.5)
def several_owners(w: World) -> None:
    """Only one of them is the controller."""
    w.pod("cart-0")
    w.owner("kube_pod_owner", "Backup", "other", owned={"pod": "cart-0"}, owner_is_controller="false")
    w.running("cart-0")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, datetime]]:
    folder, now = tmp_path_factory.mktemp("pods"), int(datetime.now(UTC).timestamp()) // STEP * STEP
    node, text = World("monitoring", now), folder / "openmetrics.txt"
    for resource, most in (("cpu", 16.0), ("memory", 64 * GI)):
        node.add("kube_node_status_allocatable", most, node="n1", resource=resource)
    worlds = [node]
    for name, (_, _, write_series) in CASES.items():
        worlds.append(World(name, now))
        worlds[-1].service()
        write_series(worlds[-1])
    write(worlds, text)
    with (
        prometheus_with_lines(text, folder) as monitor,
        closing(Prometheus(Endpoint(monitor.url))) as client,
    ):
        yield client, datetime.fromtimestamp(now, UTC)


@pytest.fixture(scope="module")
def poll(world: tuple[Prometheus, datetime]) -> Poll:
    client, now = world
    mesh = MeshSettings(prometheus="http://as-given", source="istio")
    collector = CollectorSettings(deadline_seconds=PATIENCE_SECONDS)
    return MeshSource(mesh, collector, evaluator=client).poll(now)


@pytest.mark.parametrize("name", CASES)
def test_the_share_of_the_service_is_that_of_its_running_containers(name: str, poll: Poll) -> None:
    snapshot = poll.snapshot
    assert snapshot is not None, poll.why
    for resource, share in zip(("cpu", "memory"), CASES[name], strict=False):
        value = value_of(snapshot, f"{name}/cart", f"{resource}_utilization")
        assert value == (None if share is None else pytest.approx(share, rel=0.01)), resource


def test_no_query_fails_because_of_duplicates(poll: Poll) -> None:
    assert {role: answer.detail for role, answer in poll.answers.items() if answer.failed} == {}


def test_the_poll_says_what_matches_nothing(poll: Poll) -> None:
    assert poll.pods is not None
    assert poll.pods.services_without_pods == ("usage-without-owner/cart",)
    assert (poll.pods.without_owner, poll.pods.without_capacity) == (1, 1)
    assert poll.pods.unmatched_workloads == ()


@pytest.mark.parametrize(
    ("name", "desired", "generation"),
    [
        ("rollout", 5, 1.7e9 + 1),  # of its replica sets; the newest is the canary
        ("knative", 1, 7),
        ("bare-replica-set", 3, 1.7e9),
        ("deployment-config", 2, 1.7e9),
        ("clone-set", 4, 2),
        ("daemon-set", 1, 5),  # on any number of nodes
        ("terminating", None, None),
    ],
)
def test_controllers_of_any_kind_have_replicas_and_a_generation(
    world: tuple[Prometheus, datetime], name: str, desired: float | None, generation: float | None
) -> None:
    for role, value in (("desired", desired), ("generation", generation)):
        found = _ask(world, CONTROLLERS[role])
        assert found.get(f'"namespace":"{name}","workload":"cart"') == value, role


def test_an_autoscaler_may_scale_any_kind(world: tuple[Prometheus, datetime]) -> None:
    assert _ask(world, AUTOSCALERS["autoscaled"]) == {'"namespace":"rollout","workload":"cart"': 5.0}


def test_annotations_of_bare_replica_sets_and_pods_are_read(world: tuple[Prometheus, datetime]) -> None:
    [of_replica_set] = _ask(world, ANNOTATIONS["annotations"])
    assert '"value":"being moved","workload":"cart"' in of_replica_set
    [of_pod] = _ask(world, ANNOTATIONS["pod_annotations"])
    assert '"annotation":"sensitivity","namespace":"bare-pod","pod":"cart","value":"low"' in of_pod


def _ask(world: tuple[Prometheus, datetime], query: Query) -> dict[str, float]:
    """Values by label set."""
    client, now = world
    answer = client.ask({"it": query.at(60.0)}, now, PATIENCE_SECONDS)["it"]
    assert not answer.failed, answer.detail
    labels = [labels.decode().strip("{}") for labels in answer.samples.label_sets]
    return dict(zip(labels, np.asarray(answer.samples.values).tolist(), strict=True))
