"""Every listening socket is on loopback or needs a credential, and Ray runs no code without its token."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

from tests.serve_app.running import TAGAE, start_process
from tests.timing import TIME_FACTOR

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

LOOPBACK = re.compile(r"127\.|::1$|::ffff:127\.")
SERVE_RUN = [sys.executable, "-m", "ray.serve.scripts", "run", "serve_app.app:build"]
AGENT_PORT = 52365  # port of Ray's dashboard agent, which accepts jobs
# Ports with another protocol never answer, and Ray's client tries again for minutes. No assertion needs their end.
SILENT_SECONDS = 10
ATTACK = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
ray.get(ray.remote(lambda: open(sys.argv[2], "w").write("ran")).remote(), timeout=20)
"""


def list_listeners(process: psutil.Process) -> dict[tuple[str, int], str]:
    """Return the process name of each address and port on which a process or its descendants listen, TCP and UDP."""
    found = {}
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile, as helpers of Ray do
            name = one.name()
            for socket in one.net_connections(kind="inet"):
                if socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and not socket.raddr:
                    found[socket.laddr.ip, socket.laddr.port] = name
    return found


def list_replica_ports(process: psutil.Process) -> list[int]:
    """Return the ports on which the replicas among the descendants of a process listen."""
    ports = []
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ServeReplica" in one.name() + " ".join(one.cmdline()):
                ports += [s.laddr.port for s in one.net_connections() if s.status == psutil.CONN_LISTEN]
    return ports


def list_priorities(process: psutil.Process) -> set[int]:
    """Return the priorities at which the descendants of a process run (see nice(2))."""
    priorities = set()
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            priorities.add(one.nice())
    return priorities


def assert_closed(process: psutil.Process) -> set[int]:
    """Check that every socket is on loopback, and return the ports."""
    sockets = list_listeners(process)
    assert sockets
    assert {where: name for where, name in sockets.items() if not LOOPBACK.match(where[0])} == {}
    return {port for _, port in sockets}


def assert_ray_refuses(process: psutil.Process, tmp_path: Path) -> None:
    """Try to run tasks, jobs and calls of Serve's replicas, without a token and with a wrong one."""
    ports = assert_closed(process)
    proof = tmp_path / "ran"
    [gcs] = [one for one in process.children(recursive=True) if one.name() == "gcs_server"]
    gcs_ports = {socket.laddr.port for socket in gcs.net_connections() if socket.status == psutil.CONN_LISTEN}
    without, wrong_token = {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong" * 8}
    attackers = [
        subprocess.Popen(
            [sys.executable, "-c", ATTACK, f"127.0.0.1:{port}", str(proof)],
            env=clean_environment() | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for environment in (without, wrong_token)
        for port in gcs_ports
    ]
    job = {"entrypoint": f"touch {proof}"}

    def post(port: int, path: str, headers: dict[str, str]) -> int:
        try:
            url = f"http://127.0.0.1:{port}{path}"
            patience = 20 * TIME_FACTOR if port == AGENT_PORT else SILENT_SECONDS
            return httpx.post(url, json=job, headers=headers, timeout=patience).status_code
        except httpx.HTTPError:
            return 0  # the port uses another protocol

    wrong = {"Authorization": "Bearer " + "wrong" * 8}
    asked = [(port, path, h) for port in ports for path in ("/api/job_agent/jobs/", "/api/jobs/") for h in ({}, wrong)]
    with ThreadPoolExecutor(len(asked)) as pool:
        statuses = list(pool.map(lambda one: post(*one), asked))
    assert [one for one, status in zip(asked, statuses, strict=True) if 0 < status < 400] == []
    if AGENT_PORT in ports:  # otherwise another Ray on this machine has the port, and this one runs without it
        assert {401, 403} <= set(statuses)
    until = time.monotonic() + SILENT_SECONDS
    for attacker in attackers:
        with attacker:
            try:
                assert attacker.wait(max(0.0, until - time.monotonic())) != 0
            except subprocess.TimeoutExpired:
                attacker.kill()  # below, the test checks that no code ran
    assert not proof.exists()


def assert_replicas_refuse(process: psutil.Process, tmp_path: Path) -> None:
    """A replica's port for other replicas unpickles its input. It must refuse a caller before that."""
    proof = tmp_path / "unpickled"
    payload = b"cposix\nsystem\n(S'touch " + str(proof).encode() + b"'\ntR."
    message = b"\x0a" + _varint(len(payload)) + payload  # field 1, bytes
    refused = 0
    for port in list_replica_ports(process):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
            with pytest.raises(grpc.RpcError) as error:
                call(message, timeout=80 * TIME_FACTOR)
            assert error.value.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
            refused += error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert refused
    assert not proof.exists()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def clean_environment() -> dict[str, str]:
    """Return the environment without settings that another Ray in this process has left."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "TAGAE_"))}


@contextmanager
def run_command(command: Sequence[str], pattern: str) -> Iterator[psutil.Process]:
    """Run a command until this output, with a state folder of its own."""
    with tempfile.TemporaryDirectory() as state:
        environment = clean_environment() | {"XDG_STATE_HOME": state}
        with start_process(command, pattern, environment) as (process, _):
            yield process


@pytest.mark.slow
def test_tagae_serve_is_closed_and_only_its_owner_can_read_the_token(tmp_path: Path) -> None:
    with run_command([*TAGAE, "serve", "--port", "0"], r"Page: http") as process:
        assert_ray_refuses(process, tmp_path)
        assert_replicas_refuse(process, tmp_path)
        [raylet] = [one for one in process.children(recursive=True) if one.name() == "raylet"]
        token = Path(raylet.environ()["RAY_AUTH_TOKEN_PATH"])
        assert token.stat().st_mode & 0o777 == 0o600
        assert token.parent.stat().st_mode & 0o777 == 0o700
        assert len(token.read_text()) >= 32
        assert list_priorities(process) == {process.nice()}
        process.send_signal(signal.SIGTERM)
        assert process.wait(240 * TIME_FACTOR) == 0
        assert not token.exists()


@pytest.mark.slow
def test_serve_run_is_closed(tmp_path: Path) -> None:
    with run_command([*SERVE_RUN, "serve.port=0"], r"Deployed app 'default' successfully|is ready at") as process:
        assert_ray_refuses(process, tmp_path)
        assert_replicas_refuse(process, tmp_path)


@pytest.mark.slow
def test_the_demo_is_closed(tmp_path: Path) -> None:
    with run_command([*TAGAE, "demo"], r"TAGAE is ready at") as process:
        assert_ray_refuses(process, tmp_path)
