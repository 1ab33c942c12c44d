"""Matches files of verdicts with recordings."""

from collections.abc import Sequence
from pathlib import Path

from serve_app.errors import BadVerdicts

SUFFIX = ".jsonl"


def verdict_files(given: Sequence[str], recordings: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of each detector, one for each recording in their order.

    A detector is given once for each recording, in their order, or once with a folder that holds a file named after
    each recording.

    Args:
        given: ``NAME=FILE`` or ``NAME=FOLDER``.
        recordings: their folders.

    Raises:
        BadVerdicts: not of this form, or the wrong number of files.
    """
    paths: dict[str, list[Path]] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (name.strip() and equals and path.strip()):
            raise BadVerdicts(f"--verdicts: expected NAME=FILE or NAME=FOLDER, got {one!r}; name the detector")
        paths.setdefault(name.strip(), []).append(Path(path.strip()).expanduser())
    return {name: _files(name, known, recordings) for name, known in paths.items()}


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


def _files(name: str, given: Sequence[Path], recordings: Sequence[Path]) -> list[Path]:
    if len(given) == 1 and given[0].is_dir():
        return [_in_folder(name, given[0], recording) for recording in recordings]
    if len(given) != len(recordings):
        hint = "give each name once" if len(recordings) == 1 else "give one for each, in their order, or a folder"
        raise BadVerdicts(
            f"--verdicts {name}: expected {len(recordings)} files for {len(recordings)} recordings, got {len(given)} "
            f"({', '.join(map(str, given))}); {hint}"
        )
    return list(given)


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
