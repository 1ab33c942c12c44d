"""An installation without helm: strict validation, a first verdict, and nothing that is left of it."""

from pathlib import Path

from serve_app.api.client import Client
from serve_app.recordings.reader import RecordingReader
from tests.cluster.rendering import SHIPPED_FILES
from tests.cluster.schemas import ROOT
from tests.kubernetes.installation import (
    NAMESPACE,
    ON_KUBERNETES,
    await_running,
    chart,
    forwarded,
    items,
    kubectl,
    namespace,
    uninstall,
    until,
)

pytestmark = ON_KUBERNETES
KEPT = {"secrets": {"tagae-tokens", "tagae-redis"}, "persistentvolumeclaims": {"data-tagae-redis-0"}}
GONE = (
    "rayservices",
    "rayclusters",
    "pods",
    "jobs",
    "services",
    "statefulsets",
    "networkpolicies",
    "poddisruptionbudgets",
)


def test_the_server_accepts_each_object_strictly(tmp_path: Path) -> None:
    strictly = ("--dry-run=server", "--validate=strict", "--warnings-as-errors")
    with namespace(tmp_path):
        for name in (*SHIPPED_FILES, "deploy/sidecar/sidecar.yaml"):
            text = (ROOT / name).read_text("utf-8").replace("namespace: tagae\n", f"namespace: {NAMESPACE}\n")
            kubectl("apply", *strictly, "--filename", "-", stdin=text)


def test_a_manifest_gives_a_verdict_and_leaves_nothing(tmp_path: Path) -> None:
    """What helm renders is what `cluster.yaml` holds, see tests/cluster/test_chart.py."""
    with namespace(tmp_path) as access:
        manifest = chart("template")
        kubectl("apply", "--validate=strict", "--filename", "-", stdin=manifest)
        await_running()
        with forwarded() as url, Client(url, token=access.token) as client:
            statuses = [client.push("first", one).status for one in RecordingReader(access.recording).snapshots()]
        assert statuses[-1] == "normal"
        uninstall()
        kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=manifest)
        for kind in GONE:
            until(lambda kind=kind: not items(kind), f"no {kind}")  # type: ignore[misc]
        for kind, names in KEPT.items():
            assert names <= {one["metadata"]["name"] for one in items(kind)}, kind
