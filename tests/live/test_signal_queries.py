"""A real Prometheus evaluates the queries of signals and annotations over series as exporters of Kubernetes and brokers
write them."""

from pathlib import Path

import pytest

from serve_app.collect.prometheus.kubernetes import ANNOTATIONS
from serve_app.collect.prometheus.query import EVERYTHING
from serve_app.collect.prometheus.signals import (
    DISK,
    PODS,
    QUEUES,
    SOURCES,
    Queues,
    signal_queries,
)
from tests.live.programs import needs
from tests.live.promtool import evaluate, expect

pytestmark = [pytest.mark.live, needs("promtool")]

CART, STORE = 'namespace="shop",pod="cart-a"', 'namespace="shop",pod="store-0"'
KSM_MOVED = 'instance="ksm-2"'
SERIES = {  # a sample each 15 s
    f'kube_pod_info{{{CART},node="a"}}': "1x20",
    f'kube_pod_info{{{STORE},node="b"}}': "1x20",
    # 60% and 0% of 10 periods a second
    f'container_cpu_cfs_throttled_periods_total{{{CART},container="app"}}': "0+90x20",
    f'container_cpu_cfs_periods_total{{{CART},container="app"}}': "0+150x20",
    f'container_cpu_cfs_throttled_periods_total{{{CART},container="log"}}': "0x20",
    f'container_cpu_cfs_periods_total{{{CART},container="log"}}': "0+150x20",
    f'container_cpu_cfs_periods_total{{{CART},container=""}}': "0+300x20",  # of the pod: both once more
    # Two restarts between 225 s and 240 s, one of a container that was killed. kube-state-metrics moves at 210 s.
    f'kube_pod_container_status_restarts_total{{{CART},container="app",instance="ksm-1"}}': "3x13 _x6",
    f'kube_pod_container_status_restarts_total{{{CART},container="app",{KSM_MOVED}}}': "_x14 3x1 4x4",
    f'kube_pod_container_status_restarts_total{{{CART},container="log",{KSM_MOVED}}}': "0x15 1x4",
    f'kube_pod_container_status_restarts_total{{{STORE},container="app",{KSM_MOVED}}}': "7x20",
    f'kube_pod_container_status_last_terminated_reason{{{CART},container="app",reason="OOMKilled"}}': "1x20",
    f'kube_pod_container_status_last_terminated_reason{{{STORE},container="app",reason="OOMKilled"}}': "1x20",
    f'container_oom_events_total{{{CART},container="app"}}': "0x15 2x4",
    f'kube_pod_status_phase{{{CART},phase="Pending"}}': "0x20",
    f'kube_pod_status_phase{{{STORE},phase="Pending"}}': "1x20",
    f'kube_pod_spec_volumes_persistentvolumeclaims_info{{{STORE},volume="data",persistentvolumeclaim="d"}}': "1x20",
    f'kube_pod_spec_volumes_persistentvolumeclaims_info{{{STORE},volume="logs",persistentvolumeclaim="l"}}': "1x20",
    'kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="d"}': "97x20",
    'kubelet_volume_stats_capacity_bytes{namespace="shop",persistentvolumeclaim="d"}': "100x20",
    'kubelet_volume_stats_used_bytes{namespace="shop",persistentvolumeclaim="l"}': "10x20",
    'kubelet_volume_stats_capacity_bytes{namespace="shop",persistentvolumeclaim="l"}': "100x20",
    'kube_node_status_condition{node="a",condition="DiskPressure",status="true"}': "1x20",
    'kube_node_status_condition{node="b",condition="DiskPressure",status="true"}': "0x20",
    'kafka_consumergroup_lag{consumergroup="orders",topic="t",partition="0"}': "5000x20",
    'kafka_consumergroup_lag{consumergroup="orders",topic="t",partition="1"}': "200x20",
    'rabbitmq_queue_messages_ready{queue="mails",vhost="/"}': "7x20",
    'redis_key_size{key="jobs",db="db0"}': "12x20",
    'jetstream_consumer_num_pending{stream_name="s",consumer_name="audit"}': "3x20",
    'batch_waiting{queue="batch"}': "9x20",
}


