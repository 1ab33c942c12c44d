"""The whole path as ordinary function calls in one process, without Ray.

    MeshSnapshot -> lay -> PartitionTask[] -> score -> PartitionScore[] -> weigh -> Evidence -> combine -> Verdict

The Ray deployments only spread these steps over replicas: the session lays and weighs, the scorers score, the
meta-model combines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from model.checkpoint import Checkpoint
from model.features import RATE, Array
from model.incidents.context import explained
from model.incidents.mutes import ActiveMutes, active_mutes
from model.incidents.tracking import AlertPolicy, IncidentMemory
from model.scoring.evidence import Decoded, Evidence, Surprises, assembled, gather, surprises, young_calls
from model.scoring.meta_model import Circumstances, CrossingCalls, decode_crossing, judge, with_crossing
from model.scoring.score import PartitionScore, PartitionTask, edge_inputs, node_inputs, score
from model.snapshot import IntArray, MeshSnapshot, ServicePolicy, namespace_of
from model.state.adapter_fit import adopted, fit, unadapted
from model.state.filters import SLOW_CENTRE
from model.state.mesh_state import MeshState, Observation, observe
from model.verdict import Verdict
from partitioning import Partition, PartitionPlan, plan, rebalance, topology_digest
from serve_app.api.views import Deviations
from serve_app.settings import Settings


@dataclass(frozen=True, slots=True)
class Options:
    """How a mesh is scored.

    Attributes:
        window_size: W, snapshots kept.
        max_services: core services of a part at most; a mesh up to this size is one part.
        partition_seed: of METIS.
        policy: when to page.
        adapt: the mesh's adapter is heeded.
        adapt_every: snapshots between two fits of it.
        services: what settings say of the pages of its services.
    """

    window_size: int = 120
    max_services: int = 2000
    partition_seed: int = 0
    policy: AlertPolicy = field(default_factory=AlertPolicy)
    adapt: bool = True
    adapt_every: int = 40
    services: tuple[ServicePolicy, ...] = ()


def options(settings: Settings, mesh: str = "") -> Options:
    """The settings as the pipeline wants them, for a mesh of this name."""
    alert, model = settings.alert, settings.model
    policy = AlertPolicy(
        false_pages_per_day=alert.false_pages_per_day,
        confirm=alert.confirm_snapshots,
        confirm_of=alert.window_snapshots,
        clear=alert.clear_snapshots,
        percentile=model.anomaly_percentile,
        mute_intervals=alert.mute_after_deletion_intervals,
        warm_up=model.warm_up_snapshots,
    )
    adapt = settings.adapt
    return Options(
        model.window_size,
        settings.partition.max_services,
        settings.partition.seed,
        policy,
        adapt.enabled,
        adapt.every_snapshots,
        alert.policies(mesh),
    )


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh between two snapshots: its state, and the plan it was last cut by (derived; made again when lost)."""

    state: MeshState = field(default_factory=MeshState)
    plan: PartitionPlan | None = None


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot laid on its mesh, cut and ready to be scored."""

    mesh: Mesh
    observation: Observation
    tasks: tuple[PartitionTask, ...]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Scores of the parts that answered, the same laid on the mesh, and the surprise of every series."""

    scores: tuple[PartitionScore, ...]
    decoded: Decoded
    surprise: Surprises


@dataclass(frozen=True, slots=True)
class Advanced:
    """A snapshot's verdict and the mesh after it, with what was laid and how strange each series was."""

    verdict: Verdict
    mesh: Mesh
    laid: PreparedSnapshot
    calibrated: Calibrated


def deviations_of(laid: PreparedSnapshot, calibrated: Calibrated, snapshot: MeshSnapshot) -> Deviations:
    """How unusual each service and call of the snapshot that was laid is, as its calibrated scores say."""
    return Deviations.of(laid.mesh.state, calibrated.decoded.scored, calibrated.surprise, snapshot)


@dataclass(frozen=True, slots=True)
class MetaInput:
    """What the meta-model is asked: everything :func:`combine` needs."""

    evidence: Evidence
    crossing: CrossingCalls | None
    memory: IncidentMemory
    when: Circumstances
    level: float


def advance(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, options: Options, *, counted: bool = True
) -> tuple[Verdict, Mesh]:
    """One snapshot through the whole path: its verdict and the mesh after it, adapted where a fit is due.

    Raises:
        OutOfOrder: the snapshot is not newer than the last one counted.
    """
    advanced = advance_shown(checkpoint, mesh, snapshot, options, counted=counted)
    return advanced.verdict, advanced.mesh


