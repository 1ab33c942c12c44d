"""Shifts of the levels of alerts and notices, by feedback and sensitivity, and how large they have to be."""

from collections.abc import Sequence

import numpy as np

from model.evidence.kinds import RESOURCES, EvidenceKind, page_score, symptoms
from model.features import Array
from model.incidents.feedback import SHORTAGE, level_shifts
from model.incidents.memory import IncidentMemory

SHOWN_BY = (
    (EvidenceKind.LATENCY, EvidenceKind.LATENCY_RAW, EvidenceKind.CALLS_IN_LATENCY),
    (EvidenceKind.ERROR, EvidenceKind.ERROR_RAW, EvidenceKind.CALLS_IN_ERROR),
    (EvidenceKind.VANISHED,),
    (EvidenceKind.RESOURCES,),
)
SYMPTOM = np.array(  # column of ``feedback.SYMPTOMS`` for each kind; -1: context only
    [next((symptom for symptom, kinds in enumerate(SHOWN_BY) if kind in kinds), -1) for kind in EvidenceKind]
)
MARGIN = 0.3  # decades: after a false alarm, a similar deviation up to twice as improbable raises no alert either
NOTICE_MARGIN = 3.0  # the same for a useless notice: a shortage that lasts becomes more surprising for a few minutes


def apply_level_shifts(kinds: Array, memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the evidence ``[N, K]`` less the shifts of page levels from feedback and sensitivity."""
    if not memory.feedback and not memory.active_mutes.levels:
        return kinds
    return lower_evidence(kinds, _level_shifts(memory, names)[:, : len(SHOWN_BY)])


def apply_notice_shifts(notice: Array, memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the surprise ``[N]`` of shortages less the shifts of their levels from feedback and sensitivity."""
    if not memory.feedback and not memory.active_mutes.levels:
        return notice
    return np.maximum(notice - _level_shifts(memory, names)[:, SHORTAGE], 0) * (notice > 0)


def _level_shifts(memory: IncidentMemory, names: Sequence[str]) -> Array:
    """Return the decades ``[N, 5]`` by which feedback and sensitivity raise levels, by ``feedback.SYMPTOMS``."""
    return level_shifts(memory.feedback, names) + memory.active_mutes.level_shifts(names)[:, None]


def lower_evidence(kinds: Array, levels: Array) -> Array:
    """Return the evidence ``[N, K]`` less ``levels``, ``[N, 4]`` by symptom or ``[N, 1]``."""
    moves = np.broadcast_to(levels, (len(kinds), len(SHOWN_BY)))[:, SYMPTOM] * (SYMPTOM >= 0)
    moves[:, EvidenceKind.RESOURCES] /= RESOURCES
    return np.where(kinds > 0, np.maximum(kinds - moves, 0), 0).astype(np.float32)


def excess(kinds: Array, level: Array | float) -> Array:
    """Return by how many decades ``[N, 4]`` the page levels must rise, by symptom, so that this evidence raises no
    alert.

    All symptoms are reduced by the same share, because the page score of scaled symptoms is the scaled page score.
    """
    # A level below 0, of snapshots that are years apart, permits no symptom at all.
    score, max_score = page_score(kinds), np.maximum(level - MARGIN, 0)
    share = np.where(score > max_score, 1 - max_score / np.where(score > max_score, score, 1), 0)
    return symptoms(kinds) * share[:, None].astype(np.float32)


def notice_excess(notice: Array, memory: IncidentMemory, names: Sequence[str], level: float) -> Array:
    """Return by how many decades ``[N]`` the levels of shortages must rise so that this evidence raises no notice.

    Args:
        notice: ``[N]`` surprise of shortages, less the shifts of :func:`apply_notice_shifts`.
    """
    shift = level_shifts(memory.feedback, names)[:, SHORTAGE]
    return np.maximum(notice + shift - np.float32(level - NOTICE_MARGIN), 0) * (notice > 0)
