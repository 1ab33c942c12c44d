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
    """A survey's findings, usual or not; nothing without a survey."""
    if survey is None:
        return ()
    plan, given = make_plan(collector, survey), collector.window_seconds
    return (
        *_scrapes(survey.mesh, plan.window_seconds, given, MESH),
        *_scrapes(survey.containers, plan.container_window_seconds, given, CONTAINERS),
        *_newest(survey),
        *_lag(survey, collector),
        *_clusters(survey),
        _replicas(survey.replicas),
        *_jobs(survey.same_jobs),
        *_find_unmatched(survey),
    )


def _usual(subject: str, found: str) -> Finding:
    return Finding(subject, "ok", found)


def _unusual(subject: str, found: str, remedy: str, setting: str = "") -> Finding:
    return Finding(subject, "warning", found, remedy, setting)


def _scrapes(found: Freshness, window: float, given: float, of: str) -> Iterator[Finding]:
    if found.interval_seconds is None:
        if found.newest_seconds is not None:
            yield _usual("scrapes", f"{of}: not known yet, its series are too young")
        return
    slow = "".join(
        f", {part.services} of them ({f'job {part.job}, ' if part.job else ''}{_example(part)}) every "
        f"{part.interval_seconds:g} s"
        for part in found.slow[:MAX_NAMED]
    )
    series = "the services of the mesh" if of == MESH else of
    scraped = f"{series} are scraped every {found.interval_seconds:g} s{slow}"
    if window > given:
        remedy = "a shorter scrape_interval gives faster alerts"
        if of == MESH:
            remedy += f"; recording rules must be written with window_seconds = {window:g}"
        yield _unusual("scrapes", f"{scraped}: their rates are over {window:g} s", remedy)
    longest = max([found.interval_seconds, *(part.interval_seconds for part in found.slow)])
    if window < MIN_SCRAPES * longest:
        setting = f"window_seconds = {SCRAPES_PER_WINDOW * longest:g}"
        few = f"rates over window_seconds = {window:g} have too few samples, and services come and go"
        remedy = f"set {setting}, or scrape_interval to {window / SCRAPES_PER_WINDOW:g} s"
        yield _unusual("scrapes", f"{scraped}: {few}", remedy, setting)
    elif window <= given:
        yield _usual("scrapes", f"{of}: every {found.interval_seconds:g} s")


def _example(part: ScrapedPart) -> str:
    return part.example if part.services == 1 else f"such as {part.example}"


def _newest(survey: Survey) -> Iterator[Finding]:
    arriving = ((MESH, survey.mesh), (CONTAINERS, survey.containers))
    ages = [f"{of}: {one.newest_seconds:.0f} s old" for of, one in arriving if one.newest_seconds is not None]
    if ages:
        yield _usual("newest sample", "; ".join(ages))


def _lag(survey: Survey, collector: CollectorSettings) -> Iterator[Finding]:
    late = survey.mesh.late_seconds
    if not late:
        return
    share = "" if survey.mesh.late_share > WHOLE_MESH_SHARE else f" of {survey.mesh.late_share:.0%} of the services"
    seen = f"data arrive late: the newest sample{share} is {late:.0f} s old"
    needed = collector.behind_seconds + survey.lag_seconds
    setting = f"behind_seconds = {needed:.0f}"
    if not survey.lag_seconds:
        yield _unusual("lag", seen, "if this persists, check whether the targets are up, or raise behind_seconds")
    elif not is_set(collector, "behind_seconds"):
        yield _unusual("lag", f"{seen}, so the newest snapshot is {needed:.0f} s old", "alerts are delayed by as much")
    else:
        yield _unusual("lag", seen, f"set {setting}: newer snapshots are incomplete", setting)


def _clusters(survey: Survey) -> Iterator[Finding]:
    found = survey.clusters
    if survey.container_clusters:
        label, count = survey.container_clusters
        yield _unusual(
            "clusters",
            f"containers of {count} clusters in this Prometheus, but the series of the mesh have no label {label}",
            f"set match = {{{label} = ...}} for this mesh: CPU and memory of workloads with the same name are added up",
        )
    elif found is None:
        yield _usual("clusters", "one")
    if found is None:
        return
    seen = f"{len(found.parts)} clusters in this Prometheus ({_list_parts(found)})"
    match, label = _match_of(found.label, next(iter(found.read), "")), _toml(found.label)
    apart = f"cluster_label = {_toml(DESTINATION_CLUSTER)}"
    if found.choice == "busiest":
        reading = f"reading {found.read[0] or 'the one without this label'}, {found.share:.0%} of the requests"
        others = f"for this mesh and others for the other clusters, or cluster_label = {label} for one mesh of all"
        yield _unusual("clusters", f"{seen}: {reading}", f"set {match} {others}", match)
    elif found.choice == "connected":
        reading = "call each other: reading all; services with the same name are merged"
        yield _unusual("clusters", f"{seen} {reading}", f"set {apart} to keep them apart", apart)
    elif found.choice == "apart":
        reading = "have no service in common: reading all as one mesh"
        yield _unusual("clusters", f"{seen} {reading}", f"set {match} to read one of them", match)
    elif not any(part.value for part in found.parts):
        unknown = f"cluster_label = {label}: no series of the mesh has this label"
        yield _unusual("clusters", unknown, "correct cluster_label, or remove it")
    else:
        yield _usual("clusters", f"{len(found.parts)}, by the label {found.label}; read: {', '.join(found.read)}")


def _replicas(found: Split | None) -> Finding:
    if found is None:
        return _usual("replicas", "no series of two Prometheus servers")
    return _unusual(
        "replicas",
        f"{len(found.parts)} Prometheus servers scrape the same targets ({_list_parts(found)}): "
        f"reading {', '.join(found.read)}",
        f"remove duplicates by the label {found.label} where this Prometheus is queried",
    )


def _jobs(same: Sequence[str]) -> Iterator[Finding]:
    if same:
        match = _match_of("job", same[0])
        yield _unusual(
            "jobs",
            f"the scrape jobs {list_first([job or 'none' for job in same], MAX_NAMED)} see the same services with the "
            "same traffic",
            f"if they scrape the same targets, all rates are added: remove one of them, or set {match}",
            match,
        )


def _find_unmatched(survey: Survey) -> Iterator[Finding]:
    for label, values in survey.unmatched.items():
        wanted = " or ".join(map(_toml, survey.match.values[label]))
        expected = f"expected one of {', '.join(map(_toml, values[:MAX_NAMED]))}" if values else "correct the label"
        yield _unusual("match", f"match: no series of the mesh has {label} = {wanted}", expected)
    for label in survey.absent:
        absent = f"match: no series of the mesh has the label {label}, so it is not used"
        yield _unusual("match", absent, "remove it")


def _list_parts(found: Split) -> str:
    return f"{found.label}: {list_first([part.value or 'none' for part in found.parts], MAX_NAMED)}"


def _match_of(label: str, value: str) -> str:
    return f"match = {{{label} = {_toml(value)}}}"


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
