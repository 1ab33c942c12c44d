"""``tagae score --ray``: spans of series as low-priority tasks on several Ray nodes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.recordings.writer import RecordingWriter
from serve_app.runtime.batch import LOWEST_PRIORITY, NAME
from tests.live.programs import Program
from tests.live.ray_nodes import Nodes, run_nodes
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS

pytestmark = [pytest.mark.live, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]
LONG_SECONDS = 10 * PATIENCE_SECONDS  # tasks only get CPU time that nothing else on this machine wants
COMMAND = [sys.executable, "-c", "from serve_app.cli import main; main()", "score"]
LENGTHS = {"mon": 500, "tue": 560, "quiet": 40}  # several tasks each, but for the last


def simulate(seed: int, length: int) -> Simulator:
    return Simulator(MeshSpec(services=20, calls_per_service=3.0, seed=seed), snapshots=length)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Recordings of three meshes."""
    folder = tmp_path_factory.mktemp("recordings")
    for seed, (name, length) in enumerate(LENGTHS.items()):
        with RecordingWriter(folder / name, 15.0, {"source": "simulated"}) as writer:
            for snapshot in simulate(seed, length).snapshots():
                writer.write(snapshot)
    return {name: folder / name for name in LENGTHS}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster of a head and two nodes, which no test changes."""
    with run_nodes(tmp_path_factory.mktemp("ray") / "nodes", 2) as started:
        yield started


def score(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``tagae score`` to its end."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


def start(nodes: Nodes, log: Path, *arguments: object, **environment: str) -> Program:
    """Start ``tagae score --ray``."""
    command = [*COMMAND, "--ray", nodes.address, *map(str, arguments)]
    return Program("tagae score", command, log, {**nodes.environment, **environment})


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def busy_nodes(nodes: Nodes) -> list[Program]:
    """The nodes that run tasks."""
    found = nodes.processes(f"ray::{NAME}")
    return [node for node in nodes.all if found[node.pid]]


def priorities(nodes: Nodes, node: Program) -> set[int]:
    """The priorities of the processes of tasks on a node. A new process has Ray's until it gets its first task."""
    return {psutil.Process(pid).nice() for pid in nodes.processes(f"ray::{NAME}")[node.pid]}


def test_verdicts_are_the_same_as_on_one_machine(recordings: dict[str, Path], nodes: Nodes, tmp_path: Path) -> None:
    chosen = (recordings["mon"], recordings["tue"], "--warmup", recordings["quiet"], "--jobs", 4, "--overlap", 100)
    here = score(*chosen, "-o", tmp_path / "here")
    there = score(*chosen, "-o", tmp_path / "there", "--ray", nodes.address, **nodes.environment)
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert "scoring: 4 in " in there.stderr
    alone = score(recordings["quiet"])
    there = score(recordings["quiet"], "--ray", "auto", **nodes.environment, RAY_ADDRESS=nodes.address)  # as in a pod
    assert there.stdout == alone.stdout != ""


def test_a_prometheus_is_read_by_the_command(nodes: Nodes, tmp_path: Path) -> None:
    snapshots = list(simulate(1, LENGTHS["quiet"]).snapshots())
    first, last = (snapshots[number].observed_at.isoformat() for number in (0, -1))
    token = tmp_path / "token"
    token.write_text("secret")  # in a folder that the nodes need not have
    with standin.start_server(IstioMesh(find_snapshot(snapshots))) as server:
        settings = tmp_path / "tagae.toml"
        settings.write_text(
            f"""
            collector.deadline_seconds = {PATIENCE_SECONDS}
            [collector.meshes.blue]
            prometheus = "{standin.url_of(server)}"
            bearer_token_file = "{token}"
            """,
            encoding="utf-8",
        )
        period = ("--from", first, "--to", last, "--config", settings, "--mesh", "blue")
        here, there = score(*period), score(*period, "--ray", nodes.address, **nodes.environment)
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr
    assert there.stdout == here.stdout != ""


