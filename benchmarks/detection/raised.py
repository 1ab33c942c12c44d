"""The same lines with a higher limit: what a detector would have paged had only stronger incidents been told.

Budgets of false pages are compared in hindsight, alike for every detector: an incident is told once its score reaches
the limit, and the best limit within the budget counts; not always the lowest, as a page told later may be the true one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.evaluate.intervals import Estimate
from model.evaluate.located import LocatedRun, false_pages, outcomes, report
from model.evaluate.series import pages
from model.verdict import Verdict

LIMITS = 60  # that are tried, as quantiles of the incidents' highest scores


@dataclass(frozen=True, slots=True)
class Told:
    """One run under one detector: how it was judged, and its verdicts."""

    watch: LocatedRun
    verdicts: tuple[Verdict, ...]

    def raised(self, limit: float) -> LocatedRun:
        """With incidents from this score on."""
        verdicts = [
            replace(verdict, incidents=tuple(one for one in verdict.incidents if one.score >= limit))
            for verdict in self.verdicts
        ]
        if not any(verdict.incidents for verdict in verdicts):
            return replace(self.watch, pages=())
        told = pages([(verdict.observed_at, verdict) for verdict in verdicts])
        return replace(self.watch, pages=tuple(page for page in told if page.begin >= self.watch.begin))


@dataclass(frozen=True, slots=True)
class Limit:
    """What a limit makes of some runs: share of faults found, false pages an hour."""

    watches: tuple[LocatedRun, ...]
    recall: float
    false_pages_an_hour: float


def limits(runs: Sequence[Told]) -> list[Limit]:
    """From the lowest to the highest limit; the lowest is what was emitted."""
    highest: dict[tuple[int, str], float] = {}
    for number, run in enumerate(runs):
        for incident in (one for verdict in run.verdicts for one in verdict.incidents):
            highest[number, incident.id] = max(incident.score, highest.get((number, incident.id), 0.0))
    tried = np.quantile(list(highest.values()), np.linspace(0, 1, LIMITS)) if highest else [0.0]
    return [_limit([run.raised(float(limit)) for run in runs]) for limit in np.unique([0.0, *tried])]


def within(found: Sequence[Limit], budget: float) -> Estimate | None:
    """Recall with at most so many false pages an hour; None: with no limit tried."""
    allowed = [one for one in found if one.false_pages_an_hour <= budget]
    kept = max(allowed, key=lambda one: one.recall, default=None)
    return report(kept.watches).overall.recall if kept else None


def at_recall(found: Sequence[Limit], recall: float) -> Estimate | None:
    """False pages an hour where at least this share of the faults is found; None: it is never reached."""
    enough = [one for one in found if one.recall >= recall]
    kept = min(enough, key=lambda one: one.false_pages_an_hour, default=None)
    return report(kept.watches).false_pages_an_hour if kept else None


def _limit(watches: Sequence[LocatedRun]) -> Limit:
    told = [outcome.page is not None for watch in watches for outcome in outcomes(watch)]
    hours = sum((watch.end - watch.begin).total_seconds() for watch in watches) / 3600
    false = sum(len(false_pages(watch)) for watch in watches)
    return Limit(tuple(watches), float(np.mean(told)) if told else 0.0, false / hours if hours else 0.0)
