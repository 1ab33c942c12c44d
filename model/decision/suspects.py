"""Suspects with their reasons."""

from datetime import datetime, timedelta

import numpy as np

from model.decision.meta_model import MetaModel
from model.decision.ranking import root_cause_shares
from model.evidence.evidence import Evidence
from model.evidence.explanations import SERIES
from model.features import Array
from model.incidents.memory import IncidentMemory
from model.incidents.policy import VerdictContext
from model.snapshot import IntArray
from model.verdict import MAX_SUSPECTS, MOVED, Reason, Suspect


def suspects(
    meta: MetaModel,
    evidence: Evidence,
    rows: IntArray,
    memory: IncidentMemory,
    when: VerdictContext,
    preferred: Array,
    independent: IntArray | None = None,
) -> tuple[Suspect, ...]:
    """Rank these candidates by root-cause score and explain the best ones.

    Args:
        meta, evidence, memory, when: as in :func:`build_verdict`.
        preferred: ``[M]`` nats for services that feedback named before.
        independent: candidates with a fault of their own, which are explained although others are more suspect.
    """
    if not len(rows):
        return ()
    share = root_cause_shares(meta, evidence, rows, preferred)
    order = np.argsort(-share, kind="stable")
    kept = np.isin(rows[order], [] if independent is None else independent)
    kept[: MAX_SUSPECTS - min(int(kept[MAX_SUSPECTS:].sum()), MAX_SUSPECTS - 1)] = True
    found = []
    for i in order[kept][:MAX_SUSPECTS].tolist():
        row = int(rows[i])
        reasons, context = reasons_of(evidence, row, memory, when), _context_of(evidence, row, memory, when)
        found.append(Suspect(evidence.names[row], float(share[i]), reasons, context))
    return tuple(found)


def reasons_of(evidence: Evidence, row: int, memory: IncidentMemory, when: VerdictContext) -> tuple[Reason, ...]:
    now, explanation = when.observed_at, evidence.explanation
    since = _deviating_since(evidence, row, memory, now)
    if explanation.gone[row]:
        since = min(since, now - timedelta(seconds=(int(explanation.gone[row]) - 1) * when.interval_seconds))
    reasons: list[Reason] = []
    columns = explanation.series, explanation.peer, explanation.observed, explanation.expected
    for series, place, observed, expected in zip(*(column[row].tolist() for column in columns), strict=True):
        if series < 0:
            continue
        peer = explanation.peers[place] if place >= 0 else ""
        source, destination = ("", peer) if SERIES[series] == MOVED else (peer, "")
        load = 1.0 if reasons else float(explanation.load[row])  # reported once
        reasons.append(
            Reason(
                metric=SERIES[series],
                observed=observed,
                expected=expected,
                since=since,
                source=source,
                destination=destination,
                load=load,
            )
        )
    return tuple(reasons)


def _context_of(evidence: Evidence, row: int, memory: IncidentMemory, when: VerdictContext) -> tuple[Reason, ...]:
    """Return ``Suspect.context``."""
    since = _deviating_since(evidence, row, memory, when.observed_at)
    facts = evidence.explanation.context.get(row, ())
    return tuple(
        Reason(metric=f.metric, observed=f.observed, expected=f.expected, since=since, destination=f.destination)
        for f in facts
    )


def _deviating_since(evidence: Evidence, row: int, memory: IncidentMemory, now: datetime) -> datetime:
    """Return the first snapshot of a candidate's present deviation."""
    track = memory.tracks.get(evidence.names[row])
    return track.above_since or now if track else now
