"""An installation of TAGAE in the cluster that KUBECONFIG names, through kubectl and helm, and a client under load."""

import io
import json
import os
import re
import secrets
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rendering import CHART, HELM, KUBECTL
from tests.cluster.schemas import ROOT
from tests.serve_app.cli.command import tagae
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

HERE = Path(__file__).parent
VALUES = Path(os.environ.get("TAGAE_VALUES", HERE / "values.yaml"))
NAMESPACE, RELEASE = "tagae-test", "tagae"
START_SECONDS = 15 * PATIENCE_SECONDS  # of an installation, whose images may have to be pulled
MAX_GAP_SECONDS = 120.0 * TIME_FACTOR  # without a verdict, in each event
PAUSE_SECONDS = 0.2  # between two snapshots of the client
OURS = f"app.kubernetes.io/instance={RELEASE}"
WORKERS = f"{OURS},app.kubernetes.io/component in (cpu,gpu)"
CLUSTER_MISSING = "KUBECONFIG is not set; set it to the file of a cluster with KubeRay, see docs/cluster.md"
ON_KUBERNETES = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(not os.environ.get("KUBECONFIG"), reason=CLUSTER_MISSING),
    pytest.mark.skipif(HELM is None or KUBECTL is None, reason="helm and kubectl are not both here"),
]


def kubectl(*words: str, stdin: str | bytes | None = None) -> str:
    """Run kubectl in the namespace of the tests, and return what it prints.

    Raises:
        AssertionError: it failed; the text says why.
    """
    assert KUBECTL is not None
    given = stdin.encode() if isinstance(stdin, str) else stdin
    command = [KUBECTL, "--namespace", NAMESPACE, *words]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr.decode()}"
    return done.stdout.decode()


def items(kind: str, selector: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kubectl("get", kind, "--selector", selector, "--output", "json"))["items"]
    return found