def advance_shown(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, options: Options, *, counted: bool = True
) -> Advanced:
    """As :func:`advance`, with what it saw on its way."""
    laid = prepare(checkpoint, mesh, snapshot, options, counted=counted)
    calibrated = calibrate(checkpoint, laid, score(checkpoint.network, laid.tasks))
    case = build_meta_input(checkpoint, laid, calibrated, snapshot, options)
    verdict, memory = decide(checkpoint, case, options.policy)
    verdict = explained(verdict, laid.mesh.state.window)
    after = commit(laid.mesh, memory, counted=counted)
    if counted and adapts(after.state.sequence, options):
        candidate = fit(after.state)
        after = replace(after, state=adopted(after.state, candidate)) if candidate else after
    return Advanced(verdict, after, laid, calibrated)


def adapts(sequence: int, options: Options) -> bool:
    """Whether a fit of the adapter is due after this many snapshots."""
    return options.adapt and sequence % options.adapt_every == 0


def prepare(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, options: Options, *, counted: bool = True
) -> PreparedSnapshot:
    """Deviations of the whole mesh, its plan, and one task per part."""
    policy = options.policy
    keep = policy.remembered
    memory = mesh.state.memory.aged(snapshot.changes, keep, options.window_size + keep)
    heeded = active_mutes(memory.mutes, options.services, snapshot.policies, snapshot.observed_at if counted else None)
    before = replace(mesh.state, memory=replace(memory, heeded=heeded))
    if before.adaptation.adapter is not None and not options.adapt:
        before = unadapted(before)
    observation, state = observe(
        before,
        snapshot,
        window_size=options.window_size,
        neighbours=checkpoint.network.config.neighbours,
        counted=counted,
    )
    cut = _plan(mesh, state, options)
    return PreparedSnapshot(Mesh(state, cut), observation, _tasks(state, observation, cut))


def weigh(
    checkpoint: Checkpoint,
    laid: PreparedSnapshot,
    scores: Sequence[PartitionScore],
    snapshot: MeshSnapshot,
    options: Options,
) -> MetaInput:
    """Calibrate what the parts said against each series' own past, and gather the evidence.

    Args:
        checkpoint: with the shipped tails.
        laid: what the scores are of.
        scores: of all parts, or of those that answered.
        snapshot: the one laid.
        options: when to page.
    """
    return build_meta_input(checkpoint, laid, calibrate(checkpoint, laid, scores), snapshot, options)


def calibrate(checkpoint: Checkpoint, laid: PreparedSnapshot, scores: Sequence[PartitionScore]) -> Calibrated:
    """What the parts said, laid on the mesh, and how strange each series is by its own past."""
    state, cut = laid.mesh.state, laid.mesh.plan
    assert cut is not None  # lay made it
    decoded = assembled(
        state,
        [(cut.parts[s.part].core, cut.parts[s.part].owned_edges, s) for s in scores],
        cut.crossing,
    )
    surprise = surprises(laid.observation, decoded, checkpoint.node_tail, checkpoint.edge_tail)
    return Calibrated(tuple(scores), decoded, surprise)


def build_meta_input(
    checkpoint: Checkpoint, laid: PreparedSnapshot, calibrated: Calibrated, snapshot: MeshSnapshot, options: Options
) -> MetaInput:
    """The evidence in what was calibrated; the rest as :func:`weigh`."""
    state, cut = laid.mesh.state, laid.mesh.plan
    assert cut is not None  # lay made it
    answered = {s.part for s in calibrated.scores}
    evidence = gather(state, laid.observation, calibrated.decoded, calibrated.surprise, options.policy)
    when = Circumstances(
        snapshot.observed_at,
        state.sequence,
        state.learned,
        state.interval_seconds,
        tuple(p for p in range(len(cut.parts)) if p not in answered),
    )
    level = options.policy.page_level(len(state.node_ids), state.interval_seconds) + checkpoint.page_offset
    return MetaInput(evidence, _crossing(laid, calibrated.scores, evidence), state.memory, when, level)


