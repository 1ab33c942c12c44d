"""Rows of results as JSON lines, and the benchmarks' command line."""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser that explains a benchmark by its file's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the rows")
    return parser


def emit(rows: Iterable[Row], path: Path | None) -> list[Row]:
    """Print each row at once, and write all rows to a file if one is named, even if the run is stopped."""
    results: list[Row] = []
    try:
        for row in rows:
            results.append(row)
            print(json.dumps(row), flush=True)
    finally:
        if path and results:
            write(results, path)
    return results


def write(rows: Iterable[Row], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read(path: Path) -> list[Row]:
    """Return a file's rows; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def replace(path: Path, new_rows: Sequence[Row], key: Callable[[Row], Any]) -> list[Row]:
    """Write new rows in place of those with their keys, after all others. Return the rows that stay."""
    new_keys = {key(row) for row in new_rows}
    old_rows = [row for row in read(path) if key(row) not in new_keys]
    write([*old_rows, *new_rows], path)
    return old_rows


def commit() -> str | None:
    """Return this checkout's commit; None outside of one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
