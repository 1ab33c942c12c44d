"""Low-priority tasks on the Ray cluster that also runs the service, for ``tagae score --ray``.

The service comes first in every respect:

* A task claims a CPU and some memory, as Ray counts them, and is only submitted while a node has both free. So it is
  never ahead of a replica in Ray's queue, and Ray's autoscaler adds no node for it. Tasks are short, so a replica that
  needs a CPU gets it when the next task ends.
* With a custom resource, a task claims that instead of a CPU. So nodes that offer no CPUs to Ray, where no replica is
  placed, can be reserved for tasks. Such tasks wait in Ray's queue, and the autoscaler may add nodes for them.
* The process of a task has the lowest priority of the operating system, since replicas often use more than they claim.
* Ray repeats a task whose node or process was lost. If a node runs out of memory, Ray ends tasks that it can repeat
  before replicas.

Tasks belong to the process that submitted them: if it ends, however it ends, Ray ends their processes.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import ray
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._private.state import available_resources_per_node, total_resources_per_node
from ray.core.generated.gcs_service_pb2 import CheckAliveRequest
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
from ray.exceptions import AuthenticationError, RayError, RayTaskError

from serve_app.errors import NoCapacity

T = TypeVar("T")
NAME = "tagae score"  # of the tasks in Ray's dashboard, and of their processes
MEMORY_BYTES = 2**30  # of a task: torch, the state of a mesh, and snapshots
LOWEST_PRIORITY = 19
REPEATS = 5  # of a task whose process or node is lost
REACH_SECONDS = 10.0  # in which a cluster has to answer
POLL_SECONDS = 0.1
SETTLE_SECONDS = 0.3  # until a task shows in the free resources that Ray reports
NOTE_SECONDS = 5.0  # until the first note that nothing is free; the interval then doubles
_SET_TOKEN = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, as in the pods of the cluster"


class BatchCluster:
    """Submits tasks to the cluster that this process is connected to. Its methods may be called in any thread.

    Args:
        resource: custom resource that each task claims instead of a CPU.
        on_wait: gets a note while no node has room for the next task.

    Attributes:
        claim: resources of a task by their names in Ray.
    """

    def __init__(self, resource: str | None, on_wait: Callable[[str], None]) -> None:
        self.claim = {"CPU" if resource is None else resource: 1.0, "memory": float(MEMORY_BYTES)}
        self._may_queue, self._on_wait = resource is not None, on_wait
        self._task = ray.remote(_run_last).options(
            name=NAME,
            num_cpus=0 if resource else 1,
            memory=MEMORY_BYTES,
            resources={resource: 1} if resource else None,
            max_retries=REPEATS,
            scheduling_strategy="SPREAD",
        )
        self._turn, self._ended = threading.Lock(), threading.Event()
        self._running: set[ray.ObjectRef[Any]] = set()

    def put(self, value: object) -> "ray.ObjectRef[Any]":
        """Store a value in the cluster. A task that gets the reference as an argument receives the value."""
        return ray.put(value)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> "ray.ObjectRef[Any]":
        """Run a function in the cluster as soon as a node has room.

        Args:
            function: of a module that the nodes have too.
            arguments: values, or references of :meth:`put`.

        Raises:
            NoCapacity: the tasks were cancelled.
        """
        with self._turn:  # one at a time, so that each sees what the one before has claimed
            if not self._may_queue:
                self._await_room()
            if self._ended.is_set():
                raise NoCapacity("the tasks were cancelled")
            reference = self._task.remote([ray.put((function, arguments))])
            self._running.add(reference)
            self._ended.wait(SETTLE_SECONDS)
        return reference

    def result(self, reference: "ray.ObjectRef[Any]") -> Any:
        """Wait for a task and return what its function returned.

        Raises:
            NoCapacity: its process was lost too often.
            Exception: what the function raised.
        """
        try:
            return ray.get(reference)
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            raise NoCapacity(
                f"a task on the cluster was lost with its node or process, and so were {REPEATS} repetitions: "
                f"{str(error).strip().splitlines()[0]} Check the memory of the nodes, and use fewer --jobs"
            ) from None
        finally:
            self._running.discard(reference)

    def cancel(self) -> None:
        """Cancel all tasks. Threads that wait for one get an error."""
        self._ended.set()
        for reference in list(self._running):
            ray.cancel(reference, force=True)

    def _await_room(self) -> None:
        """Wait until a node has room for a task, or the tasks are cancelled."""
        began, pause = time.monotonic(), NOTE_SECONDS
        while not self._ended.is_set() and not _has_room(available_resources_per_node(), self.claim):
            if time.monotonic() - began > pause:
                self._on_wait(f"waiting for {_describe(self.claim)} on one node that nothing else claims")
                pause *= 2
            self._ended.wait(POLL_SECONDS)


@contextmanager
def connect_batch(address: str, resource: str | None, on_wait: Callable[[str], None]) -> Iterator[BatchCluster]:
    """Connect this process, which must run on a node of the cluster, and cancel at the end what still runs.

    Args:
        address: HOST:PORT of Ray's head; ``auto``: the cluster of this node.
        resource, on_wait: as in :class:`BatchCluster`.

    Raises:
        NoCapacity: no cluster can be used there, or none of its nodes is large enough.
    """
    found = _find_cluster(address)
    try:
        ray.init(found, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        raise NoCapacity(
            f"--ray: expected a node of the Ray cluster at {found}, got {_first_line(error)}; run the command on one "
            "of its nodes, for example with kubectl exec"
        ) from None
    try:
        cluster = BatchCluster(resource, on_wait)
        if not resource and not _has_room(total_resources_per_node(), cluster.claim):
            raise NoCapacity(
                f"--ray: expected a node with {_describe(cluster.claim)} at {found}, found none; add one, or take "
                "--jobs on this machine"
            )
        try:
            yield cluster
        finally:
            cluster.cancel()
    finally:
        ray.shutdown()


def _find_cluster(address: str) -> str:
    """Return the address of a cluster that answers. ``ray.init`` would try for minutes, and then end this process.

    Raises:
        NoCapacity: there is none, or it refuses the token of this process.
    """
    try:
        found = canonicalize_bootstrap_address_or_die(address)
        with init_grpc_channel(found) as channel:
            NodeInfoGcsServiceStub(channel).CheckAlive(CheckAliveRequest(), timeout=REACH_SECONDS)
    except (ConnectionError, ValueError, OSError) as error:
        raise NoCapacity(
            f"--ray: expected a running Ray cluster at {address}, got {_first_line(error)}; run the command on a node "
            "of the cluster, or give HOST:PORT of its head"
        ) from None
    except AuthenticationError as error:
        raise NoCapacity(f"--ray: {_first_line(error).partition('. ')[0]}; {_SET_TOKEN}") from None
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            raise NoCapacity(
                f"--ray: the Ray cluster at {found} refused the token of this process; {_SET_TOKEN}"
            ) from None
        raise NoCapacity(
            f"--ray: expected a running Ray cluster at {found}, got {error.details()}; correct the address, or start "
            "the cluster"
        ) from None
    return str(found)


def _run_last(call: Sequence["ray.ObjectRef[tuple[Callable[..., Any], tuple[Any, ...]]]"]) -> Any:
    """Call a function in a process that gets only the time of the CPUs that no other process wants.

    ``call`` has one reference, of the function and its arguments. It is in a list so that Ray does not read it, which
    imports much, before the process has its priority.
    """
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    function, arguments = ray.get(call[0])
    return function(*(ray.get(one) if isinstance(one, ray.ObjectRef) else one for one in arguments))


def _has_room(nodes: Mapping[str, Mapping[str, float]], claim: Mapping[str, float]) -> bool:
    """Whether one of the nodes has all resources of a claim."""
    return any(all(node.get(name, 0.0) >= amount for name, amount in claim.items()) for node in nodes.values())


def _describe(claim: Mapping[str, float]) -> str:
    names = {"memory": "GiB"}
    return " and ".join(
        f"{amount / (2**30 if name == 'memory' else 1):g} {names.get(name, name)}" for name, amount in claim.items()
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
