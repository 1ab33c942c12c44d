"""A private Alertmanager that notifies no one: a configuration, a data folder and a port of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.live.programs import LOOPBACK, Program, find_program, free_ports
from tests.timing import PATIENCE_SECONDS

Alert = dict[str, Any]


class Alertmanager:
    """A running Alertmanager."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for its configuration, data and log."""
        self.url = f"http://{LOOPBACK}:{free_ports(1)[0]}"
        config = folder / "alertmanager.yml"
        config.write_bytes(msgspec.json.encode({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}))
        self._folder = folder
        self._command = [
            find_program("prometheus-alertmanager") or "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",  # alone
        ]
        self.program = self._start()

    def restart(self) -> None:
        """Run it again, after it was killed, with its address and data. Errors as of :func:`alertmanager`."""
        self.program = self._start()
        self.program.wait_for(f"{self.url}/-/ready")

    def _start(self) -> Program:
        return Program("alertmanager", self._command, self._folder / "alertmanager.log")

    def alerts(self) -> list[Alert]:
        answer = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False, timeout=PATIENCE_SECONDS).raise_for_status()
        found: list[Alert] = answer.json()
        return found


@contextmanager
def alertmanager(folder: Path) -> Iterator[Alertmanager]:
    """Run an Alertmanager that is ready, until the end of the block.

    Raises:
        NotReady: it does not answer.
    """
    manager = Alertmanager(folder)
    try:
        manager.program.wait_for(f"{manager.url}/-/ready")
        yield manager
    finally:
        manager.program.end()
