"""Workers of Ray are forked from one process, and start alone without it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.runtime import fork_server, forked_worker
from tests.page.serving import push_all
from tests.serve_app.running import eventually, kill_all, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux"),
    pytest.mark.timeout(600),
]
SERVER = "serve_app.runtime.fork_server"
AT_REST = [  # the process that deployed the application has ended
    "Collector",
    "DashboardAgent",
    "Ingress",
    "Ingress",
    "MeshSession",
    "MeshSession",
    "ProxyActor",
    "RuntimeEnvAgent",
    "ServeController",
    "fork_server",
    "gcs_server",
    "raylet",
]
WITHOUT_RAY = """
from serve_app.runtime import fork_server

fork_server.LIBRARIES = ()
fork_server._import_with_ray = lambda request: None
fork_server.default_worker = lambda: "worker.py"
fork_server._main()
"""
ACCEPTS = "00010000"  # flag of a socket in /proc/net/unix


def test_a_worker_is_requested_with_all_that_it_inherits(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{tmp_path}")
        listener.listen()
        listener.settimeout(PATIENCE_SECONDS)
        command = [sys.executable, forked_worker.__file__, "--worker-id=7"]
        environment = {**os.environ, forked_worker.ADDRESS: str(tmp_path), "EXAMPLE": "x" * 10_000}
        with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as worker:
            client, _ = listener.accept()
            with client:
                assert fork_server._is_ours(client)
                request = fork_server._receive(client)
                os.write(request.outputs[0], b"from the fork")
                request.close()
                client.sendall(b"1")
            assert worker.communicate()[0] == b"from the fork"
    assert worker.returncode == 0
    assert (request.arguments, request.environment["EXAMPLE"]) == (["--worker-id=7"], "x" * 10_000)
    assert Path(request.folder) == tmp_path


@pytest.mark.parametrize("address", ["", "not there"])
def test_a_worker_starts_alone_without_a_server(address: str) -> None:
    """Ray's own program says which arguments it needs."""
    environment = {**os.environ, forked_worker.ADDRESS: address}
    command = [sys.executable, forked_worker.__file__, "--worker-id=7"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS)
    assert "default_worker.py: error: the following arguments are required" in done.stderr


