"""Forks Ray's processes from one process that has imported what all of them need.

A Ray worker that starts by itself imports Serve, torch and our packages: up to 3 s of CPU time and 250 MiB. A forked
one shares them with this process until it changes them. Ray starts :mod:`serve_app.runtime.forked_worker` as its
worker, which asks this process for a fork, or becomes a worker itself if there is no answer.

Processes must not share:

* Threads. The imports leave none, except one of pyarrow's allocator, which restarts it after a fork.
* The environment that Ray's C++ code reads when Python imports it. The first request contains it, so libraries without
  Ray are imported before, and the others then. All requests come from one raylet.
* The state of Ray's id generator. Each actor class draws an id during its import; :func:`_fix_class_ids` replaces
  these. :func:`_draw_different_ids` checks the result.
* A GPU. Nothing here may use CUDA.
"""

import gc
import importlib
import json
import os
import runpy
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from serve_app.runtime import forked_worker
from serve_app.runtime.forked_worker import ADDRESS, default_worker

LIBRARIES = (  # none of them imports Ray
    "aiohttp",
    "fastapi",
    "grpc.aio",
    "opentelemetry.sdk.metrics",
    "pyarrow",
    "serve_app.mesh_steps",
    "serve_app.models.served",
    "torch",
    "uvicorn",
)
WITH_RAY = (
    "ray.serve",
    "serve_app.deployments.collector",
    "serve_app.deployments.gate",
    "serve_app.deployments.http.ingress",
    "serve_app.deployments.notifier",
    "serve_app.deployments.scoring.meta",
    "serve_app.deployments.scoring.scorer",
    "serve_app.deployments.session.mesh_session",
)
ROOT = Path(__file__).parents[2]  # folder with our packages
MAX_WAITING = 64  # requests, also during the imports
RAYLET, JOB = "RAY_RAYLET_PID", "RAY_JOB_ID"
NO_JOB = "ffffffff"  # a worker that Ray can give to any job
MAX_BYTES = 2**20  # in a request: an environment and a command line
CREDENTIALS = struct.Struct("3i")  # process, user and group ids
# For processes that score. glibc returns large blocks to the kernel after each op, and allocates them again for the
# next one (docs/troubleshooting.md).
WORKER_ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
    # By default, each thread has its own heap, and no thread can use what another one frees: a session with a mesh of
    # 10,000 services held 1,409 instead of 1,000 MiB.
    "MALLOC_ARENA_MAX": "1",
}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # as in Ray's workers; numpy must not start threads before a fork
STDIN = 0
OUTPUTS = 2  # stdout and stderr


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A worker to fork, as :mod:`serve_app.runtime.forked_worker` describes it."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    outputs: list[int]

    def close(self) -> None:
        for output in self.outputs:
            os.close(output)


_running: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start a fork server unless one runs. It ends with this process.

    Ray's processes inherit its address from the environment of this one.
    """
    if _running or sys.platform != "linux":  # on other systems, libraries may not be used after a fork
        return
    os.environ[ADDRESS] = f"tagae-{secrets.token_hex(16)}"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    _running.append(
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**ONE_THREAD, **WORKER_ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,  # closed when this process ends in any way
            start_new_session=True,  # only the service gets Ctrl-C, and ends its processes in order
        )
    )


def stop() -> None:
    """End the fork server. Forked processes continue."""
    os.environ.pop(ADDRESS, None)
    while _running:
        with _running.pop() as process:
            process.kill()


def worker_program() -> str | None:
    """The program that Ray should start for a worker; None: Ray's own."""
    return forked_worker.__file__ if ADDRESS in os.environ else None


