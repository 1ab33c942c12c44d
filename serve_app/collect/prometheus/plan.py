"""How a mesh is polled: its rate windows, its matchers and the age of its newest snapshot.

The settings state what is wanted; surveys of the mesh's series show what is needed.
"""

import time
from dataclasses import dataclass
from datetime import datetime

from serve_app.collect.prometheus.client import Prometheus
from serve_app.collect.prometheus.freshness import Clock, follow
from serve_app.collect.prometheus.match import EVERYTHING, Match
from serve_app.collect.prometheus.remarks import PollTiming, Remark, explain_empty, remark
from serve_app.collect.prometheus.survey import AGAIN_SECONDS, SOON_SECONDS, Survey, SurveyedQueries, Surveyor


@dataclass(frozen=True, slots=True)
class SeriesScope:
    """Which series of a store are the mesh's.

    Attributes:
        match: matchers of all queries.
        cluster_label: label whose value is a part of each namespace; empty: none.
    """

    match: Match = EVERYTHING
    cluster_label: str = ""


@dataclass(frozen=True, slots=True)
class GivenTiming:
    """Timing of the settings.

    Attributes:
        window_seconds: rate window.
        behind_seconds: age of the newest snapshot.
        follows_scrapes: whether the window is longer where scrapes are too rare for it.
        follows_lag: whether the newest snapshot is older where data arrive later.
    """

    window_seconds: float = 60.0
    behind_seconds: float = 15.0
    follows_scrapes: bool = False
    follows_lag: bool = False


class PollPlan:
    """The plan of one mesh. Every ten minutes it looks at the mesh's series again, and sooner if they are not known
    well or change.

    Args:
        prometheus: client of the mesh's Prometheus.
        scope: which series are the mesh's.
        given: timing of the settings.
        within: deadline of each round of queries, s.
        clock: Unix time, s.

    Attributes:
        survey: the newest result; None before the first.
        match: matchers of all queries.
        window_seconds: rate window of the mesh.
        container_window_seconds: rate window of containers, which have scrape jobs of their own.
    """

    def __init__(
        self, prometheus: Prometheus, scope: SeriesScope, given: GivenTiming, within: float, clock: Clock = time.time
    ) -> None:
        self._surveyor = Surveyor(prometheus, scope.match, scope.cluster_label, given.behind_seconds)
        self._scope, self._given, self._within, self._clock = scope, given, within, clock
        self._looked_at: datetime | None = None  # even without a result
        self._failures = 0  # in a row
        self.survey: Survey | None = None
        self.match = scope.match
        self.window_seconds = self.container_window_seconds = given.window_seconds

    def update(self, queries: SurveyedQueries, at: datetime) -> bool:
        """Look at the series if it is time. Returns whether the plan is another one now."""
        known = self.survey is not None and self.survey.is_certain
        soon = min(SOON_SECONDS * 2**self._failures, AGAIN_SECONDS)  # a Prometheus under load is left alone
        changed = self.look(queries, at, AGAIN_SECONDS if known else soon)
        return self._watch_servers(queries, at) or changed

    def look(self, queries: SurveyedQueries, at: datetime, apart: float = SOON_SECONDS) -> bool:
        """Look at the series unless the last time was less than ``apart`` s ago. Returns whether the plan is another
        one now."""
        if self._looked_at is not None and abs((at - self._looked_at).total_seconds()) < apart:
            return False
        self._looked_at = at
        survey = self._surveyor.look(queries, at, self._clock(), self._within, self.survey)
        self._failures = self._failures + 1 if survey is None else 0
        if survey is None:
            return False
        before = (self.match, self.window_seconds, self.container_window_seconds)
        self.survey, self.match = survey, survey.match
        if self._given.follows_scrapes:
            self.window_seconds = follow(self._given.window_seconds, survey.mesh)
            self.container_window_seconds = follow(self._given.window_seconds, survey.containers)
        return before != (self.match, self.window_seconds, self.container_window_seconds)

    def forget(self) -> None:
        """Start again, for other queries."""
        self.survey, self._looked_at = None, None

    def _watch_servers(self, queries: SurveyedQueries, at: datetime) -> bool:
        """Read the other Prometheus of a pair as soon as the data of the one that is read stop, before rates fall."""
        replicas = self.survey.replicas if self.survey else None
        if replicas is None or self._looked_at == at:
            return False
        newest = self._surveyor.newest_by_server(queries.services, replicas, at, self._clock(), self._within)
        return replicas.have_stopped(newest) and self.look(queries, at, 0.0)

    @property
    def clusters_read(self) -> tuple[str, ...]:
        """The clusters that are read; empty without several."""
        clusters = self.survey.clusters if self.survey else None
        return clusters.read if clusters else ()

    @property
    def behind_seconds(self) -> float:
        """How old the newest snapshot should be because data arrive late; 0: as in the settings."""
        lag = self.survey.lag_seconds if self.survey else 0.0
        return self._given.behind_seconds + lag if lag and self._given.follows_lag else 0.0

    @property
    def reads_slow_rules(self) -> bool:
        """Whether recording rules with the window of the settings still have two samples, where another is needed."""
        interval = self.survey.mesh.interval_seconds if self.survey else None
        given = self._given.window_seconds
        return interval is not None and given != self.window_seconds and given >= 2 * interval

    def remarks(self) -> tuple[Remark, ...]:
        """Remarks on unusual properties of the series."""
        return remark(self.survey, self._timing(), self._scope.cluster_label) if self.survey else ()

    def explain_empty(self, why: str) -> str:
        """Why a snapshot has no services, with what is known about the series."""
        return explain_empty(why, self.survey, self._timing())

    def _timing(self) -> PollTiming:
        given = self._given
        return PollTiming(
            self.window_seconds,
            self.container_window_seconds,
            given.window_seconds,
            given.behind_seconds,
            given.follows_lag,
        )
