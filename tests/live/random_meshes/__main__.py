"""Read many random meshes, and print what was read wrongly: ``python -m tests.live.random_meshes [COUNT [FIRST]]``."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.live.random_meshes.matrix import find_faults
from tests.live.random_meshes.otlp import find_faults_of_push

MESHES, AT_ONCE = 400, 20


def main(count: int = MESHES, first: int = 0) -> int:
    """Returns the number of readings with faults."""
    bad = 0
    for begin in range(first, first + count, AT_ONCE):
        numbers = range(begin, min(begin + AT_ONCE, first + count))
        with TemporaryDirectory() as folder:
            found = find_faults(numbers, Path(folder))
        found |= {f"{number} over OTLP": find_faults_of_push(number) for number in numbers}
        for mesh, faults in found.items():
            bad += bool(faults)
            for fault in faults:
                print(f"{mesh}: {fault}", flush=True)
        print(
            f"{numbers.stop - first} of {count} meshes in two stores and over OTLP: {bad} readings with faults",
            flush=True,
        )
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
