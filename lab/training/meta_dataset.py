"""Training data of the meta-model: runs scored by the trained autoencoder. The page level is fitted in between."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lab.training.dataset import SETTLE, LabelledFault, TrainingRun, replay_run
from model.checkpoint import Checkpoint
from model.decision.meta_model import EITHER_WAY, RANK_INPUTS, MetaModel, detect_inputs, rank_inputs
from model.decision.ranking import measured_nats, with_neighbours
from model.decision.verdict_building import AFFECTED_SHARE, build_verdict
from model.evidence.gather import Evidence, gather
from model.evidence.kinds import EvidenceKind, K
from model.features import Array
from model.incidents.memory import IncidentMemory
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.threshold import follow_scores
from model.scoring.score import score, whole_mesh
from model.scoring.surprises import assemble_scores, surprises
from model.snapshot import BoolArray, IntArray
from model.state.mesh_state import MeshState

NO_CALLS_BETWEEN_PARTS: IntArray = np.zeros(0, np.int64)
OFFSETS = np.arange(-2.0, 8.0, 0.1)  # of the page level, surprise
KINDS_LEFT_OUT, LOGIT_LEFT_OUT = 0.25, 0.5  # probability of leaving out a kind of evidence, and the logit
EXCHANGED = 0.5  # share of the groups with latency and errors exchanged
RESERVE = 0.5  # surprise added to the page level, because real traffic is less regular than training traffic
INCIDENT_SHARE = 0.2  # share of the time in an incident that `probability` assumes, whatever it is in the runs
# Kinds of evidence for latency and their equivalents for errors. Training exchanges them at random.
COUNTERPARTS = {
    EvidenceKind.LATENCY: EvidenceKind.ERROR,
    EvidenceKind.LATENCY_RAW: EvidenceKind.ERROR_RAW,
    EvidenceKind.CALLS_IN_LATENCY: EvidenceKind.CALLS_IN_ERROR,
}

Progress = Callable[[str, int, int], None]  # what, done, of how many


@dataclass(frozen=True, slots=True)
class RankedGroup:
    """Services of which one is the root cause.

    Attributes:
        inputs: of the ranking, ``[R, RANK_INPUTS]``.
        measured: nats ``[R]`` that are not learned, see :func:`measured_nats`.
        culprit: row.
        weight: so that each fault has the same total weight, however long it lasts.
    """

    inputs: Tensor
    measured: Tensor
    culprit: int
    weight: float


@dataclass(frozen=True, slots=True)
class MetaExample:
    """One scored snapshot of a run.

    Attributes:
        evidence: gathered from it.
        level: page level without offset, surprise.
        interval_seconds: between snapshots, s.
        services: number in the mesh.
        observed_at: the snapshot's time.
        fault: in progress, if any.
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
        everyone, every_call = np.arange(len(state.node_ids)), np.arange(state.edge_index.shape[1])
        decoded = assemble_scores(state, [(everyone, every_call, part_score)], NO_CALLS_BETWEEN_PARTS)
        surprise = surprises(moment.observation, decoded, checkpoint.node_tail, checkpoint.edge_tail)
        size = len(state.node_ids), state.interval_seconds
        level, notice_level = policy.page_level(*size), policy.notice_level(*size)
        evidence = gather(state, moment.observation, decoded, surprise, policy, level)
        at = moment.snapshot.observed_at
        when = VerdictContext(at, index + 1, index + 1, state.interval_seconds, level, notice_level)
        _, memory = build_verdict(checkpoint.meta, evidence, state.memory, policy, when)
        if index >= SETTLE:
            services, interval = size
            examples.append(MetaExample(evidence, level, interval, services, at, moment.fault, moment.normal))
    return examples


def fit_page_offset(scored_runs: Sequence[Sequence[MetaExample]]) -> tuple[float, float, float]:
    """Find the least offset of the page level at which normal traffic keeps its budget of false alerts, and add
    ``RESERVE``.

    Returns:
        The offset, and the budgeted and observed false alerts per day at it, without the reserve.
    """
    policy = AlertPolicy()
    allowed = days = 0.0
    peaks = []
    for examples in scored_runs:
        normal = [s for s in examples if s.normal]
        span = sum(s.interval_seconds for s in normal) / 86400
        days += span
        allowed += span * policy.budget(examples[0].services) if examples else 0.0
        if examples:
            peaks.append(
                (_confirmed_excess(examples, at := policy.at_interval(examples[0].interval_seconds)), at.clear)
            )
    events = np.array([sum(_events(p, offset, clear) for p, clear in peaks) for offset in OFFSETS])
    best = int(np.argmax(events <= allowed)) if (events <= allowed).any() else len(OFFSETS) - 1
    return float(OFFSETS[best]) + RESERVE, allowed / max(days, 1e-9), float(events[best]) / max(days, 1e-9)