def serve(address: str) -> WorkerRequest:
    """Fork a process for each request.

    Returns:
        In each forked process: the request.

    Raises:
        SystemExit: this process's parent has ended, and all forked processes with it; or Ray was started again.
        RuntimeError: forked processes would draw the same ids.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{address}")
        listener.listen(MAX_WAITING)
        for module in LIBRARIES:
            importlib.import_module(module)
        raylet = ""
        while True:
            with _accept(listener) as client:
                if not _is_ours(client):
                    continue
                request = _receive(client)
                if not raylet:
                    raylet = request.environment[RAYLET]
                    _import_with_ray(request)
                if request.environment[RAYLET] != raylet:
                    sys.exit()  # its workers start alone
                if not (child := os.fork()):
                    return request
                request.close()
                with suppress(OSError):  # the client is gone
                    client.sendall(str(child).encode())


def become_worker(request: WorkerRequest) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgrp()  # Ray kills an ended worker's whole process group
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate([nothing, *request.outputs]):
        os.dup2(source, target)
        os.close(source)
    _set_environment(request)
    os.chdir(request.folder)
    program = default_worker()
    sys.argv = [program, *request.arguments]
    runpy.run_path(program, run_name="__main__")
    sys.exit()


def _accept(listener: socket.socket) -> socket.socket:
    ready, _, _ = select.select([listener.fileno(), STDIN], [], [])
    if listener.fileno() not in ready:  # nothing is written there, so it was closed
        _kill_forked()  # after the last answer, since a client without an answer becomes a worker itself
        sys.exit()
    return listener.accept()[0]


def _kill_forked() -> None:
    """Kill the forked processes. The service and Ray have ended.

    Ray's workers end without their raylet, but only once they have reached it: until then they would wait half a minute
    for it. A signal when their parent ends (PR_SET_PDEATHSIG) would be wrong: they outlive this process if it is killed
    while the service runs.
    """
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _is_ours(client: socket.socket) -> bool:
    """Whether the client is a process of the same user. An answered client can run code as this user."""
    _, user, _ = CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return bool(user == os.getuid())


def _receive(client: socket.socket) -> WorkerRequest:
    """Read a request, which ends with its half of the connection."""
    message, outputs, _, _ = socket.recv_fds(client, MAX_BYTES, OUTPUTS)
    while rest_of_message := client.recv(MAX_BYTES):
        message += rest_of_message
    return WorkerRequest(**json.loads(message), outputs=outputs)


def _import_with_ray(request: WorkerRequest) -> None:
    """Import the libraries that import Ray, in its workers' environment."""
    _set_environment(request)
    with _fix_class_ids():
        for module in WITH_RAY:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise, each child's next collection would write to all these pages, and copy them
    if not _draw_different_ids():
        raise RuntimeError("expected different ids in forked processes, got equal ones; correct _fix_class_ids")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leave no zombies


def _set_environment(request: WorkerRequest) -> None:
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ[JOB] = NO_JOB


@contextmanager
def _fix_class_ids() -> Iterator[None]:
    """Draw the ids of actor classes from the system instead of Ray's generator, whose state forks share.

    Ray Serve has such classes, so its import draws ids. Without this, forked processes would continue with the same
    ids, or each would import Ray Serve again, which takes 30 MiB.
    """
    from ray import actor

    ids = actor.ActorClassID

    class FromSystem:
        @staticmethod
        def from_random() -> object:
            return ids(os.urandom(ids.size()))

    actor.ActorClassID = FromSystem
    try:
        yield
    finally:
        actor.ActorClassID = ids


def _draw_different_ids() -> bool:
    """Whether two forked processes draw different Ray ids."""
    from ray import NodeID

    ids = set()
    for _ in range(2):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.write(writing, NodeID.from_random().binary())
            os._exit(0)
        os.close(writing)
        ids.add(os.read(reading, MAX_BYTES))
        os.close(reading)
        os.waitpid(child, 0)
    return len(ids) == 2


def _main() -> None:
    try:
        request = serve(os.environ[ADDRESS])
    except Exception as error:
        sys.exit(f"workers share no memory, and take longer to start: {error!r}")
    become_worker(request)


if __name__ == "__main__":
    _main()
