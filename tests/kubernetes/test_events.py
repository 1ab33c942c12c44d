"""An installation by the chart under load: no event of pods, nodes and versions loses what was acknowledged."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.client import Client
from serve_app.recordings.reader import RecordingReader
from tests.cluster.schemas import ROOT
from tests.kubernetes.installation import (
    MAX_GAP_SECONDS,
    NAMESPACE,
    ON_KUBERNETES,
    OURS,
    WORKERS,
    Access,
    active_cluster,
    await_running,
    chart,
    forwarded,
    items,
    kubectl,
    namespace,
    record,
    sending,
    start_client,
    starts,
    uninstall,
    until,
)

pytestmark = ON_KUBERNETES
KILL_RAYLET = "for p in /proc/[0-9]*; do if grep -qsx raylet $p/comm; then kill -9 ${p#/proc/}; fi; done"


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Access]:
    """An installation for all tests of this file, and a client in its namespace."""
    with namespace(tmp_path_factory.mktemp("installation")) as found:
        chart("install")
        await_running()
        start_client(found)
        yield found


def readme_snapshot() -> Any:
    """The body of README's request."""
    text = (ROOT / "README.md").read_text("utf-8")
    (body,) = re.findall(r"/v1/meshes/shop/snapshots .*?-d '(\{.*?\})'\n", text, re.DOTALL)
    return json.loads(body)


def test_readmes_request_needs_a_token(access: Access) -> None:
    with forwarded() as url, httpx.Client(base_url=url, timeout=60) as http:
        path = "/v1/meshes/readme/snapshots"
        assert http.post(path, json=readme_snapshot()).status_code == 401
        answer = http.post(path, json=readme_snapshot(), headers={"authorization": f"Bearer {access.token}"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "warming_up"


def test_a_mesh_above_two_thousand_services_is_scored_whole(access: Access, tmp_path: Path) -> None:
    recording = record(tmp_path / "large", services=2500, snapshots=2)
    with forwarded() as url, Client(url, token=access.token, timeout_seconds=120) as client:
        verdicts = [client.push("large", one) for one in RecordingReader(recording).snapshots()]
    assert [one.coverage for one in verdicts] == [1.0, 1.0]


def _first(selector: str) -> str:
    return str(items("pods", selector)[0]["metadata"]["name"])


def delete_worker() -> None:
    kubectl("delete", "pod", _first(WORKERS), "--wait=false")


def delete_head() -> None:
    kubectl("delete", "pod", _first(f"{OURS},app.kubernetes.io/component=head"), "--wait=false")


def delete_redis() -> None:
    kubectl("delete", "pod", "tagae-redis-0", "--wait=false")


def kill_raylet() -> None:
    kubectl("exec", _first(WORKERS), "--container", "ray", "--", "sh", "-c", KILL_RAYLET)


def evict_worker() -> None:
    metadata = {"name": _first(WORKERS), "namespace": NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata['name']}/eviction"
    kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))


@pytest.mark.parametrize("event", [delete_worker, evict_worker, kill_raylet, delete_head, delete_redis])
def test_an_event_loses_nothing(
    event: Callable[[], None], access: Access, record_property: Callable[[str, object], None]
) -> None:
    with sending(event.__name__.replace("_", "-")) as sender:
        before = starts()
        event()
        until(lambda: starts() != before, "another pod, or a container that started again")
        await_running()
        sender.await_more()
    record_property("longest_gap_seconds", round(sender.longest_gap, 1))
    assert sender.longest_gap <= MAX_GAP_SECONDS


def test_every_node_can_be_drained(access: Access, record_property: Callable[[str, object], None]) -> None:
    """One after the other, as in an upgrade of nodes. The client and the pods of others stay."""
    nodes = sorted({one["spec"]["nodeName"] for one in items("pods", OURS)})
    if len(nodes) < 2:
        pytest.skip("all pods are on one node, which leaves no other one for them")
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector={OURS}", "--timeout=600s")
    for position, node in enumerate(nodes):
        with sending(f"drain-{position}") as sender:
            try:
                kubectl("drain", node, *words)
            finally:
                kubectl("uncordon", node)  # the volume of Redis may be on this node alone
            await_running()
            sender.await_more()
        record_property(f"longest_gap_seconds_{node}", round(sender.longest_gap, 1))
        assert sender.longest_gap <= MAX_GAP_SECONDS


def test_an_upgrade_with_a_second_cluster(access: Access, record_property: Callable[[str, object], None]) -> None:
    before = active_cluster()
    with sending("second-cluster") as sender:
        chart("upgrade", values={"hosts": ["tagae.example"]})
        until(lambda: active_cluster() != before, "another active cluster")
        await_running()
        sender.await_more()
    record_property("longest_gap_seconds", round(sender.longest_gap, 1))
    assert sender.longest_gap <= MAX_GAP_SECONDS


def test_an_upgrade_in_place(access: Access, record_property: Callable[[str, object], None]) -> None:
    before = active_cluster()
    in_place = {"upgrade": {"strategy": "None"}, "settings": {"collector": {"behind_seconds": 20}}}
    with sending("in-place") as sender:
        chart("upgrade", values={"hosts": ["tagae.example"], **in_place})
        sender.await_more(100)
        await_running()
        sender.await_more()
    record_property("longest_gap_seconds", round(sender.longest_gap, 1))
    assert active_cluster() == before
    assert sender.longest_gap <= MAX_GAP_SECONDS


def test_the_commands_of_the_page_uninstall_it(access: Access) -> None:
    uninstall()
    for kind in ("rayservices", "rayclusters", "jobs", "statefulsets", "networkpolicies", "poddisruptionbudgets"):
        until(lambda kind=kind: not items(kind), f"no {kind}")  # type: ignore[misc]
    assert {"tagae-tokens", "tagae-redis"} <= {one["metadata"]["name"] for one in items("secrets")}
    assert items("persistentvolumeclaims")
