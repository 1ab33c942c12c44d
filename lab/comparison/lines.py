"""Verdict lines of detectors on recordings, cached until a detector's code or weights or a recording changes."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from lab.comparison.digest import ROOT, detector_digest
from lab.comparison.plan import ALERTS, LOUD, OURS, Job
from lab.contenders import Contender, contender
from model.checkpoint import Checkpoint, load
from model.snapshot import MeshSnapshot
from model.verdict import Verdict
from serve_app.api.codec import verdict_line
from serve_app.pipeline import Mesh, Options, advance, options
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings, Settings

EVERY = 16  # snapshots between two reports of progress
COMPILED, CONTENDERS = "kernels/csrc", "lab/contenders/*.py"
THEIR_CODE = ("model/snapshot.py", "model/verdict.py")
ALL_CODE = (
    "serve_app/recordings/format.py",
    "serve_app/recordings/reader.py",
    "serve_app/api/codec/verdicts.py",
    "lab/comparison/lines.py",
)

Tick = Callable[[int], Any]


class Detector(Protocol):
    """Interface of a detector in a job."""

    def start(self, interval_seconds: float, first: int) -> Any: ...

    def warm(self, state: Any, snapshot: MeshSnapshot) -> Any: ...

    def advance(self, state: Any, snapshot: MeshSnapshot) -> tuple[Verdict, Any]: ...


@dataclass(frozen=True, slots=True)
class Tagae:
    """The shipped detector, or the same with other options."""

    checkpoint: Checkpoint = field(default_factory=load)
    options: Options = field(default_factory=lambda: options(Settings()))

    def start(self, interval_seconds: float, first: int) -> Mesh:
        """Return the state before the first snapshot. The pipeline has its own warm-up and ignores the arguments."""
        return Mesh()

    def warm(self, state: Mesh, snapshot: MeshSnapshot) -> Mesh:
        """Update baselines only, like `tagae score --warmup`."""
        return advance(self.checkpoint, state, snapshot, self.options, counted=False)[1]

    def advance(self, state: Mesh, snapshot: MeshSnapshot) -> tuple[Verdict, Mesh]:
        return advance(self.checkpoint, state, snapshot, self.options)


@dataclass(frozen=True, slots=True)
class ContenderDetector:
    """A contender. It treats the warm-up like other snapshots."""

    module: Contender

    def start(self, interval_seconds: float, first: int) -> Any:
        """Return the state before the first snapshot; ``first`` is the number of the first snapshot to judge."""
        return self.module.start(interval_seconds, first)

    def warm(self, state: Any, snapshot: MeshSnapshot) -> Any:
        return self.module.advance(state, snapshot)[1]

    def advance(self, state: Any, snapshot: MeshSnapshot) -> tuple[Verdict, Any]:
        return self.module.advance(state, snapshot)


def detector(name: str) -> Detector:
    if name in (OURS, LOUD):
        return Tagae(options=options(Settings(alert=ALERTS.get(name, AlertSettings()))))
    return ContenderDetector(contender(name))


def verdict_path(folder: Path, name: str, recording: Path) -> Path:
    return folder / name / recording.parent.name / f"{recording.name}.jsonl"


def missing_work(job: Job, folder: Path) -> Job | None:
    """Return the part of a job whose lines are missing or out of date, or None."""
    stale = {
        (name, path)
        for name in job.detectors
        for path in job.recordings
        if _read(_key_file(verdict_path(folder, name, path))) != cache_key(name, path, job)
    }
    if not stale:
        return None
    names = tuple(name for name in job.detectors if any(name == one for one, _ in stale))
    paths = tuple(path for path in job.recordings if any(path == one for _, one in stale))
    return Job(job.part, names, paths, job.warm_up, job.first, job.judged_after)


def score(job: Job, folder: Path, tick: Tick = lambda snapshots: None) -> None:
    """Write the lines of a job.

    Args:
        folder: folder of the lines.
        tick: called every few snapshots with the number of snapshots scored since the last call.
    """
    torch.set_num_threads(1)
    detectors = {name: detector(name) for name in job.detectors}
    warm_ups = list(RecordingReader(job.warm_up).snapshots()) if job.warm_up else []
    interval = RecordingReader(job.recordings[0]).interval_seconds
    cold = {name: one.start(interval, len(warm_ups) + job.first) for name, one in detectors.items()}
    warm = {name: _warm_up(one, cold[name], warm_ups, tick) for name, one in detectors.items()}
    for recording in job.recordings:
        _write(detectors, warm, recording, folder, tick)
        for name in detectors:
            _key_file(verdict_path(folder, name, recording)).write_text(cache_key(name, recording, job))


def cache_key(name: str, recording: Path, job: Job) -> str:
    parts = [
        code_digest(name),
        _identity(recording),
        f"{job.first}",
        _identity(job.warm_up) if job.warm_up else "cold",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code_digest(name: str) -> str:
    is_ours = name in (OURS, LOUD)
    files = [ROOT / path for path in ALL_CODE]
    files += _compiled() if is_ours else [ROOT / path for path in THEIR_CODE] + [*ROOT.glob(CONTENDERS)]
    digest = hashlib.sha256(f"{name}{ALERTS.get(name, '')}{detector_digest() if is_ours else ''}".encode())
    for path in sorted(set(files)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _warm_up(one: Detector, state: Any, snapshots: Iterable[MeshSnapshot], tick: Tick) -> Any:
    for number, snapshot in enumerate(snapshots, 1):
        state = one.warm(state, snapshot)
        if number % EVERY == 0:
            tick(EVERY)
    return state


def _write(detectors: dict[str, Detector], warm: dict[str, Any], recording: Path, folder: Path, tick: Tick) -> None:
    states, paths = dict(warm), {name: verdict_path(folder, name, recording) for name in detectors}
    with ExitStack() as stack:
        files = {}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _key_file(path).unlink(missing_ok=True)
            files[name] = stack.enter_context(path.open("w", encoding="utf-8"))
        for number, snapshot in enumerate(RecordingReader(recording).snapshots(), 1):
            for name, one in detectors.items():
                verdict, states[name] = one.advance(states[name], snapshot)
                files[name].write(verdict_line(verdict) + "\n")
            if number % EVERY == 0:
                tick(EVERY * len(detectors))


def _compiled() -> list[Path]:
    return [one for pattern in ("*.cpp", "*.h", "*.cu") for one in (ROOT / COMPILED).rglob(pattern)]


def _identity(recording: Path) -> str:
    """Describe a recording by its metadata and the sizes of its files."""
    sizes = {path.name: path.stat().st_size for path in sorted(recording.glob("*.parquet"))}
    return f"{(recording / 'meta.json').read_text()}{sizes}"


def _key_file(lines: Path) -> Path:
    return lines.with_suffix(".key")


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
