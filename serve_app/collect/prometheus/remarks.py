"""Describes a survey's findings in sentences: how a mesh's series arrive, and where they come from."""

import json
from collections.abc import Iterator, Sequence

from model.names import list_first
from serve_app.collect.base import Finding
from serve_app.collect.prometheus.clusters import DESTINATION_CLUSTER, Split
from serve_app.collect.prometheus.groups import MIN_SCRAPES, SCRAPES_PER_WINDOW, Freshness, ScrapedPart
from serve_app.collect.prometheus.survey import Survey, is_set, make_plan
from serve_app.settings import CollectorSettings

MAX_NAMED = 5
MESH, CONTAINERS = "the mesh", "containers"
WHOLE_MESH_SHARE = 0.95  # a larger share of the services counts as the whole mesh


def remark(survey: Survey | None, collector: CollectorSettings) -> tuple[Finding, ...]:
    """Return a survey's findings, usual or not; nothing without a survey."""
    if survey is None:
        return ()
    plan, configured_window = make_plan(collector, survey), collector.window_seconds
    return (
        *_scrapes(survey.mesh, plan.window_seconds, configured_window, MESH),
        *_scrapes(survey.containers, plan.container_window_seconds, configured_window, CONTAINERS),
        *_newest(survey),
        *_lag(survey, collector),
        *_clusters(survey),
        _replicas(survey.replicas),
        *_jobs(survey.same_jobs),
        *_find_unmatched(survey),
    )


def _scrapes(freshness: Freshness, window: float, configured_window: float, subject: str) -> Iterator[Finding]:
    if freshness.interval_seconds is None:
        if freshness.newest_seconds is not None:
            yield Finding("scrapes", "ok", f"{subject}: not known yet, its series are too young")
        return
    slow = "".join(
        f", {part.services} of them ({f'job {part.job}, ' if part.job else ''}{_example(part)}) every "
        f"{part.interval_seconds:g} s"
        for part in freshness.slow[:MAX_NAMED]
    )
    series = "the services of the mesh" if subject == MESH else subject
    state = f"{series} are scraped every {freshness.interval_seconds:g} s{slow}"
    if window > configured_window:
        remedy = "a shorter scrape_interval gives faster alerts"
        if subject == MESH:
            remedy += f"; recording rules must be written with window_seconds = {window:g}"
        yield Finding("scrapes", "warning", f"{state}: their rates are over {window:g} s", remedy)
    longest = max([freshness.interval_seconds, *(part.interval_seconds for part in freshness.slow)])
    if window < MIN_SCRAPES * longest:
        setting = f"window_seconds = {SCRAPES_PER_WINDOW * longest:g}"
        problem = f"rates over window_seconds = {window:g} have too few samples, and services come and go"
        remedy = f"set {setting}, or scrape_interval to {window / SCRAPES_PER_WINDOW:g} s"
        yield Finding("scrapes", "warning", f"{state}: {problem}", remedy, setting)
    elif window <= configured_window:
        yield Finding("scrapes", "ok", f"{subject}: every {freshness.interval_seconds:g} s")


def _example(part: ScrapedPart) -> str:
    return part.example if part.services == 1 else f"such as {part.example}"


def _newest(survey: Survey) -> Iterator[Finding]:
    newest = ((MESH, survey.mesh.newest_seconds), (CONTAINERS, survey.containers.newest_seconds))
    ages = [f"{subject}: {age:.0f} s old" for subject, age in newest if age is not None]
    if ages:
        yield Finding("newest sample", "ok", "; ".join(ages))


def _lag(survey: Survey, collector: CollectorSettings) -> Iterator[Finding]:
    late = survey.mesh.late_seconds
    if not late:
        return
    share = "" if survey.mesh.late_share > WHOLE_MESH_SHARE else f" of {survey.mesh.late_share:.0%} of the services"
    state = f"data arrive late: the newest sample{share} is {late:.0f} s old"
    behind = collector.behind_seconds + survey.lag_seconds
    setting = f"behind_seconds = {behind:.0f}"
    if not survey.lag_seconds:
        yield Finding(
            "lag", "warning", state, "if this persists, check whether the targets are up, or raise behind_seconds"
        )
    elif not is_set(collector, "behind_seconds"):
        yield Finding(
            "lag", "warning", f"{state}, so the newest snapshot is {behind:.0f} s old", "alerts are delayed by as much"
        )
    else:
        yield Finding("lag", "warning", state, f"set {setting}: newer snapshots are incomplete", setting)


