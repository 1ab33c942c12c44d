"""The simulated evaluation set, neither trivial nor hopeless for fair static rules.

Each size has several meshes with high churn and all kinds of faults. Training uses neither their seeds nor their graph
families. Two judged hours follow an hour of warm-up. Other meshes have no faults, but silent telemetry at times: every
alert on them is false. The same seed gives the same recording, so recordings are reused until the simulator changes.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lab import simulator
from lab.simulator.events.faults import KINDS, Level
from lab.simulator.labels import Comparison, compare_runs, incidents
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.scenario import plan_scenario
from lab.simulator.simulator import Simulator
from lab.simulator.telemetry.silence import plan_silences
from lab.training.meshes import FIRST_SEED
from serve_app.recordings.format import LabelledIncident
from serve_app.recordings.writer import RecordingWriter

FOLDER = Path("out/evaluate/recordings")
SEEDS = {300: (600, 601, 602, 603, 604, 605), 3000: (610, 611)}
SILENT_SEEDS = {300: (620, 621, 622), 3000: (630,)}  # of meshes with silences and without faults
SILENCES_PER_HOUR = 12.0
WARM_UP, JUDGED = 240, 480  # snapshots of 15 s
HIGH_CHURN_PER_SERVICE_HOUR = 0.2
LEVELS: tuple[Level, ...] = ("minor", "minor", "major", "critical")
MIN_RATE = 1.0  # 1/s; minimum traffic of a root cause, so that faults affect quiet services too
LIVELY: dict[str, Any] = {
    "hiccups_per_hour": 0.1,
    "crowds_per_day": 12.0,
    "batches": 0.03,
    "cold_strength": 3.0,
    "cold_seconds": 45.0,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One mesh: with faults, or without faults and with silences."""

    services: int
    seed: int
    silent: bool = False

    @property
    def name(self) -> str:
        return f"{self.services}-{self.seed}-{'silence' if self.silent else 'churn'}"


def runs(sizes: Sequence[int]) -> list[Run]:
    """Return all runs of these sizes, the largest first: with faults, then with silences."""
    plan = [Run(n, seed) for n in sorted(sizes, reverse=True) for seed in SEEDS[n]]
    plan += [Run(n, seed, silent=True) for n in sorted(sizes, reverse=True) for seed in SILENT_SEEDS[n]]
    assert all(run.seed < FIRST_SEED for run in plan), "training uses these seeds"
    return plan


def record(run: Run, folder: Path, tick: Callable[[], Any] = lambda: None) -> Path:
    """Generate a run's recording if it is missing or out of date, and return its folder; ``tick`` is called for each
    snapshot."""
    path, meta = folder / run.name, _meta(run)
    if _is_there(path, meta):
        return path
    spec = replace(MeshSpec(services=run.services, seed=run.seed), **LIVELY)
    if run.silent:
        spec = replace(spec, silences_per_hour=SILENCES_PER_HOUR)
    faults, changes = plan_scenario(
        spec,
        () if run.silent else KINDS,
        run.seed,
        snapshots=WARM_UP + JUDGED,
        first=WARM_UP,
        duration=(16, 32),
        quiet=(16, 32),
        levels=LEVELS,
        minimum_rate=MIN_RATE,
        churn_per_hour=HIGH_CHURN_PER_SERVICE_HOUR * spec.services,
    )
    simulator = Simulator(spec, faults, changes, WARM_UP + JUDGED)
    comparison = Comparison(spec, simulator.mesh, faults)
    source = simulator.snapshots()
    if faults:
        reference = Simulator(spec, (), changes, WARM_UP + JUDGED)
        source = compare_runs(source, reference.snapshots(), comparison)
    silences = plan_silences(spec, simulator.node_ids, WARM_UP + JUDGED)
    (path / "meta.json").unlink(missing_ok=True)
    content = {**meta, "silences": [silence.to_json(spec) for silence in silences]}
    with RecordingWriter(path, spec.interval_seconds, content) as writer:
        for snapshot in source:
            writer.write(snapshot)
            tick()
        for row in incidents(faults, spec, simulator.mesh, comparison.effects()):
            columns = {name: row.pop(name) for name in LabelledIncident.__dataclass_fields__ if name in row}
            writer.add_incident(LabelledIncident(**columns, details=row))
    return path


def _meta(run: Run) -> dict[str, Any]:
    """Return everything that determines the recording, including a digest of the simulator's code."""
    excluded = ("SEEDS", "SILENT_SEEDS", "KINDS", "FOLDER")
    settings = {name: value for name, value in globals().items() if name.isupper() and name not in excluded}
    return {
        "source": "lab/comparison/simulated.py",
        "warm_up": WARM_UP,
        **asdict(run),
        "made": json.loads(json.dumps(settings)),
        "simulator": _code(),
    }


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(simulator.__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _is_there(path: Path, meta: dict[str, Any]) -> bool:
    try:
        recorded = json.loads((path / "meta.json").read_text())
    except FileNotFoundError:
        return False
    return bool(recorded.items() >= meta.items())
