"""What is scored, on which recordings, warmed up by what."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchmarks.contenders import NAMES
from benchmarks.simulated import FOLDER, JUDGED, SEEDS, WARM_UP, runs
from serve_app.recordings.files import RecordingReader
from serve_app.settings import AlertSettings, ModelSettings

OURS = "tagae"
LOUD, LOUD_SIZE = "tagae_loud", 300  # ours where more pages are wanted, on the simulated meshes of one size
ALERTS = {LOUD: AlertSettings(false_pages_per_day=24 * 20)}
DETECTORS = (OURS, LOUD, *NAMES)
CONTROLLED = (OURS, "guarded", "own_limit")  # who is asked which false pages are due to churn
SHARED = Path("../shared/recordings")
SIMULATED = tuple(str(size) for size in SEEDS)
PARTS = ("shared", *SIMULATED)
COLD = ModelSettings().warm_up_snapshots  # snapshots before the first judgement, as shipped


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does in one go: some detectors through a warm-up and then, from there, each recording.

    Attributes:
        part: of ``PARTS``.
        detectors: names.
        recordings: folders.
        warm_up: a recording of normal operation; None: from cold.
        first: number of the first snapshot of a recording that contenders judge.
        judged_after: seconds of its start that are not judged.
        control: the recordings have no benign actions.
    """

    part: str
    detectors: tuple[str, ...]
    recordings: tuple[Path, ...]
    warm_up: Path | None = None
    first: int = COLD
    judged_after: timedelta = timedelta(0)
    control: bool = False

    def snapshots(self) -> int:
        """To be scored, all detectors together."""
        if self.part != "shared":
            each = (WARM_UP + JUDGED) * len(self.recordings)
        else:
            paths = (*self.recordings, self.warm_up) if self.warm_up else self.recordings
            each = sum(RecordingReader(path).meta.get("counts", {}).get("snapshots", 0) for path in paths)
        return each * len(self.detectors)


def shared_jobs(detectors: tuple[str, ...], root: Path = SHARED) -> list[Job]:
    """Every recording below a folder: issues of PetShop after its normal traffic (of low traffic where it has none of
    its own), all others from cold."""
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
    """The simulated set of one size: our detector alone on each recording, and all contenders together."""
    jobs = []
    for run in runs([size]):
        asked = tuple(name for name in detectors if not run.muted or name in CONTROLLED)
        alone = [(name,) for name in asked if name == OURS or (name == LOUD and size == LOUD_SIZE)]
        together = (*alone, tuple(name for name in asked if name not in (OURS, LOUD)))
        jobs += [
            Job(
                part=str(size),
                detectors=names,
                recordings=(folder / run.name,),
                first=WARM_UP + 1,
                judged_after=WARM_UP * timedelta(seconds=15),
                control=run.muted,
            )
            for names in together
            if names
        ]
    return jobs


def _warm_up(path: Path) -> Path | None:
    """Normal traffic of the same application: what precedes ``-issues-``, or low traffic."""
    if "-issues-" not in path.name:
        return None
    kind = path.name.split("-issues-")[0]
    tried = [path.parent / f"{name}-normal" for name in (kind, "low_traffic")]
    return next((found for found in tried if (found / "meta.json").exists()), None)
