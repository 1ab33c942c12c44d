"""What the meta-model learns from: runs scored by the trained autoencoder, with the page level set in between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.checkpoint import Checkpoint
from model.incidents.tracking import AlertPolicy, IncidentMemory, confirm_services
from model.scoring.evidence import Evidence, K, assemble_scores, gather, surprises
from model.scoring.meta_model import (
    AFFECTED_SHARE,
    MetaModel,
    VerdictContext,
    detect_inputs,
    judge,
    page_nats,
    rank_exchange,
    rank_inputs,
    rank_mask,
    with_neighbours,
)
from model.scoring.score import score, whole_mesh
from model.snapshot import IntArray
from model.state.mesh_state import MeshState
from model.training.dataset import SETTLE, LabelledFault, TrainingRun, replay_run

NO_CALLS_BETWEEN_PARTS: IntArray = np.zeros(0, np.int64)
OFFSETS = np.arange(-2.0, 8.0, 0.1)  # of the page level, surprise
KINDS_LEFT_OUT, BLAME_LEFT_OUT = 0.25, 0.5  # share of the groups that are ranked without one
EXCHANGED = 0.5  # share of the groups that are ranked as if latency were errors and errors latency
RESERVE = 0.5  # surprise by which the page level is higher than training's traffic asks for: others are more restless
INCIDENT_SHARE = 0.2  # of the time, as far as `probability` is concerned, whatever the share in the runs

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RankedGroup:
    """Services of which one is the culprit.

    Attributes:
        inputs: of the ranking, ``[R, RANK_INPUTS]``.
        strange: nats ``[R]`` that speak for each whatever is learned.
        culprit: row.
        weight: so that each fault weighs the same, however long it lasts.
    """

    inputs: Tensor
    strange: Tensor
    culprit: int
    weight: float


@dataclass(frozen=True, slots=True)
class MetaExample:
    """One scored snapshot of a run.

    Attributes:
        evidence: gathered from it.
        level: page level without offset, surprise.
        interval_seconds: between snapshots, s.
        services: in the mesh.
        observed_at: the snapshot's time.
        fault: in progress, if any.
        normal: neither a fault nor its aftermath.
    """

    evidence: Evidence
    level: float
    interval_seconds: float
    services: int
    observed_at: datetime
    fault: LabelledFault | None
    normal: bool


def score_run(checkpoint: Checkpoint, run: TrainingRun, policy: AlertPolicy | None = None) -> list[MetaExample]:
    """A run scored snapshot by snapshot, the start left out in which nothing is known yet."""
    policy = policy or AlertPolicy()
    scenes: list[MetaExample] = []
    memory = IncidentMemory()

    def remembered(_: MeshState) -> IncidentMemory:
        return memory

    for index, moment in enumerate(replay_run(run, checkpoint.network.config, policy, remembered)):
        state = moment.state
        (said,) = score(checkpoint.network, [whole_mesh(state, moment.observation)])
        everyone, every_call = np.arange(len(state.node_ids)), np.arange(state.edge_index.shape[1])
        decoded = assemble_scores(state, [(everyone, every_call, said)], NO_CALLS_BETWEEN_PARTS)
        surprise = surprises(moment.observation, decoded, checkpoint.node_tail, checkpoint.edge_tail)
        evidence = gather(state, moment.observation, decoded, surprise, policy)
        level = policy.page_level(len(state.node_ids), state.interval_seconds)
        when = VerdictContext(moment.snapshot.observed_at, index + 1, index + 1, state.interval_seconds)
        _, memory = judge(checkpoint.meta, evidence, state.memory, policy, when, level)
        if index >= SETTLE:
            scenes.append(
                MetaExample(
                    evidence,
                    level,
                    state.interval_seconds,
                    len(state.node_ids),
                    moment.snapshot.observed_at,
                    moment.fault,
                    moment.normal,
                )
            )
    return scenes


def fit_page_offset(lessons: Sequence[Sequence[MetaExample]]) -> tuple[float, float, float]:
    """The least offset of the page level at which normal traffic keeps its budget of false pages, and ``RESERVE``.

    Returns:
        The offset, and promised and observed false pages a day at it, the reserve not used.
    """
    policy = AlertPolicy()
    allowed = days = 0.0
    peaks = []
    for scenes in lessons:
        normal = [s for s in scenes if s.normal]
        span = sum(s.interval_seconds for s in normal) / 86400
        days += span
        allowed += span * policy.budget(scenes[0].services) if scenes else 0.0
        peaks.append(_confirmed_excess(scenes, policy))
    events = np.array([sum(_events(p, offset, policy.clear) for p in peaks) for offset in OFFSETS])
    best = int(np.argmax(events <= allowed)) if (events <= allowed).any() else len(OFFSETS) - 1
    return float(OFFSETS[best]) + RESERVE, allowed / max(days, 1e-9), float(events[best]) / max(days, 1e-9)


def _confirmed_excess(scenes: Sequence[MetaExample], policy: AlertPolicy) -> list[float]:
    """Per normal snapshot the offset that just keeps every service unconfirmed: the k-th largest of its last n page
    scores, over the level."""
    recent: list[dict[str, float]] = []
    excess = []
    for scene in scenes:
        recent = [*recent, dict(zip(scene.evidence.names, scene.evidence.page.tolist(), strict=True))]
        recent = recent[-policy.confirm_of :]
        if not scene.normal:
            recent = []
            continue
        names = {name for scores in recent for name in scores}
        kth = (sorted((s.get(n, 0.0) for s in recent), reverse=True)[: policy.confirm] for n in names)
        worst = max((scores[-1] for scores in kth if len(scores) == policy.confirm), default=0.0)
        excess.append(worst - scene.level)
    return excess


def _events(excess: Sequence[float], offset: float, clear: int) -> int:
    """How many times the excess goes above the offset after at least ``clear`` snapshots below it."""
    count, quiet = 0, clear
    for value in excess:
        if value > offset:
            count += quiet >= clear
            quiet = 0
        else:
            quiet += 1
    return count


def train_meta(
    meta: MetaModel, lessons: Sequence[Sequence[MetaExample]], offset: float, steps: int, seed: int, progress: Progress
) -> tuple[dict[str, list[float]], float]:
    """Fit the ranking by cross-entropy within each group and the probability by binary cross-entropy, weighted as if
    ``INCIDENT_SHARE`` of the snapshots were in an incident.

    Returns:
        Losses per step by name, and the share of training groups whose culprit is ranked first.
    """
    rank_data, detect_data = _meta_data(lessons, offset)
    if not rank_data:
        raise ValueError(
            f"runs: expected a fault that shows in the {len(lessons)} runs kept for the meta-model, came none; give "
            "more or longer runs with faults"
        )
    torch.manual_seed(seed)
    optimiser = torch.optim.AdamW(meta.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    history: dict[str, list[float]] = {"ranking": [], "probability": []}
    generator = np.random.default_rng(seed)
    inputs = torch.stack([x for x, _ in detect_data])
    truth = torch.tensor([float(y) for _, y in detect_data])
    share = truth.mean().clamp(1e-3, 1 - 1e-3)
    weight = torch.where(truth > 0, INCIDENT_SHARE / share, (1 - INCIDENT_SHARE) / (1 - share))
    for step in range(1, steps + 1):
        picked = generator.integers(0, len(rank_data), 64)
        ranking = _rank_loss(meta, [_augment(rank_data[i], generator) for i in picked])
        rows = torch.from_numpy(generator.integers(0, len(truth), 512))
        logits = meta.detect(inputs[rows]).squeeze(1)
        probability = functional.binary_cross_entropy_with_logits(logits, truth[rows], weight[rows])
        optimiser.zero_grad()
        (ranking + probability).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        history["ranking"].append(float(ranking.detach()))
        history["probability"].append(float(probability.detach()))
        progress("training the meta-model", step, steps)
    with torch.inference_mode():
        first = [int(meta.root_cause_score(g.inputs, g.strange).argmax()) == g.culprit for g in rank_data]
    return history, float(np.mean(first))


def _meta_data(
    lessons: Sequence[Sequence[MetaExample]], offset: float
) -> tuple[list[RankedGroup], list[tuple[Tensor, bool]]]:
    """Groups in which a fault shows; mesh summaries with what was true."""
    policy = AlertPolicy()
    ranks, detections = [], []
    for scenes in lessons:
        memory = IncidentMemory()
        for scene in scenes:
            evidence, level = scene.evidence, scene.level + offset
            at = scene.observed_at
            hot, _ = confirm_services(memory, evidence.names, evidence.page, level, policy, at)
            memory = replace(memory, above_level=hot)
            fault = scene.fault
            if fault or scene.normal:
                detections.append((detect_inputs(evidence, memory, level), fault is not None))
            if fault and fault.service in evidence.names:
                rows = _incident_rows(evidence, level)
                place = np.flatnonzero(rows == evidence.names.index(fault.service))
                length = (fault.end - fault.start).total_seconds() / scene.interval_seconds
                if len(place) and len(rows) > 1:
                    inputs, strange = rank_inputs(evidence, rows), page_nats(evidence, rows)
                    ranks.append(RankedGroup(inputs, strange, int(place[0]), 1.0 / length))
    return ranks, detections


def _incident_rows(evidence: Evidence, level: float) -> IntArray:
    """Whoever would be in an incident now, and their neighbours."""
    shown = (evidence.page > level) | (evidence.affected > AFFECTED_SHARE * level)
    return with_neighbours(np.flatnonzero(shown), evidence.calls)


def _augment(group: RankedGroup, generator: np.random.Generator) -> RankedGroup:
    """A group as it might have been elsewhere. Without some of its evidence, so that each kind learns to speak for
    itself: what is missing, or weaker than in training, is then made up for by the rest. Blame is left out most often:
    on simulated meshes it is nearly always right, and a ranking that leans on it alone would not carry to real ones.
    Half of the time latency and errors change places: who is the cause shows in the same way in either."""
    kept = rank_mask(generator.random(K) >= KINDS_LEFT_OUT, blame=generator.random() >= BLAME_LEFT_OUT)
    inputs = group.inputs[:, rank_exchange()] if generator.random() < EXCHANGED else group.inputs
    return replace(group, inputs=inputs * torch.from_numpy(kept))


def _rank_loss(meta: MetaModel, picked: Sequence[RankedGroup]) -> Tensor:
    scores = meta.root_cause_score(torch.cat([g.inputs for g in picked]), torch.cat([g.strange for g in picked]))
    groups = torch.split(scores, [len(g.inputs) for g in picked])
    losses = [-g.weight * functional.log_softmax(s, 0)[g.culprit] for s, g in zip(groups, picked, strict=True)]
    return torch.stack(losses).sum() / sum(g.weight for g in picked)
