"""Back-tests: what several processes save, and how long the overlap of two spans must be.

    python -m benchmarks.bench_backtest [--meshes 3] [--services 60] [--cluster] [--json FILE]

First, ``tagae score`` scores four simulated recordings in one process and in two, in turn, and the verdicts must be the
same. The ratio of the times is printed; on a busy machine it says little.

Then spans: ``tagae score --overlap`` cuts a long series into spans that are scored in parallel. Each span first scores
some snapshots before its own, to learn the mesh, and drops their verdicts. Here, a span begins in the middle of
simulated meshes with faults and benign changes, with overlaps of different lengths. Each mesh gives one line of JSON
for each overlap, with the differences from the verdicts of one pass.

With ``--cluster``, only back-tests on a cluster are measured, in up to a quarter of an hour: two Ray nodes of this
machine that also run the service, with a Redis. One recording is scored in one process, with ``--jobs 2`` and with
``--ray``, in turn; the latter two cut it into the same two spans, and their verdicts must be the same. All three have
the lowest priority, so that other load of the machine slows them alike. Then a client pushes snapshots to the service
while nothing else runs, while two tasks of ``--ray`` run, and while ``--jobs 2`` runs beside it with the priority of
the service, in turn. On a busy machine only the ratios are meaningful. Needs ``redis-server`` or ``valkey-server``.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import psutil
import torch

from lab.simulator.events.faults import KINDS
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED, Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.api.client import Client
from serve_app.pipeline import Mesh, Options, advance
from serve_app.recordings.writer import RecordingWriter
from serve_app.runtime.batch import NAME
from tests.live.loaded_cluster import variables
from tests.live.ray_nodes import Nodes, run_nodes
from tests.live.redis import RedisProgram
from tests.serve_app.test_kills import await_that
from tests.timing import PATIENCE_SECONDS

FIRST = 760  # seed
CUT, LENGTH = 1920, 2400  # snapshots of 15 s: where the span begins, and where the mesh ends
SCORE = (sys.executable, "-c", "from serve_app.cli import main; main()", "score")
LAST = ("nice", "-n", "19")  # the lowest priority
LOADED_SECONDS = 5.0  # of a processor, after which a process that scores has loaded torch
RECORDINGS, RECORDED = 4, 480  # recordings that are scored in one process and in two, and their snapshots
ON_CLUSTER, ON_CLUSTER_OVERLAP = 480, 40  # snapshots of the recording that is scored on a cluster, and of its overlap
ROUNDS = 3
PUSHES, PUSH_SECONDS = 100, 0.05  # while a back-test runs or not: their number, and the pause between two
OVERLAPS = (120, 240, 480, 960, 1440)  # snapshots


@dataclass(frozen=True, slots=True)
class Difference:
    """Verdicts of a span against the verdicts of one pass.

    Attributes:
        seed: of the mesh.
        overlap: snapshots that the span scores before its own.
        snapshots: of the span itself.
        status: how many have another status.
        alerts: how many have other open alerts, by their first suspect.
        score_p50, score_p99, score_max: difference of the mesh score, decades.
        threshold_p99: difference of the threshold, decades.
        incidents: ids of incidents, without notices, of one pass; and how many are missing and additional.
    """

    seed: int
    overlap: int
    snapshots: int
    status: int
    alerts: int
    score_p50: float
    score_p99: float
    score_max: float
    threshold_p99: float
    incidents: tuple[int, int, int]


def record(spec: MeshSpec) -> list[MeshSnapshot]:
    """Simulate a mesh with faults of all kinds and benign changes."""
    faults, changes = plan_scenario(spec, KINDS, spec.seed, snapshots=LENGTH, duration=(16, 48), quiet=(40, 80))
    return list(Simulator(spec, faults, changes, LENGTH).snapshots())


def verdicts(checkpoint: Checkpoint, snapshots: Sequence[MeshSnapshot]) -> Iterator[Verdict]:
    """Yield the verdict of each snapshot of one pass."""
    mesh = Mesh()
    for snapshot in snapshots:
        verdict, mesh = advance(checkpoint, mesh, snapshot, Options())
        yield verdict


def compare(seed: int, overlap: int, whole: Sequence[Verdict], span: Sequence[Verdict]) -> Difference:
    """Compare the verdicts of the same snapshots."""
    scores = np.abs([a.mesh_score - b.mesh_score for a, b in zip(whole, span, strict=True)])
    thresholds = [
        abs(a.threshold - b.threshold)
        for a, b in zip(whole, span, strict=True)
        if a.threshold is not None and b.threshold is not None
    ]
    ids, found = ({one.id for verdict in these for one in verdict.alerts} for these in (whole, span))
    return Difference(
        seed,
        overlap,
        len(span),
        status=sum(a.status != b.status for a, b in zip(whole, span, strict=True)),
        alerts=sum(_first_suspects(a) != _first_suspects(b) for a, b in zip(whole, span, strict=True)),
        score_p50=round(float(np.median(scores)), 4),
        score_p99=round(float(np.quantile(scores, 0.99)), 4),
        score_max=round(float(scores.max()), 4),
        threshold_p99=round(float(np.quantile(thresholds, 0.99)), 4),
        incidents=(len(ids), len(ids - found), len(found - ids)),
    )


def _first_suspects(verdict: Verdict) -> list[str]:
    return sorted(one.suspects[0].service for one in verdict.alerts if one.suspects)


def time_jobs(services: int, rounds: int = 3) -> dict[str, object]:
    """Times of ``tagae score`` for the same recordings in one process and in two, s; the median round by ratio."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(FIRST, FIRST + RECORDINGS):
            _record(folder / str(seed), MeshSpec(services=services, seed=seed), RECORDED)
        recordings = sorted(folder.iterdir())
        times = []
        for _ in range(rounds):
            one, two = (_score(recordings, folder / f"jobs-{jobs}", jobs) for jobs in (1, 2))
            for path in recordings:
                files = (folder / f"jobs-{jobs}" / f"{path.name}.jsonl" for jobs in (1, 2))
                if len({file.read_bytes() for file in files}) != 1:
                    raise SystemExit(f"{path.name}: the verdicts of two jobs differ from the verdicts of one")
            times.append((two / one, one, two))
    ratio, one, two = sorted(times)[rounds // 2]
    return {
        "recordings": RECORDINGS,
        "snapshots": RECORDED,
        "services": services,
        "one_job": round(one, 2),
        "two_jobs": round(two, 2),
        "ratio": round(ratio, 3),
    }


def _score(recordings: Sequence[Path], output: Path, jobs: int) -> float:
    return _run(*map(str, recordings), "-j", str(jobs), "-o", str(output))


def _run(*arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> float:
    """Run ``tagae score`` and return its time, s."""
    began = time.perf_counter()
    subprocess.run([*LAST, *SCORE, *arguments], env={**os.environ, **environment}, check=True, capture_output=True)
    return time.perf_counter() - began


def measure_cluster(services: int) -> Iterator[dict[str, object]]:
    """Yield the snapshots per second of three ways to score, then the times of pushes beside back-tests, by round."""
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        recording, long = folder / "recording", folder / "long"
        _record(recording, MeshSpec(services=services, seed=FIRST), ON_CLUSTER)
        _record(long, MeshSpec(services=services, seed=FIRST + 1), LENGTH)
        redis = RedisProgram(folder / "redis")
        stack.callback(redis.end)
        nodes = stack.enter_context(run_nodes(folder / "nodes", 2, **variables(folder)))
        place = {"device": "cpu", "place": "session"}
        nodes.deploy({"store": {"kind": "redis", "url": redis.url}, "scorer": place}, {"MeshSession": 2})
        ray = ("--ray", nodes.address)
        for number in range(ROUNDS):
            yield {"round": number, "services": services, **_rates(recording, folder, ray, nodes.environment)}
        with Client(nodes.url, patience_seconds=PATIENCE_SECONDS) as client:
            snapshots = Simulator(MeshSpec(services=services, seed=FIRST), snapshots=10 * ROUNDS * PUSHES).snapshots()
            _push(client, snapshots)  # warm up
            two = (str(long), str(long), "-o", str(folder / "unused"))
            beside: dict[str, Callable[[], AbstractContextManager[object]]] = {
                "nothing": nullcontext,
                "ray": partial(_beside, nodes, *LAST, *SCORE, *two, *ray),
                "jobs": partial(_beside, nodes, *SCORE, *two, "-j", "2"),
            }
            for number in range(ROUNDS):
                times = {}
                for what, start in beside.items():
                    with start():
                        times[what] = _push(client, snapshots)
                yield {"round": number, "services": services, "beside": times}


def _record(folder: Path, spec: MeshSpec, length: int) -> None:
    with RecordingWriter(folder, 15.0, {"source": "benchmarks/bench_backtest.py"}) as writer:
        for snapshot in islice(record(spec), length):
            writer.write(snapshot)


def _rates(recording: Path, folder: Path, ray: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Snapshots per second of commands that score a recording, with their start."""
    spans = (str(recording), "-j", "2", "--overlap", str(ON_CLUSTER_OVERLAP))
    times = {
        "one_process": _run(str(recording), "-o", str(folder / "whole")),
        "two_jobs": _run(*spans, "-o", str(folder / "jobs")),
        "ray": _run(*spans, *ray, "-o", str(folder / "ray"), environment=environment),
    }
    if (folder / "ray").read_bytes() != (folder / "jobs").read_bytes():
        raise SystemExit("the verdicts on the cluster differ from the verdicts of two jobs")
    return {what: round(ON_CLUSTER / seconds, 1) for what, seconds in times.items()}


@contextmanager
def _beside(nodes: Nodes, *command: str) -> Iterator[None]:
    """Run a back-test of two series during the block, once both are being scored."""
    words = f"ray::{NAME}" if "--ray" in command else "spawn_main"  # processes that score
    with subprocess.Popen(command, env={**os.environ, **nodes.environment}, stderr=subprocess.DEVNULL) as process:
        try:
            await_that(lambda: _count(nodes, process.pid, words) >= 2, "both series are scored", 4 * PATIENCE_SECONDS)
            yield
            if process.poll() is not None:
                raise SystemExit("the back-test ended before the pushes; raise LENGTH")
        finally:
            process.send_signal(signal.SIGINT)


def _count(nodes: Nodes, command: int, words: str) -> int:
    """The number of processes with these words that have worked for a few seconds, and so have loaded torch."""
    below = [psutil.Process(pid).children(recursive=True) for pid in (command, *(node.pid for node in nodes.workers))]
    count = 0
    for process in chain.from_iterable(below):
        with suppress(psutil.NoSuchProcess):
            count += words in " ".join(process.cmdline()) and process.cpu_times().user > LOADED_SECONDS
    return count


def _push(client: Client, snapshots: Iterator[MeshSnapshot]) -> dict[str, float]:
    """Push snapshots with a pause after each, and return the times, ms."""
    times = []
    for snapshot in islice(snapshots, PUSHES):
        began = time.perf_counter()
        client.push("bench", snapshot)
        times.append(1e3 * (time.perf_counter() - began))
        time.sleep(PUSH_SECONDS)
    p50, p99 = np.quantile(times, (0.5, 0.99))
    return {"p50_ms": round(float(p50), 1), "p99_ms": round(float(p99), 1)}


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=3)
    parser.add_argument("--services", type=int, default=60)
    parser.add_argument("--cluster", action="store_true", help="measure back-tests on a cluster only")
    parser.add_argument("--json", type=Path, help="file to write the lines to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = measure_cluster(args.services) if args.cluster else measure_here(args.services, args.meshes)
    lines = []
    for one in found:
        lines.append(json.dumps(one))
        print(lines[-1], flush=True)
    if args.json:
        args.json.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_here(services: int, meshes: int) -> Iterator[dict[str, object]]:
    """Yield the times of one process and two, then the differences for each mesh and overlap."""
    checkpoint = load(SHIPPED)
    yield time_jobs(services)
    for seed in range(FIRST, FIRST + meshes):
        snapshots = record(MeshSpec(services=services, seed=seed))
        whole = list(islice(verdicts(checkpoint, snapshots), CUT, None))
        for overlap in OVERLAPS:
            span = list(islice(verdicts(checkpoint, snapshots[CUT - overlap :]), overlap, None))
            yield {"services": services, **asdict(compare(seed, overlap, whole, span))}


if __name__ == "__main__":
    main()
