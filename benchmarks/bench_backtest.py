"""Back-tests: what several processes save, and how long the overlap of two spans must be.

    python -m benchmarks.bench_backtest [--meshes 3] [--services 60] [--json FILE]

First, ``tagae score`` scores four simulated recordings in one process and in two, in turn, and the verdicts must be the
same. The ratio of the times is printed; on a busy machine it says little.

Then spans: ``tagae score --overlap`` cuts a long series into spans that are scored in parallel. Each span first scores
some snapshots before its own, to learn the mesh, and drops their verdicts. Here, a span begins in the middle of
simulated meshes with faults and benign changes, with overlaps of different lengths. Each mesh gives one line of JSON
for each overlap, with the differences from the verdicts of one pass.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from lab.simulator.events.faults import KINDS
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from model.checkpoint import SHIPPED, Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.pipeline import Mesh, Options, advance
from serve_app.recordings.writer import RecordingWriter

FIRST = 760  # seed
CUT, LENGTH = 1920, 2400  # snapshots of 15 s: where the span begins, and where the mesh ends
SCORE = (sys.executable, "-c", "from serve_app.cli import main; main()", "score")
LAST = ("nice", "-n", "19")  # the lowest priority
RECORDINGS, RECORDED = 4, 480  # recordings that are scored in one process and in two, and their snapshots
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
    """Run ``tagae score`` and return its time, s."""
    began = time.perf_counter()
    command = [*LAST, *SCORE, *map(str, recordings), "-j", str(jobs), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def _record(folder: Path, spec: MeshSpec, length: int) -> None:
    with RecordingWriter(folder, 15.0, {"source": "benchmarks/bench_backtest.py"}) as writer:
        for snapshot in islice(record(spec), length):
            writer.write(snapshot)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshes", type=int, default=3)
    parser.add_argument("--services", type=int, default=60)
    parser.add_argument("--json", type=Path, help="file to write the lines to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for one in measure(args.services, args.meshes):
        lines.append(json.dumps(one))
        print(lines[-1], flush=True)
    if args.json:
        args.json.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(services: int, meshes: int) -> Iterator[dict[str, object]]:
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
