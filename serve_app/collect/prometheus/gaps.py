"""Find telemetry that a dialect cannot use because a system is not configured for it, and what a Prometheus scrapes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.groups import label_values
from serve_app.collect.prometheus.match import EVERYTHING, Match
from serve_app.collect.prometheus.query import Dialect, Gap, Query


@dataclass(frozen=True, slots=True)
class FoundGap:
    """A gap in the telemetry of a mesh.

    Attributes:
        source: name of the dialect.
        gap: what is missing, what you lose, and what to configure.
        series: number of series that cannot be used.
    """

    source: str
    gap: Gap
    series: int


@dataclass(frozen=True, slots=True)
class ScrapedJob:
    """A scrape job of a Prometheus: number of its targets, and of those whose last scrape succeeded."""

    targets: int
    up: int


def scraped_jobs(prometheus: Prometheus, at: datetime, within: float) -> dict[str, ScrapedJob] | None:
    """The scrape jobs, those with most targets first; None if a query failed.

    Args:
        prometheus: client of the mesh's Prometheus.
        at: the instant.
        within: deadline for all queries together, s.
    """
    answers = prometheus.ask({"targets": "count by (job) (up)", "up": "sum by (job) (up)"}, at, within)
    if any(answer.failed for answer in answers.values()):
        return None
    targets, up = (
        {
            row.get("job", ""): round(value)
            for row, value in zip(
                label_values(answers[name].samples, ("job",)), answers[name].samples.values.tolist(), strict=True
            )
        }
        for name in ("targets", "up")
    )
    most_first = sorted(targets, key=lambda job: (-targets[job], job))
    return {job: ScrapedJob(targets[job], up.get(job, 0)) for job in most_first}


def find_gaps(
    prometheus: Prometheus, dialects: Iterable[Dialect], at: datetime, within: float, match: Match = EVERYTHING
) -> list[FoundGap]:
    """The gaps of these dialects, and of those beside them. A failed query finds nothing.

    Args:
        prometheus: client of the mesh's Prometheus.
        dialects: kinds of mesh.
        at: the instant.
        within: deadline for all queries together, s.
        match: which series are the mesh's.
    """
    gaps = {
        f"{part.name}/{gap.name}": (part.name, gap)
        for dialect in dialects
        for parts in [(dialect, *dialect.beside)]
        for part in parts
        for gap in part.gaps
        if not (gap.of_calls and any(other is not part and not other.front_door for other in parts))
    }
    queries = {key: Query(gap.promql, ()).at(0, match=match) for key, (_, gap) in gaps.items()}
    answers = prometheus.ask(queries, at, within)
    counts = {key: round(answer.samples.values.sum()) for key, answer in answers.items() if not answer.failed}
    return [FoundGap(*gaps[key], count) for key, count in counts.items() if count]
