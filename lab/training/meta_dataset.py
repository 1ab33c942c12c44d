"""Training data for the meta-model: runs scored by the trained autoencoder. The page level is fitted in between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lab.training.dataset import SETTLE, LabelledFault, TrainingRun, replay_run
from model.checkpoint import Checkpoint
from model.decision.meta_model import MetaModel, detect_inputs
from model.decision.ranking import root_cause_shares, with_neighbours
from model.decision.verdict_building import AFFECTED_SHARE, build_verdict
from model.evidence.gather import Evidence, gather
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.threshold import follow_scores
from model.scoring.score import score, whole_mesh
from model.scoring.surprises import assemble_scores, surprises
from model.snapshot import IntArray
from model.state.mesh_state import MeshState

NO_CALLS_BETWEEN_PARTS: IntArray = np.zeros(0, np.int64)
OFFSETS = np.arange(-2.0, 8.0, 0.1)  # of the page level, surprise
RESERVE = 0.5  # surprise added to the page level, because real traffic is less regular than training traffic
INCIDENT_SHARE = 0.2  # share of time in incidents that `probability` assumes, whatever it is in the runs
Progress = Callable[[str, int, int], None]  # phase, completed steps, all steps


@dataclass(frozen=True, slots=True)
class MetaExample:
    """A scored snapshot.

    Attributes:
        level: page level without offset, surprise.
        services: number in the mesh.
        fault: the fault in progress, if any.
        normal: whether neither a fault nor its aftermath is in progress.
    """

    evidence: Evidence
    level: float
    interval_seconds: float
    services: int
    observed_at: datetime
    fault: LabelledFault | None
    normal: bool


def score_run(checkpoint: Checkpoint, run: TrainingRun) -> list[MetaExample]:
    """Score a run snapshot by snapshot, without its first ``SETTLE`` snapshots."""
    policy = AlertPolicy()
    examples: list[MetaExample] = []
    memory = IncidentMemory()

    def current_memory(_: MeshState) -> IncidentMemory:
        return memory

    for index, moment in enumerate(replay_run(run, checkpoint.network.config, policy, current_memory)):
        state = moment.state
        (part_score,) = score(checkpoint.network, [whole_mesh(state, moment.observation)])
        all_services, all_calls = np.arange(len(state.node_ids)), np.arange(state.edge_index.shape[1])
        scores = assemble_scores(state, [(all_services, all_calls, part_score)], NO_CALLS_BETWEEN_PARTS)
        surprise = surprises(moment.observation, scores, checkpoint.node_tail, checkpoint.edge_tail)
        size = len(state.node_ids), state.interval_seconds
        level, notice_level = policy.page_level(*size), policy.notice_level(*size)
        evidence = gather(state, moment.observation, scores, surprise, policy, level)
        at = moment.snapshot.observed_at
        context = VerdictContext(at, index + 1, index + 1, state.interval_seconds, level, notice_level)
        _, memory = build_verdict(checkpoint.meta, evidence, state.memory, policy, context)
        if index >= SETTLE:
            services, interval = size
            examples.append(MetaExample(evidence, level, interval, services, at, moment.fault, moment.normal))
    return examples


def fit_page_offset(scored_runs: Sequence[Sequence[MetaExample]]) -> tuple[float, float, float]:
    """Find the smallest offset of the page level at which normal traffic keeps its budget of false alerts.

    Returns:
        The offset plus ``RESERVE``, and the budgeted and observed false alerts per day without the reserve.
    """
    policy = AlertPolicy()
    budget = days = 0.0
    peaks = []
    for examples in scored_runs:
        normal = [s for s in examples if s.normal]
        span = sum(s.interval_seconds for s in normal) / 86400
        days += span
        budget += span * policy.budget(examples[0].services) if examples else 0.0
        if examples:
            peaks.append(
                (_confirmed_excess(examples, at := policy.at_interval(examples[0].interval_seconds)), at.clear)
            )
    events = np.array([sum(_events(p, offset, clear) for p, clear in peaks) for offset in OFFSETS])
    best = int(np.argmax(events <= budget)) if (events <= budget).any() else len(OFFSETS) - 1
    return float(OFFSETS[best]) + RESERVE, budget / max(days, 1e-9), float(events[best]) / max(days, 1e-9)


def _confirmed_excess(examples: Sequence[MetaExample], policy: AlertPolicy) -> list[float]:
    """Return, per normal snapshot, the smallest offset without a confirmed service: the k-th largest of its last n page
    scores, over the level."""
    recent: list[dict[str, float]] = []
    excess = []
    required_scores = policy.confirm + policy.doubtful
    for example in examples:
        recent = [*recent, dict(zip(example.evidence.names, example.evidence.page.tolist(), strict=True))]
        recent = recent[-policy.confirm_of - policy.doubtful :]
        if not example.normal:
            recent = []
            continue
        names = {name for scores in recent for name in scores}
        kth = (sorted((s.get(n, 0.0) for s in recent), reverse=True)[:required_scores] for n in names)
        worst = max((scores[-1] for scores in kth if len(scores) == required_scores), default=0.0)
        excess.append(worst - example.level)
    return excess


def _events(excess: Sequence[float], offset: float, clear: int) -> int:
    """Count the rises above the offset after at least ``clear`` snapshots below it."""
    count, quiet = 0, clear
    for value in excess:
        if value > offset:
            count += quiet >= clear
            quiet = 0
        else:
            quiet += 1
    return count


def train_meta(
    meta: MetaModel,
    scored_runs: Sequence[Sequence[MetaExample]],
    offset: float,
    steps: int,
    seed: int,
    progress: Progress,
) -> tuple[list[float], float]:
    """Fit the probability by binary cross-entropy, weighted as if ``INCIDENT_SHARE`` of the snapshots had an incident.

    Returns:
        Losses per step, and the share of snapshots with a fault whose root cause is ranked first.
    """
    data, firsts = _meta_data(scored_runs, offset)
    if not firsts:
        raise ValueError(
            f"runs: expected a fault that shows in the {len(scored_runs)} runs for the meta-model, got none; "
            "give more or longer runs with faults"
        )
    torch.manual_seed(seed)
    optimiser = torch.optim.AdamW(meta.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    history: list[float] = []
    generator = np.random.default_rng(seed)
    inputs = torch.stack([x for x, _ in data])
    truth = torch.tensor([float(y) for _, y in data])
    share = truth.mean().clamp(1e-3, 1 - 1e-3)
    weight = torch.where(truth > 0, INCIDENT_SHARE / share, (1 - INCIDENT_SHARE) / (1 - share))
    for step in range(1, steps + 1):
        rows = torch.from_numpy(generator.integers(0, len(truth), 512))
        logits = meta.detect(inputs[rows]).squeeze(1)
        loss = functional.binary_cross_entropy_with_logits(logits, truth[rows], weight[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        history.append(float(loss.detach()))
        progress("training the meta-model", step, steps)
    return history, float(np.mean(firsts))


def _meta_data(
    scored_runs: Sequence[Sequence[MetaExample]], offset: float
) -> tuple[list[tuple[Tensor, bool]], list[bool]]:
    """Return the probability's inputs with the truth, and whether the root cause is ranked first in each snapshot that
    shows a fault."""
    policy = AlertPolicy()
    detections, firsts = [], []
    for examples in scored_runs:
        memory = IncidentMemory()
        for example in examples:
            evidence, level = example.evidence, example.level + offset
            at = example.observed_at
            tracks = follow_scores(memory.tracks, evidence.names, evidence.page, level, policy, at)
            memory = replace(memory, tracks=tracks)
            fault = example.fault
            if fault or example.normal:
                detections.append((detect_inputs(evidence, memory, level), fault is not None))
            if fault and fault.service in evidence.names:
                rows, culprit = _incident_rows(evidence, level), evidence.names.index(fault.service)
                if culprit in rows and len(rows) > 1:
                    shares = root_cause_shares(evidence, rows, np.zeros(len(evidence.names), np.float32))
                    firsts.append(bool(rows[shares.argmax()] == culprit))
    return detections, firsts


def _incident_rows(evidence: Evidence, level: float) -> IntArray:
    """Return the services that would be in an incident, and their neighbours."""
    is_affected = (evidence.page > level) | (evidence.affected > AFFECTED_SHARE * level)
    return with_neighbours(np.flatnonzero(is_affected), evidence.calls)