def decide(checkpoint: Checkpoint, case: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
    """The cluster's verdict from the parts' evidence; calls between parts are decoded here."""
    evidence = case.evidence
    if case.crossing is not None:
        evidence = with_crossing(evidence, case.crossing, decode_crossing(checkpoint.network, case.crossing))
    verdict, memory = judge(checkpoint.meta, evidence, case.memory, policy, case.when, case.level)
    return replace(verdict, model_digest=checkpoint.digest), memory


def plan_of(mesh: Mesh, options: Options) -> PartitionPlan:
    """The plan that the mesh was last cut by; made anew where it was lost."""
    return mesh.plan or _plan(mesh, mesh.state, options)


def commit(mesh: Mesh, memory: IncidentMemory, *, counted: bool) -> Mesh:
    """The mesh after its verdict. A warm-up leaves scores for the threshold, and no incident; mutes end by the mesh's
    clock, which it does not move."""
    state = mesh.state
    if not counted:
        before = state.memory
        memory = replace(memory, hot={}, open=(), withheld=before.withheld, past=before.past, heeded=ActiveMutes())
    elif state.observed_at is not None:
        memory = memory.outlived(state.observed_at, state.window[0].observed_at)
    return replace(mesh, state=replace(state, memory=memory))


def _plan(mesh: Mesh, state: MeshState, options: Options) -> PartitionPlan:
    """The plan of before while the topology stands; else changed locally."""
    if mesh.plan is not None and state.edge_index is mesh.state.edge_index and state.node_ids is mesh.state.node_ids:
        return mesh.plan
    names = {n: i for i, n in enumerate(dict.fromkeys(namespace_of(name) for name in state.node_ids))}
    namespaces = np.fromiter((names[namespace_of(name)] for name in state.node_ids), np.int64, len(state.node_ids))
    topology = (namespaces, state.edge_index)
    heard = (state.attended_callers, state.attended_callees)
    if mesh.plan is not None and mesh.plan.digest == topology_digest(*topology, *heard):
        return mesh.plan
    weight = np.exp(state.edge_filters[SLOW_CENTRE, :, RATE].astype(np.float64))
    if mesh.plan is None or len(state.node_ids) <= options.max_services:
        return plan(*topology, weight, *heard, options.max_services, options.partition_seed)
    row = {name: i for i, name in enumerate(mesh.state.node_ids)}
    kept = np.fromiter((row.get(name, -1) for name in state.node_ids), np.int64, len(state.node_ids))
    return rebalance(mesh.plan, kept, *topology, weight, *heard, options.max_services, options.partition_seed)


def _tasks(state: MeshState, observation: Observation, cut: PartitionPlan) -> tuple[PartitionTask, ...]:
    """One task per part: its rows of the inputs, which were computed over the whole mesh."""
    nodes, edges = node_inputs(observation), edge_inputs(observation)
    boundary = np.zeros(len(state.node_ids), bool)
    boundary[state.edge_index[:, cut.crossing]] = True
    return tuple(_task(state, nodes, edges, part, boundary, index) for index, part in enumerate(cut.parts))


def _task(
    state: MeshState, nodes: Array, edges: Array, part: Partition, boundary: NDArray[np.bool_], index: int
) -> PartitionTask:
    rows = part.nodes
    calls = np.concatenate([part.owned_edges, np.setdiff1d(part.edges, part.owned_edges, assume_unique=True)])
    position = np.empty(len(state.node_ids), np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    return PartitionTask(
        nodes[rows],
        edges[calls],
        position[state.edge_index[:, calls]],
        state.attended_callers[calls],
        state.attended_callees[calls],
        len(part.core),
        len(part.owned_edges),
        np.flatnonzero(boundary[part.core]),
        index,
    )


def _crossing(laid: PreparedSnapshot, scores: Sequence[PartitionScore], evidence: Evidence) -> CrossingCalls | None:
    """The calls between parts that answered, with the embeddings of their ends."""
    state, cut = laid.mesh.state, laid.mesh.plan
    assert cut is not None  # lay made it
    if not len(cut.crossing) or not scores:
        return None
    place = np.full(len(state.node_ids), -1)
    offset = 0
    for s in scores:
        rows: IntArray = cut.parts[s.part].core[laid.tasks[s.part].boundary]
        place[rows] = offset + np.arange(len(rows))
        offset += len(rows)
    ends = place[state.edge_index[:, cut.crossing]]
    known = (ends >= 0).all(axis=0)
    calls = cut.crossing[known]
    row = {name: i for i, name in enumerate(evidence.names)}
    candidate = np.fromiter((row.get(name, -1) for name in state.node_ids), np.int64, len(state.node_ids))
    return CrossingCalls(
        np.concatenate([s.embeddings for s in scores]),
        ends[:, known],
        candidate[state.edge_index[:, calls]],
        young_calls(state, laid.observation)[calls],
    )
