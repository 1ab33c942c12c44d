"""Our detectors' verdict lines on recordings, cached until code, weights or the recording change."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from lab.comparison.digest import ROOT, detector_digest
from lab.comparison.plan import ALERTS, Job
from model.checkpoint import load
from serve_app.api.codec import verdict_line
from serve_app.pipeline import Mesh, advance, options
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings, Settings

EVERY = 16  # snapshots between two reports of progress
COMPILED = "kernels/csrc"
ALL_CODE = (
    "serve_app/recordings/format.py",
    "serve_app/recordings/reader.py",
    "serve_app/api/codec/verdicts.py",
    "lab/comparison/lines.py",
)


def verdict_path(folder: Path, name: str, recording: Path) -> Path:
    return folder / name / recording.parent.name / f"{recording.name}.jsonl"


def missing_work(job: Job, folder: Path) -> Job | None:
    """Return the part of a job whose lines are missing or out of date; None if there is none."""
    stale = tuple(
        path
        for path in job.recordings
        if _read(_key_file(verdict_path(folder, job.detector, path))) != cache_key(job, path)
    )
    return replace(job, recordings=stale) if stale else None


def score(job: Job, folder: Path, tick: Callable[[int], Any] = lambda snapshots: None) -> None:
    """Write a job's lines. ``tick`` gets the number of snapshots since its last call, every ``EVERY`` snapshots."""
    torch.set_num_threads(1)
    checkpoint = load()
    mesh_options = options(Settings(alert=ALERTS.get(job.detector, AlertSettings())))
    warm = Mesh()
    for number, snapshot in enumerate(RecordingReader(job.warm_up).snapshots() if job.warm_up else (), 1):
        _, warm = advance(checkpoint, warm, snapshot, mesh_options, counted=False)
        if number % EVERY == 0:
            tick(EVERY)
    for recording in job.recordings:
        path, mesh = verdict_path(folder, job.detector, recording), warm
        path.parent.mkdir(parents=True, exist_ok=True)
        _key_file(path).unlink(missing_ok=True)
        with path.open("w", encoding="utf-8") as lines:
            for number, snapshot in enumerate(RecordingReader(recording).snapshots(), 1):
                verdict, mesh = advance(checkpoint, mesh, snapshot, mesh_options)
                lines.write(verdict_line(verdict) + "\n")
                if number % EVERY == 0:
                    tick(EVERY)
        _key_file(path).write_text(cache_key(job, recording))


def cache_key(job: Job, recording: Path) -> str:
    parts = [code_digest(job.detector), _identity(recording), _identity(job.warm_up) if job.warm_up else "cold"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code_digest(name: str) -> str:
    digest = hashlib.sha256(f"{name}{ALERTS.get(name, '')}{detector_digest()}".encode())
    for path in sorted({*(ROOT / path for path in ALL_CODE), *compiled_code()}):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compiled_code() -> list[Path]:
    return [path for pattern in ("*.cpp", "*.h", "*.cu") for path in (ROOT / COMPILED).rglob(pattern)]


def _identity(recording: Path) -> str:
    """Describe a recording by its metadata and the sizes of its files."""
    sizes = {path.name: path.stat().st_size for path in sorted(recording.glob("*.parquet"))}
    return f"{(recording / 'meta.json').read_text()}{sizes}"


def _key_file(lines: Path) -> Path:
    return lines.with_suffix(".key")


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
