"""Signals from cAdvisor, kube-state-metrics, kubelets, broker exporters and the mesh in the same Prometheus.

Few meshes have all of these series; a query for series that do not exist costs nearly nothing. Signals of pods are by
pod; :class:`~serve_app.collect.prometheus.pods.Pods` knows their workloads.

- CPU throttling is the share of throttled CPU periods in a service's most throttled container, over all pods: a busy
  pod has more CPU periods than an idle one, so it counts more; a sidecar that is not throttled hides nothing.
- Kills and restarts are counter differences since the previous poll, so each is in exactly one snapshot.
- Disk is the fullest volume that a pod of the service mounts; 1 if one of their nodes reports disk pressure.
- A queue belongs to the service in the settings, or else to the only service or workload whose name is the queue's or
  the consumer group's name.
- Requests on which callers gave up are not failures of the service. The proxies of some meshes tell them apart.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from model.names import original_name
from model.snapshot import LARGEST_VALUE, Signal, SignalKind
from serve_app.collect.prometheus.keys import Column, Columns, Key
from serve_app.collect.prometheus.pods import POD, RUNNING, Pods
from serve_app.collect.prometheus.query import Join, Query
from serve_app.collect.prometheus.workloads import WorkloadServices, by_service

PODS, DISK, QUEUES = "pods", "disk", "queues"  # roles of the queries
QUEUE = ("queue",)
MIN_THROTTLED = 0.01  # share of CPU periods; smaller ones are left out
MIN_CANCELLED = 0.01  # share of requests; smaller ones are left out
MIN_CANCELLED_REQUESTS = 3.0  # requests in the rate window; fewer are chance
MAX_SINCE_SECONDS = 600.0  # how far an event query looks back after failures

# Queue depth by broker: the series, and the label that names the queue or consumer group. RabbitMQ's own plugin for
# Prometheus has queues only in its detailed series.
BROKERS = {
    "kafka": ("kafka_consumergroup_lag", "consumergroup"),
    "kafka_lag_exporter": ("kafka_consumergroup_group_lag", "group"),
    "rabbitmq": ("rabbitmq_queue_messages_ready", "queue"),
    "rabbitmq_detailed": ("rabbitmq_detailed_queue_messages_ready", "queue"),
    "redis": ("redis_key_size", "key"),
    "jetstream": ("jetstream_consumer_num_pending", "consumer_name"),
}

# For the doctor, by source: a series that exists if the source does.
THROTTLING, RESTARTS, OOM_EVENTS, PENDING = "throttling", "restarts", "oom_events", "pending"
VOLUMES, NODES = "volumes", "nodes"
SOURCES = {
    **{name: f"{series}{{$match}}" for name, (series, _) in BROKERS.items()},
    THROTTLING: "container_cpu_cfs_periods_total{$match}",
    RESTARTS: "kube_pod_container_status_restarts_total{$match}",
    OOM_EVENTS: "container_oom_events_total{$match}",
    PENDING: 'kube_pod_status_phase{$match phase="Pending"}',
    VOLUMES: "kubelet_volume_stats_capacity_bytes{$match}",
    NODES: 'kube_node_status_condition{$match condition="DiskPressure"}',
}
# Parts of the pod query; the label `signal` has the part's name.
_THROTTLED, _PERIODS, _RESTARTED, _KILLED, _OOM, _PENDING = (
    "throttled", "periods", "restarted", "killed", "oom_events", "pending",
)  # fmt: skip
_POD_KEY = ("container", "signal", *POD)
_CONTAINER = "by (namespace, pod, container)"


@dataclass(frozen=True, slots=True)
class Queues:
    """The services that read queues."""

    services: Mapping[str, str] = field(default_factory=dict)  # node ids by queue or consumer group
    promql: str = ""  # a further query, with the queue's name in the label `queue`; empty: none


def _increase(counter: str) -> str:
    """Return the increase of a container's counter since the previous poll, if any. The maximum counts a counter once
    even if two targets report it, or its labels changed when its exporter restarted."""
    value = f"max {_CONTAINER} ({counter}"
    return f"{value}) - {value} offset $since) > 0"


def _rate(counter: str) -> str:
    """Return a container counter's rate. A container that two targets report counts once."""
    return f"max {_CONTAINER} (rate({counter}{{$match {RUNNING}}}[$window]))"