def test_a_forked_worker_that_never_reaches_ray_ends_with_the_service(tmp_path: Path) -> None:
    """The program of this worker asks Ray for nothing. Ray's own waits for half a minute if Ray has ended."""
    (tmp_path / "worker.py").write_text("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    address = str(tmp_path / "server")
    environment = {**os.environ, forked_worker.ADDRESS: address, fork_server.RAYLET: str(os.getpid())}
    environment["PYTHONPATH"] = str(fork_server.ROOT)
    serving, asking = [sys.executable, "-c", WITHOUT_RAY], [sys.executable, forked_worker.__file__]
    with subprocess.Popen(serving, env=environment, cwd=tmp_path, stdin=subprocess.PIPE) as server:
        assert eventually(lambda: accepts(address))
        with subprocess.Popen(asking, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            forked = psutil.Process(int(client.stdout.readline()))
            try:
                assert forked.ppid() == server.pid
                assert server.stdin is not None
                server.stdin.close()  # as the end of the service does
                assert eventually(lambda: not is_running(forked))
            finally:
                kill_all(forked)
    assert (server.returncode, client.returncode) == (0, 0)


def test_ids_of_forked_processes_differ_only_if_nothing_drew_one_before() -> None:
    code = (
        "import ray; from serve_app.runtime import fork_server\n"
        "with fork_server._fix_class_ids(): import ray.serve\n"
        "print(fork_server._draw_different_ids())\n"
        "ray.NodeID.from_random(); print(fork_server._draw_different_ids())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psutil.Process, str]]:
    with start_service(*settings_of(tmp_path_factory.mktemp("forked"))) as (keeper, url):
        [process] = keeper.children()
        yield process, url


def settings_of(folder: Path) -> list[str]:
    return ["--port", "0", "--set", f"store.path={folder}", "--set", f"serve.deadline_seconds={PATIENCE_SECONDS}"]


@pytest.mark.ray
def test_each_process_of_the_service_runs_once_and_is_forked(service: tuple[psutil.Process, str]) -> None:
    process, _ = service
    assert eventually(lambda: sorted(map(role, titles_below(process).values())) == AT_REST), titles_below(process)
    titles = titles_below(process)
    [server] = [pid for pid, title in titles.items() if role(title) == "fork_server"]
    forked = {pid for pid, title in titles.items() if title.startswith(("ray::Serve", "ray::ProxyActor"))}
    assert {psutil.Process(pid).ppid() for pid in forked} == {server}
    for pid in forked:
        memory = psutil.Process(pid).memory_full_info()
        assert memory.uss < memory.rss / 2, f"{titles[pid]} shares most of its memory"


@pytest.mark.ray
def test_the_process_that_started_the_service_needs_no_torch(service: tuple[psutil.Process, str]) -> None:
    process, _ = service
    files = {Path(one.path).name for one in process.memory_maps()}
    assert "_raylet.so" in files
    assert not [name for name in files if "torch" in name]


@pytest.mark.ray
def test_no_forked_process_outlives_a_service_that_is_killed(service: tuple[psutil.Process, str]) -> None:
    """The last test of this service, because it ends it."""
    process, url = service
    keeper = process.parent()
    assert keeper is not None
    assert httpx.get(f"{url}/readyz", timeout=PATIENCE_SECONDS).status_code == 200
    # Ray's agents end by themselves a minute later. Before they have a title, their programs are named after them.
    agents = {pid for pid, title in titles_below(process).items() if "agent" in title.lower()}
    below = process.children(recursive=True)
    ours = [one for one in below if one.pid not in agents]  # some may have ended: what deployed the application
    try:
        keeper.kill()  # nothing starts the service again then
        process.kill()
        assert eventually(lambda: not any(is_running(one) for one in ours))
    finally:
        for one in below:
            kill_all(one)


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_session_is_forked_again_and_starts_alone_once_the_server_is_killed(tmp_path: Path) -> None:
    snapshots = iter(record_simulation(MeshSpec(services=30, seed=3), 6))
    with start_service(*settings_of(tmp_path)) as (process, url):
        [server] = [pid for pid, title in titles_below(process).items() if role(title) == "fork_server"]
        for parents in ({server}, {server, *raylets(process)}):
            push_all(url, "forked", [next(snapshots)])
            before = sessions(process)
            victim = min(before)
            os.kill(victim, signal.SIGKILL)
            assert eventually(lambda: len(sessions(process) - {victim}) == len(before))  # noqa: B023
            sequence = push_all(url, "forked", [next(snapshots)])["sequence"]
            assert {psutil.Process(pid).ppid() for pid in sessions(process)} <= parents | {
                process.pid,
                process.children()[0].pid,
            }
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        assert sequence == 4, "no snapshot is lost or counted twice"


def accepts(address: str) -> bool:
    """Return whether a process accepts connections at this abstract address."""
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return any(one[-1] == f"@{address}" and one[3] == ACCEPTS for one in sockets)


def titles_below(process: psutil.Process) -> dict[int, str]:
    titles = {}
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if is_running(child) and (title := " ".join(child.cmdline()).strip()):  # a process that ends has none
                titles[child.pid] = title
    return titles


def role(title: str) -> str:
    """Return the last word of a title's program."""
    program = "fork_server" if SERVER in title else title.split()[0]
    return program.replace("/", ":").split(":")[-1]


def sessions(process: psutil.Process) -> set[int]:
    return {pid for pid, title in titles_below(process).items() if "MeshSession" in title}


def raylets(process: psutil.Process) -> list[int]:
    return [pid for pid, title in titles_below(process).items() if role(title) == "raylet"]


def is_running(process: psutil.Process) -> bool:
    """Return whether a process has not ended. It may end at any time, also while it is asked."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