def _confirmed_excess(examples: Sequence[MetaExample], policy: AlertPolicy) -> list[float]:
    """Return, per normal snapshot, the offset at which just no service is confirmed: the k-th largest of its last n
    page scores, over the level."""
    recent: list[dict[str, float]] = []
    excess = []
    needed = policy.confirm + policy.doubtful
    for example in examples:
        recent = [*recent, dict(zip(example.evidence.names, example.evidence.page.tolist(), strict=True))]
        recent = recent[-policy.confirm_of - policy.doubtful :]
        if not example.normal:
            recent = []
            continue
        names = {name for scores in recent for name in scores}
        kth = (sorted((s.get(n, 0.0) for s in recent), reverse=True)[:needed] for n in names)
        worst = max((scores[-1] for scores in kth if len(scores) == needed), default=0.0)
        excess.append(worst - example.level)
    return excess


def _events(excess: Sequence[float], offset: float, clear: int) -> int:
    """Count how often the excess rises above the offset after at least ``clear`` snapshots below it."""
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
) -> tuple[dict[str, list[float]], float]:
    """Fit the ranking by cross-entropy within each group, and the probability by binary cross-entropy.

    The probability is weighted as if ``INCIDENT_SHARE`` of the snapshots were in an incident.

    Returns:
        Losses per step by name, and the share of training groups whose root cause is ranked first.
    """
    rank_data, detect_data = _meta_data(scored_runs, offset)
    if not rank_data:
        raise ValueError(
            f"runs: expected a fault that shows in the {len(scored_runs)} runs for the meta-model, got none; "
            "give more or longer runs with faults"
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
        first = [int(meta.root_cause_score(g.inputs, g.measured).argmax()) == g.culprit for g in rank_data]
    return history, float(np.mean(first))


def _meta_data(
    scored_runs: Sequence[Sequence[MetaExample]], offset: float
) -> tuple[list[RankedGroup], list[tuple[Tensor, bool]]]:
    """Return the groups in which a fault shows, and the inputs of the probability with the truth."""
    policy = AlertPolicy()
    ranks, detections = [], []
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
                rows = _incident_rows(evidence, level)
                place = np.flatnonzero(rows == evidence.names.index(fault.service))
                length = (fault.end - fault.start).total_seconds() / example.interval_seconds
                if len(place) and len(rows) > 1:
                    inputs, measured = rank_inputs(evidence, rows), measured_nats(evidence, rows)
                    ranks.append(RankedGroup(inputs, measured, int(place[0]), 1.0 / length))
    return ranks, detections


def _incident_rows(evidence: Evidence, level: float) -> IntArray:
    """Return the services that would be in an incident now, and their neighbours."""
    shown = (evidence.page > level) | (evidence.affected > AFFECTED_SHARE * level)
    return with_neighbours(np.flatnonzero(shown), evidence.calls)


def _augment(group: RankedGroup, generator: np.random.Generator) -> RankedGroup:
    """Vary a group as it might look elsewhere.

    Some evidence is removed, so that each kind learns to count by itself and the rest makes up for missing or weaker
    evidence. The logit is removed most often: it is nearly always right on simulated meshes, and a ranking that depends
    on it alone would not transfer to real ones. Half of the time latency and errors are exchanged, because a root cause
    shows in either in the same way.
    """
    kept = rank_mask(generator.random(K) >= KINDS_LEFT_OUT, logit=generator.random() >= LOGIT_LEFT_OUT)
    inputs = group.inputs[:, rank_exchange()] if generator.random() < EXCHANGED else group.inputs
    return replace(group, inputs=inputs * torch.from_numpy(kept))


def _rank_loss(meta: MetaModel, picked: Sequence[RankedGroup]) -> Tensor:
    scores = meta.root_cause_score(torch.cat([g.inputs for g in picked]), torch.cat([g.measured for g in picked]))
    groups = torch.split(scores, [len(g.inputs) for g in picked])
    losses = [-g.weight * functional.log_softmax(s, 0)[g.culprit] for s, g in zip(groups, picked, strict=True)]
    return torch.stack(losses).sum() / sum(g.weight for g in picked)


def rank_mask(kinds: BoolArray, *, logit: bool) -> Array:
    """Return ``[RANK_INPUTS]``: 1 for the inputs that :func:`rank_inputs` derives from these kinds ``[K]`` and from the
    network's logit."""
    table = np.concatenate([kinds, kinds[list(EITHER_WAY)]])
    return np.concatenate([table, table, [True, logit]]).astype(np.float32)


def rank_exchange() -> Tensor:
    """Return ``[RANK_INPUTS]``: the inputs of :func:`rank_inputs` with latency and errors exchanged."""
    places = np.arange(RANK_INPUTS)
    for table in (0, K + len(EITHER_WAY)):
        for latency, error in COUNTERPARTS.items():
            pair = [table + latency, table + error]
            places[pair] = places[pair[::-1]]
    return torch.from_numpy(places)
