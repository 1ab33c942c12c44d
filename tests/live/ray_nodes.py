"""Ray nodes of a small cluster on this machine, each a process of its own that can be killed with all its processes.

All listen on the loopback. ``ray start`` refuses that for several nodes, so they start as in Ray's own tests.
"""

import copy
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import serve
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.serve._private.api import serve_start
from ray.serve.schema import ApplicationStatusOverview, ServeDeploySchema

from serve_app.errors import NoCapacity
from serve_app.runtime.environment import RAY_ENVIRONMENT
from serve_app.runtime.fork_server import WORKER_ENVIRONMENT
from serve_app.runtime.local import OBJECT_STORE_BYTES, POLL_SECONDS, START_ATTEMPTS, TIMED_OUT
from tests.live.programs import LOOPBACK, Program, free_ports
from tests.timing import PATIENCE_SECONDS

KILL_SECONDS = 2.0
START_SECONDS = 4 * PATIENCE_SECONDS
CPUS = 8  # that replicas can claim on a node; they share the real ones


@dataclass
class Nodes:
    """A cluster: a head that runs no replica, and further nodes.

    Each node has an HTTP server on the same port, and the system spreads connections over them, as a Service of
    Kubernetes does.

    Attributes:
        folder: for logs.
        environment: of all processes.
        port: of the service's HTTP servers; 0 before the first call of :meth:`deploy`. Another cluster can have it too.
    """

    folder: Path
    environment: Mapping[str, str]
    port: int = 0
    _address: str = ""
    _nodes: list[Program] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        """HOST:PORT of Ray's head."""
        return self._address

    @property
    def head(self) -> Program:
        """The node that manages the others."""
        return self._nodes[0]

    @property
    def all(self) -> tuple[Program, ...]:
        """The head, then the workers."""
        return tuple(self._nodes)

    @property
    def workers(self) -> list[Program]:
        """The nodes that run replicas."""
        return self._nodes[1:]

    def add(self) -> Program:
        """Start a node, and wait until the cluster has it. The first one is the head."""
        node = self._start_node(is_head=not self._nodes)
        self._nodes.append(node)
        return node

    def restart(self, node: Program) -> Program:
        """Start a node again that has ended, as Kubernetes does. The head returns under its address."""
        position = self._nodes.index(node)
        self._nodes[position] = self._start_node(is_head=not position)
        return self._nodes[position]

    def kill(self, node: Program) -> None:
        """Kill all processes of a node at once, as if it lost power. It does not return."""
        self._nodes.remove(node)
        _kill(node)

    def crash(self, node: Program) -> None:
        """Kill all processes of a node at once, until :meth:`restart`."""
        _kill(node)

    def deploy(self, arguments: Mapping[str, Any], replicas: Mapping[str, int]) -> None:
        """Deploy the application as a Serve config does, and wait until all its replicas run.

        Args:
            arguments: settings of the application.
            replicas: their number, by deployment.
        """
        application = {
            "name": "tagae",
            "route_prefix": "/",
            "import_path": "serve_app.app:build",
            "args": arguments,
            "deployments": [{"name": name, "num_replicas": number} for name, number in replicas.items()],
        }
        self.deploy_config({"applications": [application]})

    def deploy_config(self, config: Mapping[str, Any]) -> None:
        """Deploy a Serve config, except for where Serve listens, and wait until all its replicas run."""
        self.port = self.port or free_ports(1)[0]  # now, since Ray takes many
        here = {"proxy_location": "EveryNode", "http_options": {"host": LOOPBACK, "port": self.port}}
        sent = json.dumps({**config, **here})
        log = self.folder / "deploy.log"
        done = self.folder / "deployed"
        done.unlink(missing_ok=True)
        program = self._run(f"deploy({self._address!r}, {sent!r}, {str(done)!r})", log)
        try:
            program.wait_until(done.exists, START_SECONDS)
        finally:
            program.end()

    def replicas(self, deployment: str) -> dict[int, set[int]]:
        """The process ids of a deployment's replicas, by the node's process id."""
        words = f"ServeReplica:tagae:{deployment}"
        found: dict[int, set[int]] = {node.pid: set() for node in self._nodes}
        for node in filter(lambda one: one.running, self._nodes):
            for child in psutil.Process(node.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if words in " ".join(child.cmdline()):
                        found[node.pid].add(child.pid)
        return found

    def end(self) -> None:
        """Kill all nodes that are left."""
        for node in reversed(self._nodes):
            _kill(node)

    def _start_node(self, *, is_head: bool) -> Program:
        ready_file = self.folder / f"node-{secrets.token_hex(4)}"
        call = f"run_node({self._address!r}, {str(ready_file)!r}, is_head={is_head})"
        node = self._run(call, ready_file.with_suffix(".log"))
        try:
            node.wait_until(ready_file.exists, START_SECONDS)
        except BaseException:
            _kill(node)
            raise
        self._address = ready_file.read_text()
        return node

    def _run(self, call: str, log: Path) -> Program:
        command = [sys.executable, "-c", f"from tests.live.ray_nodes import deploy, run_node; {call}"]
        return Program("Ray", command, log, self.environment)


@contextmanager
def run_nodes(folder: Path, workers: int, **environment: str) -> Iterator[Nodes]:
    """Run a cluster of a head and some workers. No process is left over.

    Args:
        folder: for logs; it must not exist.
        workers: their number.
        environment: further variables of all processes, such as settings of the front.
    """
    folder.mkdir()
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    with ExitStack() as stack:
        short = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the path of a socket has at most 107 bytes
        stack.callback(shutil.rmtree, short, ignore_errors=True)
        chosen = {
            **RAY_ENVIRONMENT,
            **WORKER_ENVIRONMENT,
            # Ray's default, as on a cluster: no process of ours sees there if a raylet ends.
            "RAY_health_check_failure_threshold": "5",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": short,
            "PYTHONPATH": str(Path.cwd()),
            **environment,
        }
        nodes = Nodes(folder, chosen)
        stack.callback(nodes.end)
        for _ in range(1 + workers):
            nodes.add()
        yield nodes


def kill_below(process: psutil.Process) -> None:
    """Kill all processes below one at once: none of them sees another one end."""
    below = process.children(recursive=True)
    for end in (psutil.Process.suspend, psutil.Process.kill):
        for one in below:
            with suppress(psutil.NoSuchProcess):
                end(one)
    psutil.wait_procs(below, KILL_SECONDS)  # those whose parent is suspended are reaped when it is killed


def _kill(node: Program) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(node.pid)
        process.suspend()  # it starts nothing more
        kill_below(process)
    node.kill()


def run_node(address: str, ready_file: str, *, is_head: bool) -> None:
    """Be a node of a cluster, until this process is killed, or one of Ray's own processes ends (as ``ray start
    --block`` does).

    Args:
        address: of the cluster; empty: a head chooses one.
        ready_file: file for the address, written when the node is ready.
        is_head: whether it is the head.
    """
    own: dict[str, Any] = {"gcs_address": address}
    if is_head:
        port = int(address.rpartition(":")[2]) if address else 0
        own = {"include_dashboard": False, "temp_dir": os.environ["RAY_TMPDIR"], "gcs_server_port": port}
    node = _start_node(
        RayParams(
            node_ip_address=LOOPBACK,
            num_cpus=0 if is_head else CPUS,
            num_gpus=0,
            object_store_memory=OBJECT_STORE_BYTES,
            min_worker_port=0,  # any
            max_worker_port=0,
            node_manager_port=0,
            dashboard_agent_listen_port=0,
            include_log_monitor=False,
            **own,
        )
    )
    written = Path(ready_file).with_suffix(".part")
    written.write_text(node.gcs_address)
    written.rename(ready_file)
    while not (ended := node.dead_processes()):
        time.sleep(POLL_SECONDS)
    print(f"ended: {[name for name, _ in ended]}", flush=True)
    kill_below(psutil.Process())


def _start_node(parameters: RayParams) -> Node:
    """Start it, again if a time limit of Ray's passed that cannot be changed; see ``serve_app.runtime.local``."""
    for _ in range(START_ATTEMPTS):
        try:
            return Node(copy.copy(parameters), head=parameters.gcs_address is None)
        except Exception as error:  # Ray raises nothing more specific
            if TIMED_OUT not in str(error):
                raise
            print("Ray did not start within its time limit, trying again", flush=True)
            kill_below(psutil.Process())
    raise NoCapacity("Ray did not start, because this machine is too busy")


def deploy(address: str, config: str, done: str) -> None:
    """Send a Serve config to the cluster, as ``serve deploy`` does, and wait until all of it runs.

    ``done`` is a file that is written then.
    """
    ray.init(address, namespace="serve", log_to_driver=False)
    wanted = ServeDeploySchema.model_validate_json(config)
    client = serve_start(http_options=wanted.http_options.model_dump(), proxy_location=wanted.proxy_location)
    client.deploy_apps(wanted)
    while not _runs(serve.status().applications.get("tagae")):
        time.sleep(POLL_SECONDS)
    Path(done).touch()
    signal.pause()


def _runs(status: ApplicationStatusOverview | None) -> bool:
    """Whether the application runs with all its replicas. Prints what its deployments say."""
    if status is None:
        return False
    print(status, flush=True)
    return status.status == "RUNNING" and all(one.status == "HEALTHY" for one in status.deployments.values())
