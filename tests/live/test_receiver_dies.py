"""A real Alertmanager dies and returns: terminal, health, metrics and doctor say so."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from tests.live.alertmanager import alertmanager
from tests.live.programs import Program, free_ports, needs
from tests.serve_app.running import TAGAE, eventually, kill_all
from tests.timing import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.live,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    needs("prometheus-alertmanager"),
]
FAILING = re.compile(r'^ray_tagae_receiver_failing\{.*receiver="alertmanager".*\} (\S+)$', re.MULTILINE)


class Service:
    """A running ``tagae serve`` that notifies one Alertmanager."""

    def __init__(self, folder: Path, receiver: str) -> None:
        self._log = folder / "tagae.log"
        (metrics,) = free_ports(1)
        self.metrics_url = f"http://127.0.0.1:{metrics}/metrics"
        self.settings = folder / "tagae.toml"
        self.settings.write_text(
            f"""
            serve.port = 0
            serve.metrics_port = {metrics}
            store.path = "{folder / "state"}"
            notify.alertmanagers = [{{ url = "{receiver}" }}]
            """
        )
        self.program = Program("tagae", [*TAGAE, "serve", "--config", str(self.settings)], self._log)

    @property
    def terminal(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        self.program.wait_until(lambda: "Page: " in self.terminal, 4 * PATIENCE_SECONDS)
        found = re.search(r"Page: (http://\S+)/\s", self.terminal)
        assert found is not None
        return found[1]

    def problems(self) -> list[str]:
        """What `/healthz` says of receivers."""
        found: list[str] = httpx.get(f"{self.url}/healthz", timeout=PATIENCE_SECONDS).json()["receivers"]
        return found

    def is_failing(self) -> float | None:
        """The metric; None: it is not there yet."""
        found = FAILING.search(httpx.get(self.metrics_url, timeout=PATIENCE_SECONDS).text)
        return float(found[1]) if found else None

    def diagnosis(self) -> str:
        """What `tagae doctor` says of receivers."""
        command = [*TAGAE, "doctor", "--config", str(self.settings), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_SECONDS, check=False)
        (found,) = (one for one in json.loads(done.stdout) if one["subject"] == "receiver alertmanager")
        return str(found["outcome"])


def test_an_alertmanager_that_dies_is_said_everywhere_until_it_returns(tmp_path: Path) -> None:
    with alertmanager(tmp_path) as manager:
        service = Service(tmp_path, manager.url)
        try:
            assert service.url, "it is ready"
            assert eventually(lambda: service.is_failing() == 0), "it is tried at the start"
            assert (service.problems(), service.diagnosis()) == ([], "ok")
            assert "notifications:" not in service.terminal
            manager.program.kill()
            said = f"alertmanager {manager.url} takes no notifications since "
            assert eventually(lambda: any(one.startswith(said) for one in service.problems())), "health"
            assert eventually(lambda: "notifications: alertmanager" in service.terminal), "terminal"
            assert eventually(lambda: service.is_failing() == 1), "metrics"
            assert service.diagnosis() == "problem"
            manager.restart()
            assert eventually(lambda: service.problems() == []), "health"
            assert eventually(lambda: "all receivers accept them again" in service.terminal), "terminal"
            assert eventually(lambda: service.is_failing() == 0), "metrics"
        finally:
            kill_all(psutil.Process(service.program.pid))
            service.program.kill()