_RESTARTS = _increase("kube_pod_container_status_restarts_total{$match}")
_OOM_KILLED = 'kube_pod_container_status_last_terminated_reason{$match reason="OOMKilled"} > 0'
_POD_PARTS = {
    _THROTTLED: _rate("container_cpu_cfs_throttled_periods_total"),
    _PERIODS: _rate("container_cpu_cfs_periods_total"),
    _RESTARTED: _RESTARTS,
    _KILLED: f"({_RESTARTS}) and on (namespace, pod, container) ({_OOM_KILLED})",
    _OOM: _increase(f"container_oom_events_total{{$match {RUNNING}}}"),
    _PENDING: 'max by (namespace, pod) (kube_pod_status_phase{$match phase="Pending"}) > 0',
}
_VOLUME = (
    "kube_pod_spec_volumes_persistentvolumeclaims_info{$match}"
    " * on (namespace, persistentvolumeclaim) group_left ()"
    " (max by (namespace, persistentvolumeclaim) (kubelet_volume_stats_used_bytes{$match})"
    " / max by (namespace, persistentvolumeclaim) (kubelet_volume_stats_capacity_bytes{$match}))"
)
_NODE = (
    "kube_pod_info{$match} * on (node) group_left ()"
    ' (max by (node) (kube_node_status_condition{$match condition="DiskPressure",status="true"}) == 1)'
)
_DISK_PARTS = {VOLUMES: _VOLUME, NODES: _NODE}


def _label(query: str, name: str, value: str) -> str:
    """Set a label on all samples. The source label does not matter: any value matches."""
    return f'label_replace({query}, "{name}", "{value}", "pod", ".*")'


def _by(operation: str, labels: Sequence[str], parts: Collection[str]) -> str:
    return f"{operation} by ({', '.join(labels)}) ({' or '.join(parts)})"


def signal_queries(queues: Queues) -> dict[str, Query]:
    pods = [
        _label(f"({query})" if name != _PENDING else _label(f"({query})", "container", "pod"), "signal", name)
        for name, query in _POD_PARTS.items()
    ]
    disk = [_label(f"({query})", "signal", name) for name, query in _DISK_PARTS.items()]
    depth = [f'label_replace({_depth(*broker)}, "queue", "$1", "{broker[1]}", "(.*)")' for broker in BROKERS.values()]
    by_queue = [f"sum by (queue) ({query})" for query in (*depth, *filter(None, [queues.promql]))]
    return {
        PODS: Query(_by("sum", _POD_KEY, pods), _POD_KEY, is_verbatim=True),
        DISK: Query(_by("max", POD, disk), POD, joined_by="max"),
        QUEUES: Query(" or ".join(by_queue), QUEUE, is_verbatim=True),
    }


def _depth(series: str, label: str) -> str:
    """Return a broker's matched series; if there are none, all of them: there, a label may mean something else, such as
    the broker cluster."""
    of_mesh, every = f'{series}{{$match {label}!=""}}', f'{series}{{{label}!=""}}'
    return f"({of_mesh} or ({every} unless on () {of_mesh}))"


def by_workload(columns: Columns, pods: Pods | None) -> dict[str, Column]:
    """Assign pod signals to workloads. Without ``pods``, these signals are unknown."""
    joins: dict[str, Join] = {PODS: "sum", DISK: "max"}
    other_columns = {role: column for role, column in columns.items() if role not in joins}
    if pods is None:
        return other_columns
    return {
        **other_columns,
        **{role: pods.by_workload(columns[role], join) for role, join in joins.items() if role in columns},
    }


def read_signals(
    columns: Columns, workload_services: WorkloadServices, services: Collection[Key], queues: Queues
) -> tuple[list[Signal], list[str]]:
    """Read the signals of services.

    Args:
        columns: by role and workload; a missing role was not queried, or its query failed.
        workload_services: services of each workload; a workload that is missing serves the service of its own name.

    Returns:
        The signals; and a description of each queue that belongs to no service of the mesh.
    """
    known_services = set(services)
    values: dict[tuple[SignalKind, Key], float] = {}
    if PODS in columns:
        values |= _signals_of_pods(by_service(columns[PODS], workload_services, "sum"), known_services)
    if DISK in columns:
        shares = by_service(columns[DISK], workload_services, "max")
        values |= {
            (SignalKind.DISK_PRESSURE, key): min(max(share, 0.0), 1.0)
            for key, share in _finite(shares)
            if key in known_services
        }
    unmapped_queues = []
    if columns.get(QUEUES):
        owner = _queue_owners(workload_services, known_services)
        for (queue,), depth in _finite(columns[QUEUES]):
            service_name = queues.services.get(queue)
            service: Key | None = tuple(service_name.split("/", 1)) if service_name else owner.get(queue)
            if service is None or service not in known_services:
                reason = f" ({'/'.join(service)} is not in the mesh)" if service else ""
                unmapped_queues.append(f"{queue}{reason}")
                continue
            key = SignalKind.QUEUE_DEPTH, service
            values[key] = min(values.get(key, 0.0) + max(depth, 0.0), LARGEST_VALUE)
    signals = [Signal(kind, "/".join(service), value) for (kind, service), value in values.items()]
    return signals, sorted(unmapped_queues)


