"""Matches verdict files with recordings."""

from collections.abc import Sequence
from pathlib import Path

from serve_app.errors import BadVerdicts

SUFFIX = ".jsonl"


def verdict_files(options: Sequence[str], recordings: Sequence[Path]) -> dict[str, list[Path]]:
    """Return each detector's files, in the order of the recordings.

    Args:
        options: ``NAME=FILE`` for a single recording, or ``NAME=FOLDER`` with a file named after each recording.

    Raises:
        BadVerdicts: an option has another form, or a file is missing.
    """
    files: dict[str, list[Path]] = {}
    for option in options:
        name, equals, path = (part.strip() for part in option.partition("="))
        if not (name and equals and path) or name in files:
            raise BadVerdicts(
                f"--verdicts: expected NAME=FILE or NAME=FOLDER, each name once, got {option!r}; correct it"
            )
        place = Path(path).expanduser()
        if place.is_dir():
            files[name] = [_in_folder(name, place, recording) for recording in recordings]
        elif len(recordings) == 1:
            files[name] = [place]
        else:
            raise BadVerdicts(
                f"--verdicts {name}: expected a folder for {len(recordings)} recordings, got {place}; give a folder "
                "with a file named after each"
            )
    return files


def recording_names(recordings: Sequence[Path]) -> list[str]:
    """Return the last parts of each path: at least two, and as many as make the names unique.

    Raises:
        BadVerdicts: a recording is given twice.
    """
    parts = [path.resolve().parts for path in recordings]
    if duplicates := sorted({str(path) for path in recordings if parts.count(path.resolve().parts) > 1}):
        raise BadVerdicts(f"recordings: expected each once, got {', '.join(duplicates)} twice; remove one")
    depth = 2
    while len({names[-depth:] for names in parts}) < len(parts):
        depth += 1
    return ["/".join(names[-depth:]).lstrip("/") for names in parts]


def _in_folder(name: str, folder: Path, recording: Path) -> Path:
    parts = recording.resolve().parts
    candidates = [folder / f"{'/'.join(parts[-2:])}{SUFFIX}", folder / f"{parts[-1]}{SUFFIX}"]
    match = next((path for path in candidates if path.is_file()), None)
    if match is None:
        raise BadVerdicts(
            f"--verdicts {name}: expected {candidates[0]} or {candidates[1]} for the recording {recording}, found "
            "neither; score it or name the files one by one"
        )
    return match
