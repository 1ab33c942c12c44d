"""Rows of results, lines of JSON, and the command line that all benchmarks share."""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser that explains a benchmark by the text at the top of its file."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the rows")
    return parser


def emit(rows: Iterable[Row], path: Path | None) -> list[Row]:
    """Print each row when it is measured, and write all of them to a file if one is named. A run that is stopped
    leaves what it has."""
    measured: list[Row] = []
    try:
        for row in rows:
            measured.append(row)
            print(json.dumps(row), flush=True)
    finally:
        if path and measured:
            write(measured, path)
    return measured


def write(rows: Iterable[Row], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(path: Path) -> list[Row]:
    """Return the rows of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def replace(path: Path, measured: Sequence[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Write measured rows in place of those with one of their keys, after all others. Returns the rows that stay."""
    replaced = {key(row) for row in measured}
    kept = [row for row in read(path) if key(row) not in replaced]
    write([*kept, *measured], path)
    return kept


def commit() -> str | None:
    """Return the commit of this checkout; None outside of one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
