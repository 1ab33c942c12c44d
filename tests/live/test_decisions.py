"""Series of kube-state-metrics become planned changes, through a real Prometheus."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from serve_app.settings import CollectorSettings
from tests.live.history import prometheus_with_text
from tests.live.polls import open_source
from tests.live.programs import needs
from tests.live.series import Export

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
INSTANTS, APART = 4, 15
CART, DB = 'namespace="shop",deployment="cart-v1"', 'namespace="shop",statefulset="db"'
SCALED = 'namespace="shop",horizontalpodautoscaler="cart-scaler"'
NODE_1, NODE_2 = 'node="node-1"', 'node="node-2"'


def pod(name: str, kind: str, owner: str) -> str:
    return f'namespace="shop",pod="{name}",owner_kind="{kind}",owner_name="{owner}"'


GAUGES: Mapping[str, list[tuple[str, tuple[float | None, ...]]]] = {
    "kube_deployment_spec_replicas": [(CART, (2, 5, 5, None))],
    "kube_deployment_metadata_generation": [(CART, (7, 8, 8, None))],
    "kube_statefulset_replicas": [(DB, (1, 1, 1, 1))],
    "kube_statefulset_metadata_generation": [(DB, (3, 3, 4, 4))],
    "kube_horizontalpodautoscaler_info": [
        (f'{SCALED},scaletargetref_kind="Deployment",scaletargetref_name="cart-v1"', (1, 1, 1, 1))
    ],
    "kube_horizontalpodautoscaler_status_desired_replicas": [(SCALED, (2, 5, 5, 5))],
    "kube_replicaset_owner": [
        ('namespace="shop",replicaset="cart-v1-5f",owner_kind="Deployment",owner_name="cart-v1"', (1, 1, 1, 1))
    ],
    "kube_pod_owner": [
        (pod("cart-v1-5f-x7k2p", "ReplicaSet", "cart-v1-5f"), (1, 1, 1, 1)),
        (pod("db-0", "StatefulSet", "db"), (1, 1, 1, 1)),
    ],
    "kube_pod_info": [
        (f'namespace="shop",pod="cart-v1-5f-x7k2p",{NODE_1}', (1, 1, 1, 1)),
        (f'namespace="shop",pod="db-0",{NODE_2}', (1, 1, 1, 1)),
    ],
    "kube_node_spec_unschedulable": [(NODE_1, (0, 0, 0, 0)), (NODE_2, (0, 1, 1, 0))],
}
WORKLOAD = 'destination_workload_namespace="shop",destination_workload="{}"'
SERVICE = 'destination_service_namespace="shop",destination_service_name="{}"'


def text(first: datetime) -> str:
    """Return OpenMetrics text: gauges at each instant, and requests to two services.

    The name of one service differs from its workload's.
    """
    at = [first.timestamp() + i * APART for i in range(-1, INSTANTS)]
    out = []
    for name, series in GAUGES.items():
        out.append(f"# TYPE {name} gauge")
        out += [
            f"{name}{{{labels}}} {value} {instant:.3f}"
            for labels, values in series
            for value, instant in zip((values[0], *values), at, strict=True)
            if value is not None
        ]
    out.append("# TYPE istio_requests counter")
    for workload, service in (("cart-v1", "cart"), ("db", "orders-db")):
        labels = f'reporter="destination",{WORKLOAD.format(workload)},{SERVICE.format(service)},response_code="200"'
        out += [f"istio_requests_total{{{labels}}} {100 * i} {instant:.3f}" for i, instant in enumerate(at)]
    caller = 'source_workload_namespace="shop",source_canonical_service="cart"'
    labels = f'reporter="source",{caller},{SERVICE.format("orders-db")}'
    out += [f'istio_requests_total{{{labels},response_code="200"}} {50 * i} {t:.3f}' for i, t in enumerate(at)]
    return "\n".join([*out, "# EOF", ""])


def test_decisions_become_planned_changes(tmp_path: Path) -> None:
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    file = tmp_path / "text"
    file.write_text(text(first))
    with prometheus_with_text(file, tmp_path, first, Export(APART)) as monitor:
        asking = CollectorSettings(interval_seconds=APART, window_seconds=16.0, deadline_seconds=20.0)
        with open_source(monitor.url, asking) as source:
            polls = [source.poll(first + timedelta(seconds=APART * i)) for i in range(INSTANTS)]
    decisions = []
    for poll in polls:
        assert poll.snapshot is not None, poll.why
        decisions.append([(change.kind, change.service, change.reason) for change in poll.snapshot.changes])
    assert decisions == [
        [],
        [
            ("scale_out", "shop/cart", "cart-v1: replicas changed from 2 to 5 by the autoscaler"),
            ("node_drain", "shop/orders-db", "has pods on a cordoned node"),
        ],
        [("deploy", "shop/orders-db", "db: generation 3 to 4")],
        [("deletion", "shop/cart", "cart-v1: controller deleted")],
    ]
