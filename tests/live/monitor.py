"""A private Prometheus: a configuration, a data folder and a port of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.live.programs import LOOPBACK, Program, find_program, free_ports
from tests.live.sidecars import Sidecar
from tests.live.topology import NAMESPACE


class Monitor:
    """A running Prometheus; as a context manager it is ready in the block, and ends with it."""

    def __init__(
        self,
        folder: Path,
        scrapes: Sequence[dict[str, Any]] = (),
        retention: str = "1d",
        rules: Sequence[Path] = (),
        lookback: str = "5m",
        port: int | None = None,
        options: Sequence[str] = (),
        remote_reads: Sequence[str] = (),
    ) -> None:
        """
        Args:
            folder: for its configuration and log. ``data`` in it may exist already.
            scrapes: ``scrape_configs``.
            retention: longer than the oldest sample is old.
            rules: files of rules.
            lookback: how long a series without a newer sample still exists. A scrape without the series ends it at
                once, but text cannot express that.
            port: to listen on; by default a free one.
            options: further options of its command line.
            remote_reads: URLs of stores whose series it reads too.
        """
        self.url = f"http://{LOOPBACK}:{port or free_ports(1)[0]}"
        config = folder / "prometheus.yml"
        document = {
            "scrape_configs": list(scrapes),
            "rule_files": [str(path.resolve()) for path in rules],
            "remote_read": [{"url": url, "read_recent": True} for url in remote_reads],
        }
        config.write_bytes(msgspec.json.encode(document))  # JSON is YAML
        command = [
            find_program("prometheus") or "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={retention}",
            f"--query.lookback-delta={lookback}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            *options,
        ]
        self.program = Program("prometheus", command, folder / "prometheus.log")

    def __enter__(self) -> Self:
        try:
            self.wait()
        except BaseException:
            self.program.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.program.end()

    def wait(self) -> None:
        """Wait until it serves queries.

        Raises:
            NotReady: it does not.
        """
        self.program.wait_for(f"{self.url}/-/ready")


def every(seconds: float) -> dict[str, str]:
    """Timing settings of a scrape config."""
    milliseconds = f"{round(seconds * 1000)}ms"
    return {"scrape_interval": milliseconds, "scrape_timeout": milliseconds}


def scrape_config(sidecars: Sequence[Sidecar], seconds: float) -> dict[str, Any]:
    """Every sidecar, labelled with its service. In Kubernetes relabelling takes these labels from the pod."""
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
