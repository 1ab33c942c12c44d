"""Files of deploy/ for tests: Prometheus jobs with the tests' own targets, and queries of Grafana's dashboards."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
# Labels of the pods that a job looks for, as Kubernetes would set them on a target.
AS_A_POD = {
    "__meta_kubernetes_pod_label_app_kubernetes_io_name": "tagae",
    "__meta_kubernetes_pod_container_port_name": "metrics",
    "__meta_kubernetes_pod_name": "tagae-worker",
}


def jobs(targets: Mapping[str, Sequence[str]], seconds: float, token_file: Path | None = None) -> list[dict[str, Any]]:
    """Return the scrape configs that we ship, for these targets by job.

    Args:
        targets: addresses of each job.
        seconds: between two scrapes.
        token_file: holds the token of jobs that need a login. None: the service is on loopback without tokens.
    """
    found = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    for job in found:
        job.pop("kubernetes_sd_configs", None)
        if job.pop("authorization", None) and token_file:
            job["authorization"] = {"credentials_file": str(token_file)}
        job["static_configs"] = [{"targets": list(targets[job["job_name"]]), "labels": AS_A_POD}]
        job["scrape_interval"] = job["scrape_timeout"] = f"{round(seconds * 1000)}ms"
    return list(found)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One query of a panel.

    Attributes:
        dashboard, panel: their titles.
        expr: as the panel has it, with Grafana's variables.
        legend: the labels of a series that its legend shows.
    """

    dashboard: str
    panel: str
    expr: str
    legend: str

    def at(self, window_seconds: float) -> str:
        """Return the query that Grafana would send, for all meshes."""
        return self.expr.replace("$__rate_interval", f"{round(window_seconds * 1000)}ms").replace("$mesh", ".*")

    @property
    def labels(self) -> set[str]:
        return set(re.findall(r"\{\{(\w+)\}\}", self.legend))

    @property
    def metrics(self) -> set[str]:
        """Names of the series in the query."""
        return set(re.findall(r"\b(?:ray_|tagae_)\w+", self.expr))


def dashboard_queries() -> Iterator[Drawn]:
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield Drawn(board["title"], panel["title"], target["expr"], target["legendFormat"])
