"""As much of a Kubernetes API server as helm asks while it renders: which kinds there are, nodes, and a RayService."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.http_server import serve_in_thread

KINDS = {  # of what the chart has: plural names by version, and their kinds
    "v1": {"nodes": "Node", "services": "Service", "configmaps": "ConfigMap"},
    "apps/v1": {"statefulsets": "StatefulSet"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "ray.io/v1": {"rayservices": "RayService"},
}


def discovery() -> dict[str, dict[str, Any]]:
    """The documents that list the kinds, by path."""
    groups = [version.partition("/")[0] for version in KINDS if "/" in version]
    listed = [{"name": one, "versions": [{"groupVersion": f"{one}/v1", "version": "v1"}]} for one in groups]
    found: dict[str, dict[str, Any]] = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed},
    }
    for version, kinds in KINDS.items():
        resources = [
            {"name": name, "singularName": "", "namespaced": kind != "Node", "kind": kind, "verbs": ["get", "list"]}
            for name, kind in kinds.items()
        ]
        folder = "apis" if "/" in version else "api"
        about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        found[f"/{folder}/{version}"] = {**about, "resources": resources}
    return found


def answers(nodes: Sequence[dict[str, str]], groups: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Documents by path.

    Args:
        nodes: allocatable resources of each node.
        groups: worker groups of the RayService ``tagae``; None: it is not installed.
    """
    listed = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{i}"}, "status": {"allocatable": one}}
        for i, one in enumerate(nodes)
    ]
    found = discovery()
    found["/api/v1/nodes"] = {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": listed}
    if groups is not None:
        cluster = {"workerGroupSpecs": [{"groupName": name} for name in groups]}
        metadata = {
            "name": "tagae",
            "namespace": "tagae",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "tagae", "meta.helm.sh/release-namespace": "tagae"},
        }
        found["/apis/ray.io/v1/namespaces/tagae/rayservices/tagae"] = {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": metadata,
            "spec": {"rayClusterConfig": cluster},
        }
    return found


@contextmanager
def kubernetes_api(
    folder: Path, nodes: Sequence[dict[str, str]], groups: Sequence[str] | None = None
) -> Iterator[Path]:
    """Run the API server inside the block, and yield a kubeconfig for it; other arguments as of :func:`answers`."""
    documents = answers(nodes, groups)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = documents.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        file = folder / "kubeconfig.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        yield file
