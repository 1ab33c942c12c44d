"""The jobs of the evaluation: detectors, recordings and warm-ups."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from lab.comparison.simulated import FOLDER, JUDGED, SEEDS, WARM_UP, runs, silent_runs
from lab.contenders import NAMES
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import AlertSettings, ModelSettings

OURS = "tagae"
LOUD, LOUD_SIZE = "tagae_loud", 300  # ours with a larger budget of alerts, on simulated meshes of one size
ALERTS = {LOUD: AlertSettings(false_pages_per_day=24 * 20)}
DETECTORS = (OURS, LOUD, *NAMES)
SHARED = Path("../shared/recordings")
SIMULATED = tuple(str(size) for size in SEEDS)
PARTS = ("shared", *SIMULATED)
COLD = ModelSettings().warm_up_snapshots  # first snapshot to judge without a warm-up recording


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one process: some detectors, a warm-up, and recordings that all start from the warmed-up state.

    Attributes:
        part: one of ``PARTS``.
        detectors: names of the detectors.
        recordings: folders of the recordings.
        warm_up: a recording of normal operation, or None to start without state.
        first: number of the first snapshot that contenders judge.
        judged_after: time at the start of a recording that is not judged.
    """

    part: str
    detectors: tuple[str, ...]
    recordings: tuple[Path, ...]
    warm_up: Path | None = None
    first: int = COLD
    judged_after: timedelta = timedelta(0)

    def snapshots(self) -> int:
        if self.part != "shared":
            each = (WARM_UP + JUDGED) * len(self.recordings)
        else:
            paths = (*self.recordings, self.warm_up) if self.warm_up else self.recordings
            each = sum(RecordingReader(path).meta.get("counts", {}).get("snapshots", 0) for path in paths)
        return each * len(self.detectors)


def shared_jobs(detectors: tuple[str, ...], root: Path = SHARED) -> list[Job]:
    """Return jobs for every recording below a folder.

    PetShop's issues follow its normal traffic, or its low traffic if the load has no recording of normal traffic. All
    other recordings start without state.
    """
    jobs = []
    for dataset in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else ():
        recordings = sorted(path.parent for path in dataset.glob("*/meta.json"))
        warmed: dict[Path | None, list[Path]] = {}
        for path in recordings:
            warmed.setdefault(_warm_up(path), []).append(path)
        for warm_up, paths in warmed.items():
            first = 1 if warm_up else COLD
            jobs += [Job("shared", (name,), tuple(paths), warm_up, first) for name in detectors if name != LOUD]
    return jobs


def simulated_jobs(size: int, detectors: tuple[str, ...], folder: Path = FOLDER) -> list[Job]:
    """Return jobs for the simulated set of one size: on each recording one for our detector, one for all contenders."""
    jobs = []
    for run in [*runs([size]), *silent_runs([size])]:
        alone = [(name,) for name in detectors if name == OURS or (name == LOUD and size == LOUD_SIZE)]
        groups = (*alone, tuple(name for name in detectors if name not in (OURS, LOUD)))
        jobs += [
            Job(
                part=str(size),
                detectors=together,
                recordings=(folder / run.name,),
                first=WARM_UP + 1,
                judged_after=WARM_UP * timedelta(seconds=15),
            )
            for together in groups
            if together
        ]
    return jobs


def _warm_up(path: Path) -> Path | None:
    """Return the recording of normal traffic of the same load, or of low traffic; None if there is none."""
    if "-issues-" not in path.name:
        return None
    kind = path.name.split("-issues-")[0]
    tried = [path.parent / f"{name}-normal" for name in (kind, "low_traffic")]
    return next((found for found in tried if (found / "meta.json").exists()), None)