def _clusters(survey: Survey) -> Iterator[Finding]:
    split = survey.clusters
    if survey.container_clusters:
        label, count = survey.container_clusters
        yield Finding(
            "clusters",
            "warning",
            f"containers of {count} clusters in this Prometheus, but the series of the mesh have no label {label}",
            f"set match = {{{label} = ...}} for this mesh: CPU and memory of workloads with the same name are added up",
        )
    if split is None:
        if not survey.container_clusters:
            yield Finding("clusters", "ok", "one")
        return
    state = f"{len(split.parts)} clusters in this Prometheus ({_list_parts(split)})"
    match, label = _match_of(split.label, next(iter(split.read), "")), _toml(split.label)
    apart = f"cluster_label = {_toml(DESTINATION_CLUSTER)}"
    if split.choice == "busiest":
        reading = f"reading {split.read[0] or 'the one without this label'}, {split.share:.0%} of the requests"
        remedy = f"for this mesh and others for the other clusters, or cluster_label = {label} for one mesh of all"
        yield Finding("clusters", "warning", f"{state}: {reading}", f"set {match} {remedy}", match)
    elif split.choice == "connected":
        reading = "call each other: reading all; services with the same name are merged"
        yield Finding("clusters", "warning", f"{state} {reading}", f"set {apart} to keep them apart", apart)
    elif split.choice == "apart":
        reading = "have no service in common: reading all as one mesh"
        yield Finding("clusters", "warning", f"{state} {reading}", f"set {match} to read one of them", match)
    elif not any(part.value for part in split.parts):
        unknown = f"cluster_label = {label}: no series of the mesh has this label"
        yield Finding("clusters", "warning", unknown, "correct cluster_label, or remove it")
    else:
        yield Finding(
            "clusters", "ok", f"{len(split.parts)}, by the label {split.label}; read: {', '.join(split.read)}"
        )


def _replicas(split: Split | None) -> Finding:
    if split is None:
        return Finding("replicas", "ok", "no series of two Prometheus servers")
    return Finding(
        "replicas",
        "warning",
        f"{len(split.parts)} Prometheus servers scrape the same targets ({_list_parts(split)}): "
        f"reading {', '.join(split.read)}",
        f"remove duplicates by the label {split.label} where this Prometheus is queried",
    )


def _jobs(jobs: Sequence[str]) -> Iterator[Finding]:
    if jobs:
        match = _match_of("job", jobs[0])
        yield Finding(
            "jobs",
            "warning",
            f"the scrape jobs {list_first([job or 'none' for job in jobs], MAX_NAMED)} see the same services with the "
            "same traffic",
            f"if they scrape the same targets, all rates are added: remove one of them, or set {match}",
            match,
        )


def _find_unmatched(survey: Survey) -> Iterator[Finding]:
    for label, values in survey.unmatched_values.items():
        setting = " or ".join(map(_toml, survey.match.values[label]))
        remedy = f"expected one of {', '.join(map(_toml, values[:MAX_NAMED]))}" if values else "correct the label"
        yield Finding("match", "warning", f"match: no series of the mesh has {label} = {setting}", remedy)
    for label in survey.absent_labels:
        text = f"match: no series of the mesh has the label {label}, so it is not used"
        yield Finding("match", "warning", text, "remove it")


def _list_parts(split: Split) -> str:
    return f"{split.label}: {list_first([part.value or 'none' for part in split.parts], MAX_NAMED)}"


def _match_of(label: str, value: str) -> str:
    return f"match = {{{label} = {_toml(value)}}}"


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
