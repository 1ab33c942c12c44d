"""A Prometheus with Istio's metrics of a mesh, from snapshots. A poll must return the same snapshots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from model.snapshot import MeshSnapshot
from serve_app.collect.base import Role
from serve_app.collect.prometheus.combine import CALLS, KUBERNETES, SERVICES
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.collect.prometheus.kubernetes import (
    ANNOTATIONS,
    AUTOSCALERS,
    CONTACT_LABELS,
    CONTROLLERS,
    OWNERS_OF_SERVICES,
    OwnerLabels,
)
from serve_app.collect.prometheus.pods import POD_QUERIES, USAGE_QUERIES
from serve_app.collect.prometheus.query import Query
from serve_app.collect.prometheus.rules import recording_rules
from serve_app.collect.prometheus.signals import DISK, PODS, QUEUES, SOURCES
from serve_app.settings import MeshSettings
from tests.serve_app.collect.prometheus.standin import Request, Samples, fails, matrix, range_of, vector

ISTIO = KNOWN["istio"]
REQUESTS, FAILURES, P50, P99 = 0, 1, 2, 3  # columns that services and calls share


SEARCHES = {Query(f"count({series})", ()).at(0): f"search {name}" for name, series in SOURCES.items()}
SIGNALS = {  # beginning of the query by role
    PODS: "sum by (container, signal, pod, namespace)",
    DISK: "max by (pod, namespace) (label_replace",
    QUEUES: "sum by (queue)",
}
INTERVAL_SECONDS, WINDOW_SECONDS = 15.0, 60.0  # of the settings
RULES = recording_rules(ISTIO, INTERVAL_SECONDS, WINDOW_SECONDS)


@cache
def texts(window_seconds: float = WINDOW_SECONDS) -> Mapping[str, Role]:
    """Return kind and metric of each query, by its text."""
    kubernetes = {**USAGE_QUERIES, **POD_QUERIES, **CONTROLLERS, **AUTOSCALERS, **ANNOTATIONS}
    asked: dict[Role, Query] = {(KUBERNETES, role): query for role, query in kubernetes.items()}
    assert ISTIO.serves is not None
    asked[(KUBERNETES, "serves")] = ISTIO.serves
    labels = MeshSettings()
    asked[(KUBERNETES, OWNERS_OF_SERVICES)] = OwnerLabels(labels.team_labels, CONTACT_LABELS).query()
    known = {query.at(window_seconds): role for role, query in asked.items()}
    for dialect in (ISTIO, RULES.dialect):
        for of, queries in ((SERVICES, dialect.services), (CALLS, dialect.calls)):
            for role, query in queries.items():
                known[query.at(window_seconds, per_second=role != "buckets")] = (of, role)
    return known


def _signal_role(text: str) -> Role | None:
    """Return kind and metric of a query of signals; its text depends on the sources that exist."""
    if text in SEARCHES:
        return KUBERNETES, SEARCHES[text]
    return next(((KUBERNETES, role) for role, begin in SIGNALS.items() if text.startswith(begin)), None)


@dataclass
class IstioMesh:
    """A Prometheus that scrapes this mesh.

    Attributes:
        at: returns the snapshot of an instant.
        broken: queries that answer 503.
        altered: functions that change the samples of a query.
        replicas: desired number and generation, by workload.
        annotations: ``mute`` and ``sensitivity`` from kube-state-metrics, by workload.
        labels: of workloads, by workload, and of namespaces, by ``namespace/``, as kube-state-metrics names them.
        recorded: calls in its recording rules; None: there are no rules, or they are late.
        autoscaled: workloads whose replicas an autoscaler sets.
        cordoned: workloads with a pod on a node that takes no new ones.
        sources: sources of signals that exist.
        signals: samples of the queries of signals, by role.
    """

    at: Callable[[float], MeshSnapshot | None]
    broken: set[Role] = field(default_factory=set)
    altered: dict[Role, Callable[[Samples], Samples]] = field(default_factory=dict)
    replicas: dict[str, tuple[int, int]] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    recorded: int | None = None
    autoscaled: set[str] = field(default_factory=set)
    cordoned: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    signals: dict[str, Samples] = field(default_factory=dict)
    asked: list[Role] = field(default_factory=list)

    def __call__(self, request: Request) -> None:
        text = request.query["query"]
        role = texts().get(text) or _signal_role(text)
        if role is not None:
            self.asked.append(role)
        if role in self.broken:
            fails(503, "overloaded")(request)
        elif "time" in request.query:
            request.send(200, vector(self._answer(text, role, float(request.query["time"]))))
        else:
            times = range_of(request.query)
            request.send(200, matrix({at: self._answer(text, role, at) for at in times}))

    def _answer(self, text: str, role: Role | None, at: float) -> Samples:
        if text == RULES.calls.at(0):
            return [({}, str(self.recorded))] if self.recorded is not None else []
        if role is None:  # detection of the kind of mesh
            return [({}, "7")] if 'reporter="destination"' in text else []
        snapshot = self.at(at)
        samples = list(self.samples(snapshot, role)) if snapshot else []
        return self.altered.get(role, lambda s: s)(samples)

    def signal_samples(self, role: Role) -> Samples:
        if role[1].startswith("search "):
            return [({}, "1")] if role[1].removeprefix("search ") in self.sources else []
        return self.signals.get(role[1], [])

    def samples(self, snapshot: MeshSnapshot, role: Role) -> Iterator[tuple[dict[str, str], str]]:
        of, what = role
        if of == KUBERNETES:
            yield from self._kubernetes(snapshot, what)
            yield from self.signal_samples(role)
            return
        rows = _services(snapshot) if of == SERVICES else _calls(snapshot)
        scale = 1.0 if self.recorded is not None else 1e3  # rules record seconds
        for labels, values in rows:
            if what == "requests":
                yield labels, str(values[REQUESTS])
            elif what == "failures" and values[FAILURES] > 0:
                yield labels, str(values[FAILURES] * values[REQUESTS])
            elif what == "in_flight":
                yield labels, str(values[6] * scale)
            elif what in ("p50", "p99"):
                yield labels, str(values[P50 if what == "p50" else P99])
            elif what == "buckets" and not np.isnan(values[[P50, P99]]).any():
                apart = max(values[P99], values[P50] * 1.00001)  # one request has one latency, and bounds differ
                for bound, share in ((values[P50], 0.5), (apart, 0.99), (np.inf, 1.0)):
                    yield {**labels, "le": str(bound * 1e3).replace("inf", "+Inf")}, str(share * values[REQUESTS])

    def _kubernetes(self, snapshot: MeshSnapshot, what: str) -> Iterator[tuple[dict[str, str], str]]:
        for name, values in zip(snapshot.node_ids, _values(snapshot), strict=True):
            namespace, service = name.split("/")
            pod = {"namespace": namespace, "pod": f"{service}-v1-0"}
            container = {**pod, "container": "app"}
            if what == "serves":
                yield (
                    {
                        "destination_workload_namespace": namespace,
                        "destination_workload": f"{service}-v1",
                        "destination_service_namespace": namespace,
                        "destination_service_name": service,
                    },
                    "1",
                )
            elif what in ("cpu_usage", "memory_usage"):
                yield container, str(values[4 if what == "cpu_usage" else 5] * 2)
            elif what in ("cpu_limits", "memory_limits"):
                yield container, "2"
            elif what == "owners":
                yield {**pod, "owner_kind": "StatefulSet", "owner_name": f"{service}-v1"}, "1"
            elif what == "nodes":
                yield {**pod, "node": f"node-of-{service}"}, "1"
            elif what == "cordoned" and f"{namespace}/{service}-v1" in self.cordoned:
                yield {"node": f"node-of-{service}"}, "1"
        for workload, (desired, generation) in self.replicas.items():
            namespace, name = workload.split("/")
            labels = {"namespace": namespace, "workload": name}
            if what in ("desired", "generation"):
                yield labels, str(desired if what == "desired" else generation)
            elif what == "autoscaled" and workload in self.autoscaled:
                yield labels, str(desired)
        for workload, labels in self.labels.items() if what == OWNERS_OF_SERVICES else ():
            namespace, name = workload.split("/")
            yield {"namespace": namespace, **({"workload": name} if name else {}), **labels}, "1"
        for workload, values in self.annotations.items() if what == "annotations" else ():
            namespace, name = workload.split("/")
            for annotation, value in values.items():
                yield {"namespace": namespace, "workload": name, "annotation": annotation, "value": value}, "1"


def _values(snapshot: MeshSnapshot) -> np.ndarray:
    return np.where(snapshot.node_observed, snapshot.node_features.astype(np.float64), np.nan)


def _services(snapshot: MeshSnapshot) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    for name, values in zip(snapshot.node_ids, _values(snapshot), strict=True):
        namespace, service = name.split("/")
        yield {"destination_service_namespace": namespace, "destination_service_name": service}, values


def _calls(snapshot: MeshSnapshot) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    table = np.where(snapshot.edge_observed, snapshot.edge_features.astype(np.float64), np.nan)
    for (source, destination), values in zip(snapshot.edge_index.T, table, strict=True):
        caller, callee = snapshot.node_ids[source].split("/"), snapshot.node_ids[destination].split("/")
        labels = {"source_workload_namespace": caller[0], "source_canonical_service": caller[1]}
        labels |= {"destination_service_namespace": callee[0], "destination_service_name": callee[1]}
        yield labels, values


def find_snapshot(snapshots: Sequence[MeshSnapshot]) -> Callable[[float], MeshSnapshot | None]:
    """Return the snapshot of exactly this instant."""
    known = {round(one.observed_at.timestamp(), 3): one for one in snapshots}
    return lambda at: known.get(round(at, 3))