def test_tasks_have_the_lowest_priority_and_a_lost_node_changes_no_verdict(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    chosen = (recordings["mon"], recordings["tue"])
    here = score(*chosen, "--jobs", 2, "-o", tmp_path / "here")
    assert here.returncode == 0, here.stderr
    with run_nodes(tmp_path / "nodes", 2) as nodes:
        log = tmp_path / "log"
        program = start(nodes, log, *chosen, "-o", tmp_path / "there")
        await_that(lambda: len(busy_nodes(nodes)) == 2, "tasks on both nodes", LONG_SECONDS)
        assert nodes.head not in busy_nodes(nodes), "it has no CPU for tasks"
        lost = nodes.workers[0]
        await_that(lambda: priorities(nodes, lost) == {LOWEST_PRIORITY}, "their priority", LONG_SECONDS)
        assert program.running
        nodes.kill(lost)
        await_that(lambda: not program.running, "the command ends", LONG_SECONDS)
        assert "scoring: 2 in " in log.read_text()
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_ctrl_c_leaves_nothing_behind(recordings: dict[str, Path], nodes: Nodes, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    log = tmp_path / "log"
    chosen = (recordings["mon"], recordings["tue"], "-o", tmp_path / "verdicts")
    program = start(nodes, log, *chosen, TMPDIR=str(temporary))
    await_that(lambda: bool(busy_nodes(nodes)), "a task runs", LONG_SECONDS)
    program.send(signal.SIGINT)
    await_that(lambda: not program.running, "the command ends", LONG_SECONDS)
    await_that(lambda: not busy_nodes(nodes), "no task is left", PATIENCE_SECONDS)
    assert list(temporary.iterdir()) == []
    assert list((tmp_path / "verdicts").iterdir()) == []
    assert "Traceback" not in log.read_text()


def test_a_command_that_is_killed_leaves_no_task(recordings: dict[str, Path], nodes: Nodes, tmp_path: Path) -> None:
    program = start(nodes, tmp_path / "log", recordings["mon"], "-o", tmp_path / "verdicts")
    await_that(lambda: bool(busy_nodes(nodes)), "a task runs", LONG_SECONDS)
    program.kill()
    await_that(lambda: not busy_nodes(nodes), "no task is left", PATIENCE_SECONDS)


def test_tasks_wait_for_a_cpu_that_nothing_else_claims(
    recordings: dict[str, Path], nodes: Nodes, tmp_path: Path
) -> None:
    log, output = tmp_path / "log", tmp_path / "verdicts"
    with nodes.claim_cpus():
        program = start(nodes, log, recordings["quiet"], "-o", output)
        await_that(lambda: "waiting for 1 CPU and 1 GiB" in log.read_text(), "it says so", LONG_SECONDS)
        assert program.running
        assert not busy_nodes(nodes)
    await_that(lambda: not program.running, "the command ends", LONG_SECONDS)
    assert len(output.read_text().splitlines()) == LENGTHS["quiet"]


def test_a_custom_resource_chooses_the_nodes(recordings: dict[str, Path], tmp_path: Path) -> None:
    with run_nodes(tmp_path / "nodes", 1) as nodes:
        log, output = tmp_path / "log", tmp_path / "verdicts"
        program = start(nodes, log, recordings["mon"], "--ray-resource", "batch", "-o", output)
        chosen = nodes.add({"batch": 1})
        await_that(lambda: bool(busy_nodes(nodes)), "a task runs", LONG_SECONDS)
        assert busy_nodes(nodes) == [chosen]
        await_that(lambda: not program.running, "the command ends", LONG_SECONDS)
    assert len(output.read_text().splitlines()) == LENGTHS["mon"]


@pytest.mark.parametrize("path", [None, "wrong", "missing"])
def test_a_cluster_that_refuses_the_token_is_reported(
    path: str | None, recordings: dict[str, Path], nodes: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("0" * 64)
    own = {"RAY_AUTH_MODE": "token" if path else "disabled", "RAY_AUTH_TOKEN_PATH": str(tmp_path / (path or "none"))}
    result = score(recordings["quiet"], "--ray", nodes.address, **{**nodes.environment, **own})
    assert (result.returncode, result.stdout) == (1, "")
    assert "RAY_AUTH_TOKEN_PATH" in result.stderr
    assert "Traceback" not in result.stderr
