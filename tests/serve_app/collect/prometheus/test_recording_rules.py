"""Recording rules: the shipped files match the dialects, and queries read what the rules record."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from serve_app.cli import app
from serve_app.collect.base import Finding, Poll
from serve_app.collect.prometheus import reader
from serve_app.collect.prometheus.combine import CALLS, SERVICES
from serve_app.collect.prometheus.dialects.shipped import KNOWN, SHIPPED_RULES
from serve_app.collect.prometheus.rules import recording_rules, render_rules
from serve_app.doctor import telemetry
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh, find_snapshot
from tests.serve_app.collect.prometheus.standin import Samples
from tests.serve_app.collect.prometheus.test_prometheus_source import SNAPSHOTS, diagnose, open_source

FOLDER = Path(__file__).parents[4] / "deploy" / "prometheus"
CONVENTION = re.compile(r"tagae_(service|call|mesh):[a-z]+(_[a-z]+)*:[a-z0-9]+(_[a-z0-9]+)*")  # level:metric:operations


@pytest.fixture(autouse=True)
def _read_rules_from_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "RECORDED_FROM_CALLS", 50)


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("recording.rules.yaml", []),
        ("recording-ambient.rules.yaml", ["--source", "istio-ambient"]),
    ],
)
def test_the_shipped_file_is_what_the_command_prints(file: str, arguments: list[str]) -> None:
    printed = CliRunner().invoke(app, ["rules", *arguments])
    assert printed.exit_code == 0
    assert (FOLDER / file).read_text() == printed.stdout, "dialects have changed, run: make rules"


def test_the_shipped_file_fits_into_an_object_of_kubernetes() -> None:
    """``kubectl apply`` keeps the object in an annotation of at most 256 KiB."""
    printed = CliRunner().invoke(app, ["rules"]).stdout
    assert [group["name"] for group in yaml.safe_load(printed)["groups"]] == [f"tagae-{name}" for name in SHIPPED_RULES]
    assert len(json.dumps(printed)) < 0.9 * 2**18


@pytest.mark.parametrize("name", sorted(KNOWN.keys() - set(SHIPPED_RULES)))
def test_rules_of_every_other_kind_fit_alone(name: str) -> None:
    printed = CliRunner().invoke(app, ["rules", "--source", name])
    assert printed.exit_code == 0
    assert [group["name"] for group in yaml.safe_load(printed.stdout)["groups"]] == [f"tagae-{name}"]
    assert len(json.dumps(printed.stdout)) < 0.9 * 2**18


def test_an_unknown_kind_is_refused_with_the_kinds_that_exist() -> None:
    printed = CliRunner().invoke(app, ["rules", "--source", "istoi"])
    assert printed.exit_code == 2
    assert "istio-ambient" in printed.output


def test_names_follow_the_convention_and_are_unique() -> None:
    groups = yaml.safe_load(render_rules(KNOWN, 15, 60))["groups"]
    assert [group["name"] for group in groups] == [f"tagae-{name}" for name in KNOWN]
    assert {group["interval"] for group in groups} == {"15s"}
    names = [rule["record"] for group in groups for rule in group["rules"]]
    assert len(set(names)) == len(names)
    assert [name for name in names if not CONVENTION.fullmatch(name)] == []


@pytest.mark.parametrize("name", KNOWN)
def test_queries_read_what_the_rules_record(name: str) -> None:
    rules = recording_rules(KNOWN[name], 15, 60)
    texts = [q.promql for q in (*rules.dialect.services.values(), *rules.dialect.calls.values())] + [rules.calls.promql]
    read = {found for text in texts for found in re.findall(r"tagae_\w+:\w+:\w+", text)}
    assert read == {rule.record for rule in rules.rules}
    for raw, reading in ((KNOWN[name].services, rules.dialect.services), (KNOWN[name].calls, rules.dialect.calls)):
        recorded = raw.keys() - {"buckets"} | ({"p50", "p99"} if "buckets" in raw else set())
        assert reading.keys() - {"long_requests"} == recorded
        assert {query.labels for query in raw.values()} == {query.labels for query in reading.values()}
        assert {query.unit for query in reading.values()} == {1.0}


def test_another_window_or_interval_has_rules_of_its_own() -> None:
    names = [{rule.record for rule in recording_rules(KNOWN["istio"], 15, window).rules} for window in (60, 90, 7200)]
    assert not names[0] & names[1]
    assert {name.rsplit("rate")[-1] for name in names[1] | names[2]} == {"90s", "2h"}
    printed = CliRunner().invoke(app, ["rules", "--source", "istio", "--set", "collector.window_seconds=7.5"])
    assert "tagae_call:istio_requests:rate7500ms" in printed.stdout
    assert "[7500ms]" in printed.stdout


def poll_once(mesh: IstioMesh) -> Poll:
    with open_source(mesh) as source:
        return source.poll(SNAPSHOTS[0].observed_at)


@pytest.mark.parametrize(("calls", "read"), [(None, False), (49, False), (50, True)])
def test_a_large_mesh_is_read_from_its_rules_if_they_exist(calls: int | None, read: bool) -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), recorded=calls)
    plain, poll = poll_once(IstioMesh(find_snapshot(SNAPSHOTS))), poll_once(mesh)
    assert (poll.recorded, plain.recorded) == (read, False)
    asked = {(SERVICES, "buckets"), (CALLS, "buckets")}
    assert asked & set(mesh.asked) == (set() if read else asked)
    if calls != 49:  # the stand-in reports seconds if it has rules
        assert poll.snapshot is not None
        assert plain.snapshot is not None
        assert poll.snapshot.node_ids == plain.snapshot.node_ids
        assert poll.snapshot.edge_observed.tolist() == plain.snapshot.edge_observed.tolist()
        assert poll.snapshot.edge_features == pytest.approx(plain.snapshot.edge_features, rel=1e-3)


def test_late_rules_are_not_read_and_their_last_values_are_not_used() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), recorded=90)
    read = []
    with open_source(mesh) as source:
        for mesh.recorded, snapshot in zip((90, None, 90), SNAPSHOTS, strict=False):
            read.append(source.poll(snapshot.observed_at))
    assert [poll.recorded for poll in read] == [True, False, True]
    assert [poll.masked for poll in read] == [(), (), ()]
    assert all(poll.snapshot is not None and poll.snapshot.num_nodes == 30 for poll in read)


def test_if_the_size_is_unknown_the_last_choice_stays() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), recorded=90)
    overloaded = standin.fails(503)
    size = recording_rules(KNOWN["istio"], 15, 60).calls.at(0)

    def behave(request: standin.Request) -> None:
        (overloaded if broken and request.query["query"] == size else mesh)(request)

    broken: list[bool] = []
    with open_source(behave) as source:
        first = source.poll(SNAPSHOTS[0].observed_at)
        broken.append(True)
        second = source.poll(SNAPSHOTS[1].observed_at)
    assert (first.recorded, second.recorded) == (True, True)
    assert second.snapshot is not None


def test_a_failed_rule_masks_what_it_records_and_no_more() -> None:
    mesh = IstioMesh(find_snapshot(SNAPSHOTS), recorded=90, altered={(CALLS, "p99"): _nothing})
    poll = poll_once(mesh)
    assert poll.snapshot is not None
    assert poll.snapshot.edge_observed.any(axis=0).tolist() == [True, True, True, False]


def _nothing(_: Samples) -> Samples:
    return []


def test_the_doctor_recommends_rules_for_a_large_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(mesh: IstioMesh, calls: float) -> Finding | None:
        monkeypatch.setattr(telemetry, "RECORDED_FROM_CALLS", calls)
        return diagnose(mesh).get("recording rules")

    assert found(IstioMesh(find_snapshot(SNAPSHOTS)), 2000) is None
    warning = found(IstioMesh(find_snapshot(SNAPSHOTS)), 50)
    assert warning is not None
    assert (warning.outcome, "tagae rules" in warning.remedy) == ("warning", True)
    well = found(IstioMesh(find_snapshot(SNAPSHOTS), recorded=90), 50)
    assert well is not None
    assert (well.outcome, well.remedy) == ("ok", "")


def test_no_rules_are_queried_where_none_are_recorded() -> None:
    query = KNOWN["istio"].services["requests"]
    asked: list[str] = []

    def behave(request: standin.Request) -> None:
        asked.append(request.query["query"])
        request.send(200, standin.vector([]))

    generic = {
        "services": {"requests": query.promql, "cpu": "cpu"},
        "calls": {"requests": "c"},
    }
    with open_source(behave, source="generic", generic=generic) as source:
        source.poll(SNAPSHOTS[0].observed_at)
    assert asked
    assert not any(text.startswith("tagae_") or "(tagae_" in text for text in asked)
