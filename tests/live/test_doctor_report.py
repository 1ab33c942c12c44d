"""``tagae doctor --prometheus`` for real Prometheus servers with the meshes of several operators."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.settings import load
from tests.live.programs import LOOPBACK, free_ports, needs
from tests.live.test_surveyed_series import CALLS, Scraped, containers, istio, linkerd, prometheus_of
from tests.live.test_surveyed_series import NOW as BEGIN

pytestmark = [pytest.mark.live, needs("prometheus", "promtool")]
NOW = 7200.0  # s after the beginning of the other tests' series; the command asks about now
LATEST = NOW + 3600  # s; series go on while the tests run
BOUNDS = {"5": 0.0, "10": 0.7, "25": 0.95, "50": 1.0, "+Inf": 1.0}  # share of the requests that are faster, by ms


def live(samples: dict[str, float], step: float = 15.0, until: float = LATEST, *, is_gauge: bool = False) -> Scraped:
    return Scraped(samples, step, NOW - 1500, until, is_gauge)


def with_latencies(requests: dict[str, float]) -> dict[str, float]:
    series = dict(requests)
    for name, rate in requests.items():
        labels = name.partition("{")[2].removesuffix("}").replace(',response_flags="-"', "")
        for bound, share in BOUNDS.items():
            series[f'istio_request_duration_milliseconds_bucket{{{labels},le="{bound}"}}'] = rate * share
        series[f"istio_request_duration_milliseconds_sum{{{labels}}}"] = rate * 12
    return series


def service_graph(rate: float = 9.0) -> dict[str, float]:
    series: dict[str, float] = {}
    for source, destination in (("user", "gw"), *CALLS):
        kind = "virtual_node" if source == "user" else ""
        labels = f'client="{source}",server="{destination}",connection_type="{kind}"'
        series[f"traces_service_graph_request_total{{{labels}}}"] = rate
        for end in ("client", "server"):
            for bound, share in (("0.1", 0.9), ("0.2", 1.0), ("+Inf", 1.0)):
                series[f'traces_service_graph_request_{end}_seconds_bucket{{{labels},le="{bound}"}}'] = rate * share
    return series


USED, STATE = containers(0.4)
OWNERS_ONLY = {name: value for name, value in STATE.items() if name.startswith(("kube_pod_owner", "kube_pod_status"))}
KUBERNETES = (live(USED), live(STATE, is_gauge=True))
MESHES: dict[str, tuple[Scraped, ...]] = {
    "istio": (live(with_latencies(istio())), *KUBERNETES),
    "linkerd": (live(linkerd()),),
    "service graph": (live(service_graph()),),
    "two clusters": (
        live(with_latencies(istio(cluster="prod"))),
        live(with_latencies(istio(4.0, cluster="dev"))),
        *KUBERNETES,
    ),
    "pair of servers": tuple(live(with_latencies(istio(prometheus_replica=server))) for server in ("a", "b")),
    "every 60 s": (live(with_latencies(istio()), 60.0), *KUBERNETES),
    "owners only": (live(with_latencies(istio())), live(USED), live(OWNERS_ONLY, is_gauge=True)),
    "other series": (live({'node_load1{instance="a"}': 1.0, 'up{job="node",instance="a"}': 1.0}, is_gauge=True),),
    "down": (live({'up{job="istio-proxies",instance="a"}': 0.0}, is_gauge=True),),
    "empty": (live({"nothing_of_interest": 1.0}, until=NOW - 1400, is_gauge=True),),
}


@dataclass(frozen=True)
class Report:
    """The doctor's answer: exit code, the document of ``--json``, and the text."""

    code: int
    document: dict[str, Any]
    text: str

    def finding(self, subject: str, outcome: str = "") -> dict[str, Any]:
        (one,) = self.findings(subject, outcome)
        return one

    def findings(self, subject: str, outcome: str = "") -> list[dict[str, Any]]:
        of_subject = [one for one in self.document["findings"] if one["subject"] == subject]
        return [one for one in of_subject if outcome in ("", one["outcome"])]


