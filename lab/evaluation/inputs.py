"""Matches files of verdicts with recordings."""

from collections.abc import Sequence
from pathlib import Path

from serve_app.errors import BadVerdicts

SUFFIX = ".jsonl"


def verdict_files(given: Sequence[str], recordings: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of each detector, one for each recording in their order.

    Args:
        given: ``NAME=FILE`` for a single recording, or ``NAME=FOLDER`` with a file named after each recording.
        recordings: their folders.

    Raises:
        BadVerdicts: not of this form, or a file is missing.
    """
    found: dict[str, list[Path]] = {}
    for one in given:
        name, equals, path = (part.strip() for part in one.partition("="))
        if not (name and equals and path) or name in found:
            raise BadVerdicts(f"--verdicts: expected NAME=FILE or NAME=FOLDER, each name once, got {one!r}; correct it")
        place = Path(path).expanduser()
        if place.is_dir():
            found[name] = [_in_folder(name, place, recording) for recording in recordings]
        elif len(recordings) == 1:
            found[name] = [place]
        else:
            raise BadVerdicts(
                f"--verdicts {name}: expected a folder for {len(recordings)} recordings, got {place}; give a folder "
                "with a file named after each"
            )
    return found


def recording_names(recordings: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, at least two and as many as make the names unique.

    Raises:
        BadVerdicts: a recording is given twice.
    """
    parts = [path.resolve().parts for path in recordings]
    twice = sorted({str(path) for path, known in zip(recordings, parts, strict=True) if parts.count(known) > 1})
    if twice:
        raise BadVerdicts(f"recordings: expected each once, got {', '.join(twice)} twice; remove one")
    depth = 2
    while len({known[-depth:] for known in parts}) < len(parts):
        depth += 1
    return ["/".join(known[-depth:]).lstrip("/") for known in parts]


def _in_folder(name: str, folder: Path, recording: Path) -> Path:
    parts = recording.resolve().parts
    tried = [folder / f"{'/'.join(parts[-2:])}{SUFFIX}", folder / f"{parts[-1]}{SUFFIX}"]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise BadVerdicts(
            f"--verdicts {name}: expected {tried[0]} or {tried[1]} for the recording {recording}, found neither; "
            "score it or name the files one by one"
        )
    return found
