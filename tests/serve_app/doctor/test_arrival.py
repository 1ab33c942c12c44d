"""What the doctor says about how series arrive, and the lines of `tagae.toml` that it recommends."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serve_app.collect.base import Finding
from serve_app.collect.prometheus.clusters import Part, Split
from serve_app.collect.prometheus.groups import Freshness, ScrapedPart
from serve_app.collect.prometheus.pods import PodCoverage
from serve_app.collect.prometheus.query import Match
from serve_app.collect.prometheus.remarks import remark
from serve_app.collect.prometheus.survey import Survey
from serve_app.doctor.arrival import arrival_findings
from serve_app.settings import CollectorSettings, load

AT = datetime(2026, 7, 1, tzinfo=UTC)
ADDRESS = "http://prometheus:9090"
SOUND = Survey(AT, Freshness(15.0, newest_seconds=3.0), Freshness(15.0, newest_seconds=4.0))
USUAL = CollectorSettings(window_seconds=60.0)
FIXED = CollectorSettings(behind_seconds=15.0, window_seconds=60.0)
PARTS = (Part("prod", 4, 90.0), Part("dev", 4, 10.0))


def found(
    survey: Survey,
    options: CollectorSettings = USUAL,
    pods: PodCoverage | None = None,
    mesh: str = "shop",
    address: str = ADDRESS,
) -> list[Finding]:
    return list(arrival_findings(remark(survey, options), pods, mesh, address))


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {one.subject: one for one in findings}


def test_a_sound_mesh_has_no_warning_and_shows_what_was_measured() -> None:
    findings = found(SOUND)
    assert {one.outcome for one in findings} == {"ok"}
    assert [one.subject for one in findings] == ["scrapes", "scrapes", "newest sample", "clusters", "replicas"]
    assert [one.found for one in findings[:3]] == [
        "the mesh: every 15 s",
        "containers: every 15 s",
        "the mesh: 3 s old; containers: 4 s old",
    ]


def test_nothing_is_said_about_what_is_not_known() -> None:
    assert [one.subject for one in found(Survey(AT))] == ["clusters", "replicas"]
    assert list(arrival_findings(remark(None, USUAL), None, "shop")) == []
    young = by_subject(found(Survey(AT, Freshness(newest_seconds=1.0))))
    assert "too young" in young["scrapes"].found


RARE = Freshness(60.0, 240.0, newest_seconds=3.0)


@pytest.mark.parametrize(
    ("survey", "other"),
    [
        (replace(SOUND, mesh=RARE), "containers: every 15 s"),
        (replace(SOUND, containers=RARE), "the mesh: every 15 s"),
    ],
)
def test_what_is_scraped_rarely_is_a_warning_and_the_rest_is_not(survey: Survey, other: str) -> None:
    scrapes = [one for one in found(survey, CollectorSettings()) if one.subject == "scrapes"]
    assert sorted(one.outcome for one in scrapes) == ["ok", "warning"]
    (fine,) = (one for one in scrapes if one.outcome == "ok")
    (rare,) = (one for one in scrapes if one.outcome == "warning")
    assert fine.found == other
    assert "are scraped every 60 s: their rates are over 240 s" in rare.found
    assert ("recording rules" in rare.remedy) == (survey.mesh is RARE)  # rules have no containers


def test_the_age_of_the_newest_sample_is_shown_beside_a_lag() -> None:
    late = replace(
        SOUND, mesh=Freshness(15.0, newest_seconds=120.0, late_seconds=120.0, late_share=1.0), lag_seconds=120.0
    )
    findings = by_subject(found(late))
    assert findings["newest sample"].found.startswith("the mesh: 120 s old")
    assert findings["lag"].outcome == "warning"


def clusters(label: str, choice: Any, read: tuple[str, ...], parts: tuple[Part, ...] = PARTS) -> Survey:
    return replace(SOUND, clusters=Split(label, parts, read, choice))


RECOMMENDED: Mapping[str, tuple[Survey, CollectorSettings, str, Any]] = {
    "a window that is too short": (
        replace(SOUND, mesh=Freshness(60.0, newest_seconds=3.0)), USUAL, "collector.window_seconds", 240.0
    ),
    "a window that is too short for a part": (
        replace(SOUND, mesh=Freshness(15.0, newest_seconds=3.0, slow=(ScrapedPart("pods", 3, 120.0, "shop/db"),))),
        USUAL,
        "collector.window_seconds",
        480.0,
    ),
    "data that arrive late": (
        replace(SOUND, mesh=Freshness(15.0, newest_seconds=90.0, late_seconds=90.0, late_share=1.0), lag_seconds=90.0),
        FIXED,
        "collector.behind_seconds",
        105.0,
    ),
    "clusters with the same services": (
        clusters("cluster", "busiest", ("prod",)), USUAL, "match", {"cluster": ("prod",)}
    ),
    "a cluster whose name has quotes": (
        clusters("k8s_cluster_name", "busiest", ('the "big" \\ one',), (Part('the "big" \\ one', 4, 9.0), *PARTS)),
        USUAL,
        "match",
        {"k8s_cluster_name": ('the "big" \\ one',)},
    ),
    "a cluster of another alphabet": (
        clusters("cluster", "apart", ("東京", "dev"), (Part("東京", 4, 9.0), *PARTS)),
        USUAL,
        "match",
        {"cluster": ("東京",)},
    ),
    "series of one cluster without the label": (
        clusters("cluster", "busiest", ("",), (Part("", 4, 99.0), *PARTS)), USUAL, "match", {"cluster": ("",)}
    ),
    "clusters that call each other": (
        clusters("source_cluster", "connected", ("prod", "dev")), USUAL, "cluster_label", "destination_cluster"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["shop", "prod-eu_2", "shop.prod"])
@pytest.mark.parametrize("case", RECOMMENDED)
def test_recommended_lines_are_settings(tmp_path: Path, case: str, name: str) -> None:
    """A file with nothing but these lines is accepted, and the setting has the value."""
    survey, options, setting, value = RECOMMENDED[case]
    lines = [one.toml for one in found(survey, options, mesh=name) if one.toml]
    assert len(lines) == 1
    file = tmp_path / "tagae.toml"
    file.write_text(lines[0], encoding="utf-8")
    settings = load(file)
    of = settings.collector if setting.startswith("collector.") else settings.collected[name]
    got = getattr(of, setting.removeprefix("collector."))
    assert (dict(got) if isinstance(value, dict) else got) == value


def test_an_address_that_may_hold_a_secret_is_not_shown() -> None:
    (line,) = (one.toml for one in found(clusters("cluster", "busiest", ("prod",)), address="") if one.toml)
    assert line == '[meshes.shop]\nmatch = {cluster = "prod"}'


def test_both_servers_of_a_pair_are_named() -> None:
    pair = Split("prometheus_replica", (Part("a", 4, 9.0), Part("b", 4, 9.0)), ("a",), "pair", 20.0)
    one = by_subject(found(replace(SOUND, replicas=pair)))["replicas"]
    assert one.outcome == "warning"
    assert "prometheus_replica: a, b" in one.found
    assert "reading a" in one.found


def test_clusters_that_names_contain_are_no_warning() -> None:
    one = by_subject(found(clusters("cluster", "named", ("prod", "dev"))))["clusters"]
    assert (one.outcome, one.found) == ("ok", "2, by the label cluster; read: prod, dev")


def test_jobs_that_scrape_the_same_targets_are_a_warning() -> None:
    one = by_subject(found(replace(SOUND, same_jobs=("pods", "envoys"))))["jobs"]
    assert (one.outcome, one.toml.splitlines()[-1]) == ("warning", 'match = {job = "pods"}')


def test_a_matcher_without_series_names_the_values_that_exist() -> None:
    survey = replace(SOUND, match=Match({"cluster": ("prdo",)}), unmatched_values={"cluster": ("dev", "prod")})
    one = by_subject(found(survey))["match"]
    assert one.outcome == "warning"
    assert '"prdo"' in one.found
    assert '"dev", "prod"' in one.remedy


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (PodCoverage(3, 1, 0, (), 0, ()), "1 pod with usage unknown to kube-state-metrics"),
        (PodCoverage(3, 0, 2, (), 0, ()), "2 pods with neither a limit"),
        (PodCoverage(3, 0, 0, ("shop/cron",), 0, ()), "without a service in the mesh: shop/cron"),
        (PodCoverage(3, 0, 0, (), 0, ("shop/gw",)), "services without pods in this cluster: shop/gw"),
        (PodCoverage(3, 0, 0, (), 0, tuple(f"shop/{i}" for i in range(9))), "shop/4 and 4 more"),
    ],
)
def test_pods_that_do_not_match_are_counted(pods: PodCoverage, words: str) -> None:
    warnings = [one for one in found(SOUND, pods=pods) if one.outcome == "warning"]
    assert len(warnings) == 1
    assert words in warnings[0].found
    assert warnings[0].remedy


def test_pods_are_not_mentioned_where_there_are_none() -> None:
    """Missing exporters are findings of their own."""
    nothing = PodCoverage(0, 0, 0, (), 0, ("shop/cart", "shop/gw"))
    assert found(SOUND, pods=nothing) == found(SOUND)
