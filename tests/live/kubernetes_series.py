"""Metrics of cAdvisor and kube-state-metrics about a mesh's workloads, as OpenMetrics text.

Each workload has one pod with one container. Stores are stateful sets, other services are deployments. A service
without utilisation in a snapshot has no usage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from model.snapshot import NODE_METRICS, MeshSnapshot
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.workloads import Controllers
from tests.live.series import Export, Numbers, counter_values, gauge_values, write_series
from tests.serve_app.collect.prometheus.cluster import workload_of

STATEFUL = ("-db-v1", "-cache-v1", "-log-v1", "-bus-v1", "queue-v1")
LIMITS = {"cpu": 2.0, "memory": 2.0 * 2**30}  # cores, bytes
UTILISATION = {resource: NODE_METRICS.index(f"{resource}_utilization") for resource in LIMITS}


@dataclass(frozen=True, slots=True)
class _Known:
    """Values of each workload in all snapshots, ``[R, S]``; NaN: unknown, or the workload does not exist."""

    workloads: list[Key]
    desired: Numbers
    generation: Numbers
    used: dict[str, Numbers]  # by resource, of its limit


def write_cluster(
    out: IO[str],
    snapshots: Sequence[MeshSnapshot],
    cluster: Sequence[Controllers],
    times: Sequence[str],
    export: Export,
) -> int:
    """Write all series of all workloads.

    Returns:
        How many samples.
    """
    samples = 0
    for family, rows, values in families(snapshots, cluster):
        counter = family.endswith("_total")
        out.write(f"# TYPE {family.removesuffix('_total')} {'counter' if counter else 'gauge'}\n")
        read = counter_values(values, export) if counter else gauge_values(values, export)
        samples += write_series(out, [f"{family}{{{row}}}" for row in rows], read, times)
    return samples


def _align_replicas(snapshots: Sequence[MeshSnapshot], cluster: Sequence[Controllers]) -> _Known:
    row_of: dict[Key, int] = {}
    for snapshot, controllers in zip(snapshots, cluster, strict=True):
        for key in (*map(workload_of, snapshot.node_ids), *controllers):
            row_of.setdefault(key, len(row_of))
    desired, generation, *used = (np.full((len(row_of), len(snapshots)), np.nan) for _ in range(4))
    for s, (snapshot, controllers) in enumerate(zip(snapshots, cluster, strict=True)):
        for key, controller in controllers.items():
            desired[row_of[key], s], generation[row_of[key], s] = controller.replicas, controller.generation
        rows = [row_of[workload_of(name)] for name in snapshot.node_ids]
        values = np.where(snapshot.node_observed, snapshot.node_features, np.nan)
        for column, place in zip(used, UTILISATION.values(), strict=True):
            column[rows, s] = values[:, place]
    return _Known(list(row_of), desired, generation, dict(zip(LIMITS, used, strict=True)))


def families(
    snapshots: Sequence[MeshSnapshot], cluster: Sequence[Controllers]
) -> Iterator[tuple[str, list[str], Numbers]]:
    """Yield each metric, the labels of its series, and their values ``[r, S]``; for a counter its rate."""
    known = _align_replicas(snapshots, cluster)
    stateful = np.array([name.endswith(STATEFUL) for _, name in known.workloads])
    for kind, rows in (("deployment", np.flatnonzero(~stateful)), ("statefulset", np.flatnonzero(stateful))):
        labels = [f'namespace="{ns}",{kind}="{name}"' for ns, name in (known.workloads[i] for i in rows)]
        wanted = "kube_deployment_spec_replicas" if kind == "deployment" else "kube_statefulset_replicas"
        yield wanted, labels, known.desired[rows]
        yield f"kube_{kind}_metadata_generation", labels, known.generation[rows]
    there = np.where(np.isnan(known.desired), np.nan, 1.0)
    deployed = np.flatnonzero(~stateful)
    sets = [
        f'namespace="{ns}",replicaset="{name}-5f",owner_kind="Deployment",owner_name="{name}"'
        for ns, name in (known.workloads[i] for i in deployed)
    ]
    yield "kube_replicaset_owner", sets, there[deployed]
    yield "kube_pod_owner", [_pod(key, owned=True) for key in known.workloads], there
    pods = [_pod(key) for key in known.workloads]
    for resource, limit in LIMITS.items():
        labels = [f'{pod},container="app",resource="{resource}"' for pod in pods]
        yield "kube_pod_container_resource_limits", labels, there * limit
    in_use = [f'{pod},container="app"' for pod in pods]
    yield "container_cpu_usage_seconds_total", in_use, known.used["cpu"] * LIMITS["cpu"]
    yield "container_memory_working_set_bytes", in_use, known.used["memory"] * LIMITS["memory"]


def _pod(key: Key, *, owned: bool = False) -> str:
    namespace, workload = key
    stateful = workload.endswith(STATEFUL)
    owner = (("StatefulSet", workload) if stateful else ("ReplicaSet", f"{workload}-5f")) if owned else None
    pod = f"{workload}-0" if stateful else f"{workload}-5f-x7k2p"
    owner_labels = f',owner_kind="{owner[0]}",owner_name="{owner[1]}"' if owner else ""
    return f'namespace="{namespace}",pod="{pod}"{owner_labels}'
