"""A private Prometheus: a configuration, a data folder and a port of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.live.programs import LOOPBACK, Program, find_program, free_ports
from tests.live.sidecars import Sidecar
from tests.live.topology import NAMESPACE


class Monitor:
    """A running Prometheus."""

    def __init__(
        self,
        folder: Path,
        scrapes: Sequence[dict[str, Any]] = (),
        retention: str = "1d",
        rules: Sequence[Path] = (),
        lookback: str = "5m",
        port: int | None = None,
    ) -> None:
        """
        Args:
            folder: for its configuration and log; ``data`` in it, which may be there already.
            scrapes: ``scrape_configs``.
            retention: longer than the oldest sample is old.
            rules: files of rules.
            lookback: for which a series that has no newer sample is still there; a scrape that misses it ends it at
                once, which text cannot tell.
            port: where it listens; by default a free one.
        """
        self.url = f"http://{LOOPBACK}:{port or free_ports(1)[0]}"
        config = folder / "prometheus.yml"
        told = {"scrape_configs": list(scrapes), "rule_files": [str(path.resolve()) for path in rules]}
        config.write_bytes(msgspec.json.encode(told))  # JSON is YAML
        command = [
            find_program("prometheus") or "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={retention}",
            f"--query.lookback-delta={lookback}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        self.program = Program("prometheus", command, folder / "prometheus.log")

    def wait(self) -> None:
        """Until it serves queries.

        Raises:
            NotReady: it does not.
        """
        self.program.wait_for(f"{self.url}/-/ready")


def every(seconds: float) -> dict[str, str]:
    """Of a scrape config: how often."""
    milliseconds = f"{round(seconds * 1000)}ms"
    return {"scrape_interval": milliseconds, "scrape_timeout": milliseconds}


def scrape_config(sidecars: Sequence[Sidecar], seconds: float) -> dict[str, Any]:
    """Every sidecar, with whose it is as labels; in Kubernetes these come from the pod by relabelling."""
    return {
        "job_name": "sidecars",
        "metrics_path": "/stats/prometheus",
        **every(seconds),
        "static_configs": [
            {
                "targets": [f"{LOOPBACK}:{sidecar.admin}"],
                "labels": {"namespace": NAMESPACE, "service": sidecar.service},
            }
            for sidecar in sidecars
        ],
    }