def chart(action: str, *words: str, values: dict[str, Any] | None = None) -> str:
    """Run ``helm install``, ``upgrade`` or ``template`` with the values of the tests, and return what it prints."""
    assert HELM is not None
    command = [HELM, action, RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", str(VALUES), *words]
    done = subprocess.run(
        [*command, "--values", "-"], input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(condition: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> Any:
    """Ask once a second until the condition is true, and return its value."""
    never = threading.Event()
    for _ in range(round(seconds)):
        if found := condition():
            return found
        never.wait(1.0)
    pytest.fail(f"expected within {seconds:.0f} s: {what}\n{kubectl('get', 'rayservice,pods', '--output', 'wide')}")


@dataclass(frozen=True)
class Access:
    """What clients need.

    Attributes:
        token: may do everything.
        recording: of a mesh of 40 services without faults.
    """

    token: str
    recording: Path


@contextmanager
def namespace(folder: Path) -> Iterator[Access]:
    """A namespace for restricted pods with the Secrets of an installation. It is deleted at the end.

    A namespace that exists already belongs to someone, and fails the test.
    """
    kubectl("create", "namespace", NAMESPACE)
    try:
        kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        made = tagae("token", "create", "--name", "test", "--scope", "admin", folder / "tokens.toml")
        assert made.exit_code == 0, made.output
        kubectl("create", "secret", "generic", "tagae-tokens", f"--from-file={folder / 'tokens.toml'}")
        kubectl("create", "secret", "generic", "tagae-redis", f"--from-literal=password={secrets.token_hex(32)}")
        yield Access(made.stdout.strip(), record(folder / "recording", services=40, snapshots=60))
    finally:
        if items("rayservice"):
            uninstall()
        kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")


def record(folder: Path, services: int, snapshots: int) -> Path:
    """Simulate a mesh without faults into a folder."""
    words = ["simulate", folder, "--services", services, "--snapshots", snapshots]
    made = tagae(*words, "--seed", 5, "--no-faults")
    assert made.exit_code == 0, made.output
    return folder


def uninstall_commands() -> str:
    """The commands of docs/cluster.md, "Uninstall"."""
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    section = page.split("\n## Uninstall\n", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found[0]


def uninstall() -> None:
    """Run the commands of the page. What they end with, helm, also forgets objects that were applied without it."""
    assert HELM is not None
    assert KUBECTL is not None
    commands = uninstall_commands().replace("-n tagae ", f"-n {NAMESPACE} ")
    commands = commands.replace("--namespace tagae", f"--namespace {NAMESPACE} --ignore-not-found")
    folders = os.pathsep.join((str(Path(HELM).parent), str(Path(KUBECTL).parent), os.environ["PATH"]))
    run = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, "PATH": folders})
    assert done.returncode == 0, done.stderr


def await_running() -> None:
    """Wait until the RayService runs and all its pods are ready."""
    until(lambda: _status().get("serviceStatus") == "Running" and _is_ready(), "a RayService that is Running")


def _status() -> dict[str, Any]:
    services = items("rayservice")
    return dict(services[0].get("status", {})) if services else {}


def active_cluster() -> str:
    """The name of the RayCluster that gets the traffic."""
    return str(_status().get("activeServiceStatus", {}).get("rayClusterName", ""))


def _is_ready() -> bool:
    """Whether all pods of the installation are there and ready."""
    pods = items("pods", OURS)
    ready = [one for one in pods if is_ready(one) and "deletionTimestamp" not in one["metadata"]]
    return bool(pods) and len(ready) == len(pods) and _status().get("numServeEndpoints", 0) > 0


def starts() -> set[tuple[str, int]]:
    """Each pod of the installation, with the number of times that its containers started again."""
    return {
        (one["metadata"]["uid"], sum(of["restartCount"] for of in one["status"].get("containerStatuses", ())))
        for one in items("pods", OURS)
    }


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def start_client(access: Access) -> None:
    """Start a pod with the image of the service that may reach it, and copy the recording and the token there."""
    (head,) = items("pods", f"{OURS},app.kubernetes.io/component=head")[:1]
    image = head["spec"]["containers"][0]["image"]
    locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "securityContext": locked,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "imagePullSecrets": head["spec"].get("imagePullSecrets", []),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    metadata = {"name": "client", "labels": {"tagae/client": "true"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    kubectl("apply", "--filename", "-", stdin=json.dumps(pod))
    kubectl("wait", "pod/client", "--for=condition=Ready", f"--timeout={START_SECONDS:.0f}s")
    kubectl("exec", "-i", "client", "--", "sh", "-c", "cat > /tmp/token", stdin=access.token)
    copy_to_client(access.recording, "recording")


def copy_to_client(folder: Path, name: str) -> None:
    """Copy a folder into the client's pod, as /tmp/NAME."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, name)
    kubectl("exec", "-i", "client", "--", "tar", "xf", "-", "-C", "/tmp", stdin=packed.getvalue())


@dataclass
class Sender:
    """A client in the cluster that pushes a mesh.

    Attributes:
        verdicts: that it got, with ``at`` and ``sequence``.
        program: kubectl, which ends the client when it ends.
    """

    program: subprocess.Popen[str]
    verdicts: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> None:
        assert self.program.stdout is not None
        for line in self.program.stdout:
            self.verdicts.append(json.loads(line))

    def await_more(self, count: int = 20) -> None:
        wanted = len(self.verdicts) + count
        until(lambda: len(self.verdicts) >= wanted or self.program.poll() is not None, f"{count} more verdicts")
        assert self.program.poll() is None, f"the client ended with {self.program.returncode}"

    @property
    def longest_gap(self) -> float:
        """The longest time between two verdicts, s."""
        return max(after["at"] - before["at"] for before, after in pairwise(self.verdicts))

    def check(self) -> None:
        """Each acknowledged snapshot is counted, once and in order: a lost one would be counted again."""
        assert [one["sequence"] for one in self.verdicts] == list(range(1, len(self.verdicts) + 1))


@contextmanager
def sending(mesh: str, recording: str = "recording") -> Iterator[Sender]:
    """Push a mesh from the client's pod inside the block. Afterwards, nothing acknowledged was lost."""
    assert KUBECTL is not None
    words = ["exec", "-i", "client", "--", "python", "-u", "-", f"http://{RELEASE}:8000", mesh]
    command = [KUBECTL, "--namespace", NAMESPACE, *words, f"/tmp/{recording}", "/tmp/token", str(PAUSE_SECONDS)]
    with (
        (HERE / "sender.py").open() as text,
        subprocess.Popen(command, stdin=text, stdout=subprocess.PIPE, text=True) as program,
    ):
        sender = Sender(program)
        reader = threading.Thread(target=sender.read, daemon=True)
        reader.start()
        try:
            sender.await_more()
            yield sender
        finally:
            program.kill()
            reader.join()
    sender.check()


@contextmanager
def forwarded() -> Iterator[str]:
    """The URL of the service on this machine."""
    assert KUBECTL is not None
    command = [KUBECTL, "--namespace", NAMESPACE, "port-forward", f"service/{RELEASE}", ":8000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", program.stdout.readline())
            assert found, "kubectl says no address"
            yield f"http://{found[0]}"
        finally:
            program.kill()