def check(folder: Path, query: str, wanted: dict[str, float]) -> None:
    evaluate(folder, SERIES, expect(query, "240s", wanted))


@pytest.mark.parametrize(
    "source", [name for name in SOURCES if name not in ("kafka_lag_exporter", "rabbitmq_detailed")]
)
def test_every_source_that_exists_is_found(tmp_path: Path, source: str) -> None:
    check(tmp_path, EVERYTHING.apply(f"group({SOURCES[source]})"), {"{}": 1})


def test_signals_are_by_pod_and_container(tmp_path: Path) -> None:
    query = signal_queries(Queues())[PODS]
    wanted = {
        ("cart-a", "app", "throttled"): 6.0,
        ("cart-a", "app", "periods"): 10.0,
        ("cart-a", "log", "throttled"): 0.0,
        ("cart-a", "log", "periods"): 10.0,
        ("cart-a", "app", "restarted"): 1.0,
        ("cart-a", "log", "restarted"): 1.0,
        ("cart-a", "app", "killed"): 1.0,
        ("cart-a", "app", "oom_events"): 2.0,
        ("store-0", "pod", "pending"): 1.0,
    }
    check(
        tmp_path,
        query.at(60.0, 15.0),
        {
            f'{{namespace="shop",pod="{pod}",container="{container}",signal="{signal}"}}': value
            for (pod, container, signal), value in wanted.items()
        },
    )


def test_disk_is_the_fullest_volume_or_a_node_under_pressure(tmp_path: Path) -> None:
    query = signal_queries(Queues())[DISK]
    wanted = {"cart-a": 1.0, "store-0": 0.97}
    check(tmp_path, query.at(60.0), {f'{{namespace="shop",pod="{one}"}}': v for one, v in wanted.items()})


def test_queues_of_all_brokers_have_their_depth(tmp_path: Path) -> None:
    query = signal_queries(Queues(promql="batch_waiting"))[QUEUES]
    wanted = {"orders": 5200, "mails": 7, "jobs": 12, "audit": 3, "batch": 9}
    check(tmp_path, query.at(60.0), {f'{{queue="{one}"}}': value for one, value in wanted.items()})


MUTED, LOUD = 'annotation_tagae_io_mute="being moved: \\"soon\\""', 'annotation_tagae_io_sensitivity="high"'
ANNOTATED_WORKLOADS = (
    f'kube_deployment_annotations{{namespace="shop",deployment="cart-v1",instance="a",{MUTED},{LOUD}}}',
    f'kube_deployment_annotations{{namespace="shop",deployment="cart-v1",instance="b",{MUTED},{LOUD}}}',
    f'kube_statefulset_annotations{{namespace="shop",statefulset="store",{LOUD}}}',
    f'kube_daemonset_annotations{{namespace="infra",daemonset="agent",{MUTED}}}',
    'kube_deployment_annotations{namespace="shop",deployment="web"}',
    'kube_deployment_annotations{namespace="shop",deployment="pay",annotation_team_io_mute="not ours"}',
)
WANTED = (
    'namespace="shop",workload="cart-v1",annotation="mute",value="being moved: \\"soon\\""',
    'namespace="shop",workload="cart-v1",annotation="sensitivity",value="high"',
    'namespace="shop",workload="store",annotation="sensitivity",value="high"',
    'namespace="infra",workload="agent",annotation="mute",value="being moved: \\"soon\\""',
)


def test_annotations_become_names_and_values_by_workload(tmp_path: Path) -> None:
    series = dict.fromkeys(ANNOTATED_WORKLOADS, "1x10")
    wanted = {f"{{{labels}}}": 1.0 for labels in WANTED}
    evaluate(tmp_path, series, expect(ANNOTATIONS["annotations"].at(60.0), "1m", wanted))
