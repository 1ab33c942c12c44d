"""A private VictoriaMetrics, whose history is a text of OpenMetrics."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import httpx

from tests.live.programs import LOOPBACK, Program, find_program, free_ports

_LINES = 50_000  # sent at once


@contextmanager
def victoria_with_lines(text: Path, folder: Path) -> Iterator[str]:
    """Run a VictoriaMetrics whose history is this text, and yield its URL.

    Raises:
        NotReady: it does not start.
        HTTPStatusError: it refuses the text.
    """
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    command = [
        find_program("victoria-metrics") or "victoria-metrics",
        f"-httpListenAddr={address}",
        f"-storageDataPath={folder / 'victoria'}",
        "-retentionPeriod=100d",
        "-search.latencyOffset=0s",
    ]
    url, program = f"http://{address}", Program("victoria-metrics", command, folder / "victoria.log")
    try:
        program.wait_for(f"{url}/health")
        with text.open(encoding="utf-8") as lines:
            samples = (_in_milliseconds(line) for line in lines if line[0] != "#")
            while part := "\n".join(islice(samples, _LINES)):
                reply = httpx.post(f"{url}/api/v1/import/prometheus", content=part.encode(), timeout=60)
                reply.raise_for_status()
        httpx.get(f"{url}/internal/force_flush", timeout=60).raise_for_status()
        program.wait_until(lambda: _has_series(url))
        yield url
    finally:
        program.end()


def _in_milliseconds(line: str) -> str:
    sample, _, seconds = line.rstrip().rpartition(" ")
    return f"{sample} {round(float(seconds) * 1000)}"


def _has_series(url: str) -> bool:
    return bool(httpx.get(f"{url}/api/v1/labels", params={"start": "0"}, timeout=60).json()["data"])
