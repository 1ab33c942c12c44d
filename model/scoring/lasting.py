"""Deviations that are moderate, and last."""

from dataclasses import replace
from datetime import timedelta

import numpy as np

from model.incidents.confirmation import Streaks, confirm_services
from model.incidents.memory import IncidentMemory
from model.incidents.policy import LASTING_DECADES, AlertPolicy
from model.scoring.evidence import Evidence
from model.scoring.page_score import led_by_resources
from model.scoring.verdict_context import VerdictContext
from model.snapshot import BoolArray

# Times the page level, from which an alert needs a snapshot less, and a culprit can be another fault beside it.
SEVERE = 1.5


def is_clear(evidence: Evidence, level: float) -> BoolArray:
    """Return which candidates ``[M]`` are far above the page level, or have been near it for long."""
    clear: BoolArray = evidence.page > SEVERE * level
    return clear if evidence.lasting is None else clear | (evidence.lasting > 0)


def add_lasting(
    evidence: Evidence, memory: IncidentMemory, policy: AlertPolicy, when: VerdictContext
) -> tuple[IncidentMemory, Evidence]:
    """Add up to ``LASTING_DECADES`` to the page scores of services that deviate moderately for minutes.

    Each snapshot alone is not improbable enough for an alert. Chance reaches this level now and then, but hardly ever
    in 12 of 16 snapshots. A page score that is far above its level gains nothing. Neither does one that is mainly due
    to resources: users are not affected if a service needs more for minutes, and a notice reports it. A rollout lasts,
    too, so its snapshots do not count.
    """
    level, policy = when.level - LASTING_DECADES, replace(policy, confirm=policy.lasting, confirm_of=policy.lasting_of)
    counted = evidence.page if evidence.rolling is None else evidence.page * ~evidence.rolling
    above, lasting = confirm_services(memory.above_lasting, evidence.names, counted, level, policy, when.observed_at)
    lasting &= ~led_by_resources(evidence.kinds)
    decades = (np.float32(when.level + LASTING_DECADES) - evidence.page).clip(0, LASTING_DECADES) * lasting
    return replace(memory, above_lasting=above), replace(evidence, page=evidence.page + decades, lasting=decades)


def with_lasting_since(above: Streaks, lasting: Streaks, policy: AlertPolicy, when: VerdictContext) -> Streaks:
    """Let the streaks of services whose deviation lasts begin with the first of the snapshots that count."""
    earlier = dict(above)
    for name in above.keys() & lasting.keys():
        bits, (_, since) = lasting[name][0], above[name]
        if bits.bit_count() >= policy.lasting:
            first = when.observed_at - timedelta(seconds=(bits.bit_length() - 1) * when.interval_seconds)
            earlier[name] = above[name][0], min(since, first)
    return earlier
