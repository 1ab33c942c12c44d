"""What a survey found, in sentences for people: how the series of a mesh arrive, and where they come from."""

import json
from collections.abc import Iterator, Sequence

from model.names import list_first
from serve_app.collect.base import Remark
from serve_app.collect.prometheus.clusters import DESTINATION_CLUSTER, Part, Split
from serve_app.collect.prometheus.groups import ENOUGH_SCRAPES, SCRAPES_PER_WINDOW, Freshness, ScrapedPart
from serve_app.collect.prometheus.query import QueryOptions
from serve_app.collect.prometheus.survey import Survey, make_plan

MAX_NAMED = 5
MESH, CONTAINERS = "the mesh", "containers"
ALMOST_ALL = 0.95  # share of the services that counts as the whole mesh


def remark(survey: Survey | None, options: QueryOptions) -> tuple[Remark, ...]:
    """What a survey found, usual or not; nothing without a survey."""
    if survey is None:
        return ()
    plan, given = make_plan(options, survey), options.window_seconds
    return (
        *_scrapes(survey.mesh, plan.window_seconds, given, MESH),
        *_scrapes(survey.containers, plan.container_window_seconds, given, CONTAINERS),
        *_newest(survey),
        *_lag(survey, options),
        *_clusters(survey),
        *_replicas(survey.replicas),
        *_jobs(survey.same_jobs),
        *_match(survey),
    )


def _usual(subject: str, found: str) -> Remark:
    return Remark(subject, found, is_usual=True)


def _scrapes(found: Freshness, window: float, given: float, of: str) -> Iterator[Remark]:
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
        yield Remark(
            "scrapes",
            f"{scraped}: their rates are over {window:g} s",
            "a shorter scrape_interval gives faster alerts"
            + (f"; recording rules must be written with window_seconds = {window:g}" if of == MESH else ""),
        )
    longest = max([found.interval_seconds, *(part.interval_seconds for part in found.slow)])
    if window < ENOUGH_SCRAPES * longest:
        yield Remark(
            "scrapes",
            f"{scraped}: rates over window_seconds = {window:g} have too few samples, and services come and go",
            f"set window_seconds = {SCRAPES_PER_WINDOW * longest:g}, or scrape_interval to "
            f"{window / SCRAPES_PER_WINDOW:g} s",
            f"window_seconds = {SCRAPES_PER_WINDOW * longest:g}",
        )
    elif window <= given:
        yield _usual("scrapes", f"{of}: every {found.interval_seconds:g} s")


def _example(part: ScrapedPart) -> str:
    return part.example if part.services == 1 else f"such as {part.example}"


def _newest(survey: Survey) -> Iterator[Remark]:
    arriving = ((MESH, survey.mesh), (CONTAINERS, survey.containers))
    ages = [f"{of}: {one.newest_seconds:.0f} s old" for of, one in arriving if one.newest_seconds is not None]
    if ages:
        yield _usual("newest sample", "; ".join(ages))


def _lag(survey: Survey, options: QueryOptions) -> Iterator[Remark]:
    late = survey.mesh.late_seconds
    if not late:
        return
    share = "" if survey.mesh.late_share > ALMOST_ALL else f" of {survey.mesh.late_share:.0%} of the services"
    seen = f"data arrive late: the newest sample{share} is {late:.0f} s old"
    if not survey.lag_seconds:
        yield Remark("lag", seen, "if this persists, check whether the targets are up, or raise behind_seconds")
        return
    needed = options.behind_seconds + survey.lag_seconds
    if options.follows_lag:
        yield Remark("lag", f"{seen}, so the newest snapshot is {needed:.0f} s old", "alerts are delayed by as much")
    else:
        setting = f"behind_seconds = {needed:.0f}"
        yield Remark("lag", seen, f"set {setting}: newer snapshots are incomplete", setting)


def _clusters(survey: Survey) -> Iterator[Remark]:
    found = survey.clusters
    if survey.container_clusters:
        label, count = survey.container_clusters
        yield Remark(
            "clusters",
            f"containers of {count} clusters in this Prometheus, but the series of the mesh have no label {label}",
            f"set match = {{{label} = ...}} for this mesh: CPU and memory of workloads with the same name are added up",
        )
    elif found is None:
        yield _usual("clusters", "one")
    if found is None:
        return
    seen = f"{len(found.parts)} clusters in this Prometheus ({_list_parts(found.parts, found.label)})"
    name = _toml(found.read[0]) if found.read else ""
    if found.choice == "busiest":
        yield Remark(
            "clusters",
            f"{seen}: reading {found.read[0] or 'the one without this label'}, {found.share:.0%} of the requests",
            f"set match = {{{found.label} = {name}}} for this mesh and others for the other clusters, or cluster_label "
            f"= {_toml(found.label)} for one mesh of all",
            f"match = {{{found.label} = {name}}}",
        )
    elif found.choice == "connected":
        yield Remark(
            "clusters",
            f"{seen} call each other: reading all; services with the same name are merged",
            f"set cluster_label = {_toml(DESTINATION_CLUSTER)} to keep them apart",
            f"cluster_label = {_toml(DESTINATION_CLUSTER)}",
        )
    elif found.choice == "apart":
        yield Remark(
            "clusters",
            f"{seen} have no service in common: reading all as one mesh",
            f"set match = {{{found.label} = {name}}} to read one of them",
            f"match = {{{found.label} = {name}}}",
        )
    elif not any(part.value for part in found.parts):
        yield Remark(
            "clusters",
            f"cluster_label = {_toml(found.label)}: no series of the mesh has this label",
            "correct cluster_label, or remove it",
        )
    else:
        yield _usual("clusters", f"{len(found.parts)}, by the label {found.label}; read: {', '.join(found.read)}")


def _replicas(found: Split | None) -> Iterator[Remark]:
    if found is None:
        yield _usual("replicas", "no series of two Prometheus servers")
    else:
        yield Remark(
            "replicas",
            f"{len(found.parts)} Prometheus servers scrape the same targets ({_list_parts(found.parts, found.label)}): "
            f"reading {', '.join(found.read)}",
            f"remove duplicates by the label {found.label} where this Prometheus is queried",
        )


def _jobs(same: Sequence[str]) -> Iterator[Remark]:
    if same:
        yield Remark(
            "jobs",
            f"the scrape jobs {list_first([job or 'none' for job in same], MAX_NAMED)} see the same services with the "
            "same traffic",
            "if they scrape the same targets, all rates are added: remove one of them, or set "
            f"match = {{job = {_toml(same[0])}}}",
            f"match = {{job = {_toml(same[0])}}}",
        )


def _match(survey: Survey) -> Iterator[Remark]:
    for label, values in survey.unmatched.items():
        yield Remark(
            "match",
            f"match: no series of the mesh has {label} = {' or '.join(map(_toml, survey.match.values[label]))}",
            f"expected one of {', '.join(map(_toml, values[:MAX_NAMED]))}" if values else "correct the label",
        )
    for label in survey.absent:
        yield Remark("match", f"match: no series of the mesh has the label {label}, so it is not used", "remove it")


def _list_parts(parts: Sequence[Part], label: str) -> str:
    return f"{label}: {list_first([part.value or 'none' for part in parts], MAX_NAMED)}"


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