def ask(url: str, *options: str, columns: int = 120) -> Report:
    command = ["doctor", "--prometheus", url, "--set", "collector.deadline_seconds=60", *options]
    runner = CliRunner(env={"COLUMNS": str(columns)})
    text, document = runner.invoke(app, command), runner.invoke(app, [*command, "--json"])
    for result in (text, document):
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert text.exit_code == document.exit_code
    return Report(text.exit_code, json.loads(document.stdout), text.stdout)


Ask = Callable[..., Report]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The report about one of the meshes; each has a Prometheus of its own."""
    with ExitStack() as opened:
        urls: dict[str, str] = {}

        def about(mesh: str, *options: str, columns: int = 120) -> Report:
            if mesh not in urls:
                urls[mesh] = opened.enter_context(prometheus_of(tmp_path_factory.mktemp("doctor"), *MESHES[mesh])).url
            return ask(urls[mesh], *options, columns=columns)

        yield about


@pytest.mark.parametrize(
    ("mesh", "source", "services"),
    [
        ("istio", "istio", {"shop/gw", "shop/web", "shop/cart", "shop/db"}),
        ("linkerd", "linkerd", {"shop/gw", "shop/web", "shop/cart", "shop/db"}),
        ("service graph", "opentelemetry", {"default/gw", "default/web", "default/cart", "default/db"}),
        ("two clusters", "istio", {"shop/gw", "shop/web", "shop/cart", "shop/db"}),
        ("pair of servers", "istio", {"shop/gw", "shop/web", "shop/cart", "shop/db"}),
        ("every 60 s", "istio", {"shop/gw", "shop/web", "shop/cart", "shop/db"}),
    ],
)
def test_the_source_and_the_picture_are_those_of_the_mesh(
    report: Ask, mesh: str, source: str, services: set[str]
) -> None:
    found = report(mesh)
    assert found.code == 0
    assert found.finding("source")["found"] == f"{source}, found by its metrics"
    picture = found.document["mesh"]
    assert (picture["services"], picture["calls"]) == (len(services), 3)
    (entry,) = picture["entry_points"]
    assert entry.endswith("/gw")
    assert {one["id"] for one in picture["busiest"]} <= services
    assert len(picture["busiest"]) >= 3


def test_the_last_lines_are_the_picture_in_aligned_columns(report: Ask) -> None:
    lines = [line.rstrip() for line in report("istio").text.splitlines()]
    begin = lines.index(" The mesh")
    assert lines[begin + 1 : begin + 4] == [" services      4", " calls         3", " entry points  shop/gw"]
    busiest = lines[begin + 4 : begin + 8]  # the gateway reports only as a source
    assert {line[15:24] for line in busiest} == {"shop/gw  ", "shop/web ", "shop/cart", "shop/db  "}
    assert {line.index("requests/s") for line in busiest} == {busiest[0].index("requests/s")}
    assert lines[begin + 8].startswith(" looks wrong   nothing")


@pytest.mark.parametrize("columns", [30, 50, 80, 200])
@pytest.mark.parametrize("mesh", ["two clusters", "other series"])
def test_no_line_is_wider_than_the_terminal(report: Ask, mesh: str, columns: int) -> None:
    text = report(mesh, columns=columns).text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    assert "…" not in text  # nothing is cut off


def test_clusters_are_named_with_the_lines_that_choose_one(report: Ask, tmp_path: Path) -> None:
    finding = report("two clusters").finding("clusters")
    assert finding["outcome"] == "warning"
    assert "prod, dev" in finding["found"]
    assert "reading prod, 91% of the requests" in finding["found"]
    settings = tmp_path / "tagae.toml"
    settings.write_text(finding["toml"])
    (mesh,) = load(settings).meshes.values()
    assert mesh.match == {"cluster": ("prod",)}
    command = ["doctor", "--config", str(settings), "--source", "mesh", "--json"]
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0
    clusters = [one for one in json.loads(again.stdout)["findings"] if one["subject"] == "clusters"]
    assert [one["outcome"] for one in clusters] == ["ok"]


def test_a_pair_of_servers_is_named_and_read_once(report: Ask) -> None:
    found = report("pair of servers")
    assert (
        "2 Prometheus servers scrape the same targets (prometheus_replica: a, b)" in found.finding("replicas")["found"]
    )
    assert found.document["mesh"]["busiest"][0]["request_rate"] == pytest.approx(40, rel=0.02)


def test_rare_scrapes_are_named_with_the_window_in_use(report: Ask) -> None:
    mesh, containers_ = report("every 60 s").findings("scrapes")
    assert mesh["outcome"] == "warning"
    assert "scraped every 60 s: their rates are over 240 s" in mesh["found"]
    assert containers_["found"] == "containers: every 15 s"


def test_a_window_of_the_settings_is_named_with_the_line_that_mends_it(report: Ask, tmp_path: Path) -> None:
    found = report("every 60 s", "--set", "collector.window_seconds=60")
    (finding,) = found.findings("scrapes", "warning")
    settings = tmp_path / "tagae.toml"
    settings.write_text(finding["toml"])
    assert load(settings).collector.window_seconds == 240
    mended = report("every 60 s", "--config", str(settings))
    assert (mended.code, mended.document["mesh"]["services"]) == (0, 4)


def test_exporters_that_are_missing_are_one_finding_each(report: Ask) -> None:
    found = report("linkerd")
    for exporter in ("cAdvisor", "kube-state-metrics"):
        assert found.finding(exporter)["outcome"] == "warning"
        assert found.finding(exporter)["remedy"]
    subjects = {one["subject"] for one in found.document["findings"]}
    assert {one for one in subjects if one.startswith(("kubernetes ", "signals"))} == {"kubernetes serves"}


def test_series_of_an_exporter_that_are_missing_are_named_one_by_one(report: Ask) -> None:
    found = report("owners only")
    assert found.finding("kubernetes owners")["outcome"] == "ok"
    assert found.finding("kubernetes nodes")["outcome"] == "warning"
    assert not found.findings("kube-state-metrics")
    assert "3 pods with neither a limit" in found.finding("pods", "warning")["found"]


@pytest.mark.parametrize("mesh", MESHES)
def test_each_warning_says_what_it_costs_or_what_to_do(report: Ask, mesh: str) -> None:
    for one in report(mesh).document["findings"]:
        assert bool(one["remedy"]) == (one["outcome"] != "ok") or one["subject"] == "mesh", one
        assert not re.search(r"\b[Nn]one\b.*\bNone\b|nan|Traceback", one["found"]), one


@pytest.mark.parametrize(
    ("mesh", "jobs"),
    [("other series", "node (1 of 1 targets up)"), ("down", "istio-proxies (0 of 1 targets up)"), ("empty", "none")],
)
def test_a_prometheus_without_a_mesh_is_a_problem_and_its_jobs_are_listed(report: Ask, mesh: str, jobs: str) -> None:
    found = report(mesh)
    assert found.code == 1
    assert found.finding("mesh")["outcome"] == "problem"
    assert "istio_requests_total" in found.finding("mesh")["found"]
    assert found.finding("scrape jobs")["found"] == jobs
    assert found.document["mesh"] is None


def test_a_prometheus_that_cannot_be_reached_is_a_problem_and_nothing_else_is_said() -> None:
    found = ask(f"http://{LOOPBACK}:{free_ports(1)[0]}")
    assert found.code == 1
    (problem,) = found.document["findings"]
    assert "cannot reach Prometheus" in problem["found"]


def test_data_that_arrive_late_are_read_where_they_are_whole(tmp_path: Path) -> None:
    """The collector follows the lag, and so does the doctor: it is not an empty mesh."""
    now = time.time() - BEGIN.timestamp()  # the tests before it may have taken minutes
    with prometheus_of(tmp_path, live(istio(), until=now - 90)) as mesh:
        found = ask(mesh.url)
    assert found.code == 0
    assert found.document["mesh"]["services"] == 4
    assert "data arrive late" in found.finding("lag")["found"]