def read_cancellations(
    cancellations: Mapping[Key, float] | None,
    requests: Mapping[Key, float],
    services: Collection[Key],
    window_seconds: float,
) -> list[Signal]:
    """Read the share of requests on which callers gave up.

    Args:
        cancellations, requests: 1/s by service; None: the mesh does not distinguish cancelled requests.
    """
    if cancellations is None:
        return []
    all_requests = dict(_finite(requests))
    shares = {key: 0.0 for key in services if all_requests.get(key, 0.0) > 0}
    for key, rate in _finite(cancellations):
        if key in shares and rate * window_seconds >= MIN_CANCELLED_REQUESTS:
            shares[key] = min(rate / all_requests[key], 1.0)
    # Few services have cancelled requests, so zeros are left out, except one, which shows that they were counted.
    sent_keys = [key for key, share in shares.items() if share >= MIN_CANCELLED] or sorted(shares)[:1]
    return [Signal(SignalKind.CANCELLED, "/".join(key), shares[key]) for key in sent_keys]


def _signals_of_pods(pods: Column, known_services: Collection[Key]) -> Iterator[tuple[tuple[SignalKind, Key], float]]:
    """Yield known services' signals from container sums, with keys of service, container and signal."""
    keys, signal = pods.table, pods.part(3)

    def of_containers(name: str) -> Column:
        rows = pods.only((signal == keys.number((name,))) & np.isfinite(pods.array))
        return Column.join(keys, rows.part(0, 3), rows.array)

    periods, throttled_periods = of_containers(_PERIODS), of_containers(_THROTTLED)
    periods = periods.only(periods.array > 0)
    shares = np.minimum(np.nan_to_num(throttled_periods.at(periods.numbers)) / periods.array, 1.0)
    of_services = Column.join(keys, periods.part(0, 2), shares, "max")
    # Most services are hardly throttled and left out, except one, which shows that throttling was measured.
    notable = of_services.only(of_services.array >= MIN_THROTTLED)
    of_mesh = {key: share for key, share in notable.items() if key in known_services}
    if not of_mesh:
        of_mesh = dict(sorted((key, share) for key, share in of_services.items() if key in known_services)[:1])
    yield from (((SignalKind.CPU_THROTTLING, service), share) for service, share in of_mesh.items())
    of_kind = {
        SignalKind.OOM_KILLS: (_KILLED, _OOM),  # two counts of the same kills
        SignalKind.RESTARTS: (_RESTARTED,),
        SignalKind.PENDING_PODS: (_PENDING,),
    }
    for kind, signals in of_kind.items():
        columns = [Column.join(keys, column.part(0, 2), column.array) for column in map(of_containers, signals)]
        for service in {service for column in columns for service in column if service in known_services}:
            yield (kind, service), max(column.get(service, 0.0) for column in columns)


def _finite(column: Mapping[Key, float]) -> Iterator[tuple[Key, float]]:
    for key, value in column.items():
        if np.isfinite(value):
            yield key, value


def _queue_owners(workload_services: WorkloadServices, services: Collection[Key]) -> dict[str, Key]:
    """Return the service for each name of a service or workload. A name that means several services is left out."""
    owners: dict[str, set[Key]] = defaultdict(set)
    for service in services:
        owners[original_name(service[1])].add(service)
        owners[original_name("/".join(service))].add(service)
    for workload, its_services in workload_services.items():
        owners[original_name(workload[1])].update(service for service in its_services if service in services)
    return {name: next(iter(candidates)) for name, candidates in owners.items() if len(candidates) == 1}
