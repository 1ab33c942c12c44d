"""The jobs of the evaluation: detectors, recordings and warm-ups."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from lab.comparison.simulated import FOLDER, JUDGED, SEEDS, WARM_UP, runs
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings

OURS = "tagae"
LOUD, LOUD_SIZE = "tagae_loud", 300  # ours with a larger budget of alerts, on simulated meshes of one size
ALERTS = {LOUD: AlertSettings(false_pages_per_day=24 * 20)}
DETECTORS = (OURS, LOUD)
SHARED = Path("../shared/recordings")
SIMULATED = tuple(str(size) for size in SEEDS)
PARTS = ("shared", *SIMULATED)


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one process: a detector, a warm-up, and recordings that all start from the warmed-up state.

    Attributes:
        part: one of ``PARTS``.
        detector: one of ``DETECTORS``.
        warm_up: a recording of normal operation; None: start without state.
        judged_after: time at the start of each recording that is not judged.
    """

    part: str
    detector: str
    recordings: tuple[Path, ...]
    warm_up: Path | None = None
    judged_after: timedelta = timedelta(0)

    def snapshots(self) -> int:
        if self.part != "shared":
            return (WARM_UP + JUDGED) * len(self.recordings)
        paths = (*self.recordings, self.warm_up) if self.warm_up else self.recordings
        return sum(RecordingReader(path).meta.get("counts", {}).get("snapshots", 0) for path in paths)


def shared_jobs(root: Path = SHARED) -> list[Job]:
    """Return our detector's jobs for every recording below a folder.

    PetShop's issues follow normal traffic under the same load, or low traffic if there is no such recording. All other
    recordings start without state.
    """
    jobs = []
    for dataset in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        recordings = sorted(path.parent for path in dataset.glob("*/meta.json"))
        by_warm_up: dict[Path | None, list[Path]] = {}
        for path in recordings:
            by_warm_up.setdefault(_warm_up(path), []).append(path)
        jobs += [Job("shared", OURS, tuple(paths), warm_up) for warm_up, paths in by_warm_up.items()]
    return jobs


def simulated_jobs(size: int, folder: Path = FOLDER) -> list[Job]:
    """Return a job for each recording and detector in the simulated set of one size."""
    return [
        Job(str(size), name, (folder / run.name,), judged_after=WARM_UP * timedelta(seconds=15))
        for run in runs([size])
        for name in (DETECTORS if size == LOUD_SIZE else (OURS,))
    ]


def _warm_up(path: Path) -> Path | None:
    """Return the recording of normal traffic under the same load, or of low traffic; None if there is none."""
    if "-issues-" not in path.name:
        return None
    kind = path.name.split("-issues-")[0]
    folders = [path.parent / f"{name}-normal" for name in (kind, "low_traffic")]
    return next((folder for folder in folders if (folder / "meta.json").exists()), None)
