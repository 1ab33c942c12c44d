"""From a snapshot to its verdict, without Ray.

    prepare -> score -> calibrate -> build_meta_input -> decide -> explain -> commit

Each stage is a plain function. :func:`run_stages` alone has their order; :func:`advance` runs it in this thread. The
service and the sidecar run the same stages with other runners: in threads, or on replicas that score and decide.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from model.checkpoint import Checkpoint
from model.decision.verdict_building import add_reconstruction, build_verdict
from model.evidence.gather import Evidence, gather
from model.features import RATE, Array
from model.incidents.context import add_context
from model.incidents.harm import add_severity
from model.incidents.impact import add_impact
from model.incidents.memory import IncidentMemory
from model.incidents.mutes import active_mutes
from model.incidents.objectives import add_error_budgets
from model.incidents.owners import Owners, add_owners
from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.threshold import next_threshold
from model.incidents.trend import add_trends
from model.network.contract import MeshNetwork
from model.scoring.reconstruction import (
    ReconstructionInput,
    reconstruction_input,
    reconstruction_loss,
    sample_services,
)
from model.scoring.score import PartitionScore, PartitionTask, score, whole_mesh
from model.scoring.surprises import MeshScores, Surprises, assemble_scores, surprises
from model.snapshot import IntArray, MeshSnapshot, Owner, ServicePolicy, number_namespaces
from model.state.drift import Trained, observe_drift
from model.state.filters import SLOW_CENTRE
from model.state.mesh_state import MeshState, Observation
from model.state.observe import observe
from model.verdict import ClusterEvent, Objective, Verdict, sort_by_urgency
from partitioning import Partition, PartitionPlan, plan, rebalance
from serve_app.api.views import Deviations
from serve_app.observability.spans import Span, span
from serve_app.settings import Settings

Steps = Iterable[tuple[MeshSnapshot, IncidentMemory]]  # counted snapshots, each with the memory after its verdict
Replay = Callable[[str, MeshState, Steps], MeshState]
P = ParamSpec("P")
T = TypeVar("T")
# Names of the stages in spans, metrics and Server-Timing.
PREPARE, SCORE, GATHER, DECIDE, STORE = "prepare", "score", "gather", "decide", "store"


@dataclass(frozen=True, slots=True)
class Options:
    """The options for scoring a mesh.

    Attributes:
        window_size: W, snapshots kept.
        max_services: limit of core services in a part; a mesh up to this size is one part.
        policy: when to alert.
        services: alert settings of single services.
        entry_points: node ids that get requests from outside although other services call them too.
        owners: patterns of services and who owns these.
        objectives: of front doors.
    """

    window_size: int = 120
    max_services: int = 2000
    policy: AlertPolicy = field(default_factory=AlertPolicy)
    services: tuple[ServicePolicy, ...] = ()
    entry_points: frozenset[str] = frozenset()
    owners: tuple[tuple[str, Owner], ...] = ()
    objectives: tuple[Objective, ...] = ()


def options(settings: Settings, mesh: str = "") -> Options:
    alert, model = settings.alert, settings.model
    policy = AlertPolicy(
        false_pages_per_day=alert.false_pages_per_day,
        false_notices_per_day=alert.false_notices_per_day,
        confirm=alert.confirm_snapshots,
        confirm_of=alert.window_snapshots,
        clear=alert.clear_snapshots,
        latency_floor_seconds=alert.latency_floor_ms / 1000,
        percentile=model.anomaly_percentile,
        reconstruction=alert.reconstruction,
        warm_up=model.warm_up_snapshots,
        longest_gap_seconds=60 * alert.longest_gap_minutes,
    )
    return Options(
        model.window_size,
        settings.partition.max_services,
        policy,
        settings.mesh(mesh).policies,
        frozenset(settings.mesh(mesh).entry_points),
        settings.mesh(mesh).owner_patterns,
        settings.mesh(mesh).service_objectives,
    )


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mesh between two snapshots: its state, and the plan that it was last cut by, which can be derived again."""

    state: MeshState = field(default_factory=MeshState)
    plan: PartitionPlan | None = None


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot that was observed, ready for scoring.

    Attributes:
        mesh: state and plan that include the snapshot.
        observation: the snapshot against the mesh's past.
        whole: the task of the uncut mesh; :func:`cut_tasks` cuts it by the plan.
        sample: int64, rows of the services whose pairs the reconstruction loss looks at, ascending.
    """

    mesh: Mesh
    observation: Observation
    whole: PartitionTask
    sample: IntArray


@dataclass(frozen=True, slots=True)
class CalibratedScores:
    """Scores of the parts that answered, the same for the whole mesh, and the surprise of every series."""

    scores: tuple[PartitionScore, ...]
    mesh_scores: MeshScores
    surprise: Surprises


@dataclass(frozen=True, slots=True)
class MetaInput:
    """Everything that :func:`decide` needs, and the number of parts of the mesh; ``reconstruction`` is None if one of
    them did not answer."""

    evidence: Evidence
    parts: int
    memory: IncidentMemory
    context: VerdictContext
    reconstruction: ReconstructionInput | None


@dataclass(frozen=True, slots=True)
class StageResults:
    """A verdict, the mesh after it, and results of the stages before it."""

    verdict: Verdict
    mesh: Mesh
    prepared: PreparedSnapshot
    calibrated: CalibratedScores


class StageRunner(Protocol):
    """Runs the stages of :func:`run_stages`: in this thread, in another one, or on other replicas."""

    @property
    def checkpoint(self) -> Checkpoint: ...

    async def run_all(self, stages: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run all stages of one snapshot; ``stages`` returns their coroutine, which calls this runner."""
        ...

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that belongs to a stage; ``stage`` is the label of its duration."""
        ...

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        """Score the parts of the plan. Parts that cannot be scored are left out."""
        ...

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]: ...


def stage_span(stage: str, function: Callable[..., Any] | None = None) -> AbstractContextManager[Span]:
    """Return the span of a stage, or of one function that it calls."""
    names: dict[str, Any] = {"code.function.name": function.__qualname__} if function is not None else {}
    return span(stage, **names)


class LocalRunner:
    """Runs every stage in the calling thread."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    async def run_all(self, stages: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await stages()

    async def run(self, stage: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with stage_span(stage, function):
            return function(*args, **kwargs)

    async def score(self, prepared: PreparedSnapshot) -> Sequence[PartitionScore]:
        return await self.run(SCORE, score_whole, self.checkpoint.network, prepared)

    async def decide(self, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
        return await self.run(DECIDE, decide, self.checkpoint, meta_input, policy)


async def run_stages(
    runner: StageRunner,
    mesh: Mesh,
    snapshot: MeshSnapshot,
    options: Options,
    *,
    counted: bool = True,
    events: Sequence[ClusterEvent] = (),
) -> StageResults:
    """Run all stages of one snapshot in their order.

    Args:
        counted: False for a baseline, which moves neither the mesh's clock nor its incidents.
        events: recent Kubernetes events of the mesh, newest first; shown with incidents.

    Raises:
        OutOfOrder: the snapshot is not newer than the last one counted.
    """
    checkpoint = runner.checkpoint
    prepared = await runner.run(PREPARE, prepare, checkpoint, mesh, snapshot, options, counted=counted)
    calibrated, verdict, memory = await judge(runner, prepared, snapshot, options, counted=counted, events=events)
    return StageResults(verdict, commit(prepared.mesh, memory, counted=counted), prepared, calibrated)


def with_memory(prepared: PreparedSnapshot, memory: IncidentMemory) -> PreparedSnapshot:
    """Return a prepared snapshot with another memory of incidents, for the verdict of another model."""
    return replace(prepared, mesh=replace(prepared.mesh, state=replace(prepared.mesh.state, memory=memory)))


async def judge(
    runner: StageRunner,
    prepared: PreparedSnapshot,
    snapshot: MeshSnapshot,
    options: Options,
    *,
    counted: bool = True,
    events: Sequence[ClusterEvent] = (),
) -> tuple[CalibratedScores, Verdict, IncidentMemory]:
    """Run the stages from a prepared snapshot to its verdict. Returns the memory of incidents for the next one too."""
    scores = await runner.score(prepared)
    calibrated, meta_input = await runner.run(GATHER, _gather, runner.checkpoint, prepared, scores, snapshot, options)
    verdict, memory = await runner.decide(meta_input, options.policy)
    verdict, memory = await runner.run(
        DECIDE, explain, verdict, memory, prepared, snapshot, options, counted=counted, events=events
    )
    return calibrated, verdict, memory


def advance(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, options: Options, *, counted: bool = True
) -> tuple[Verdict, Mesh]:
    """Return a snapshot's verdict and the mesh after it; raises as :func:`run_stages` does."""
    results = advance_in_detail(checkpoint, mesh, snapshot, options, counted=counted)
    return results.verdict, results.mesh


def advance_in_detail(
    checkpoint: Checkpoint,
    mesh: Mesh,
    snapshot: MeshSnapshot,
    options: Options,
    *,
    counted: bool = True,
    events: Sequence[ClusterEvent] = (),
) -> StageResults:
    """Run :func:`run_stages` in this thread."""
    stages = run_stages(LocalRunner(checkpoint), mesh, snapshot, options, counted=counted, events=events)
    return run_now(stages)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as the stages of a :class:`LocalRunner` never do."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a stage waited, though all of them run in this thread")


async def run_in_pool(pool: Executor, stages: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run stages that never wait in one thread of a pool."""
    context = copy_context()  # names the mesh in logs, and carries the span
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: context.run(lambda: run_now(stages())))


def deviations_of(prepared: PreparedSnapshot, calibrated: CalibratedScores, snapshot: MeshSnapshot) -> Deviations:
    return Deviations.of(prepared.mesh.state, calibrated.mesh_scores.scored, calibrated.surprise, snapshot)


def prepare(
    checkpoint: Checkpoint, mesh: Mesh, snapshot: MeshSnapshot, options: Options, *, counted: bool = True
) -> PreparedSnapshot:
    """Compute the whole mesh's deviations, its plan, and the network's inputs."""
    observation, state = _learn(checkpoint, mesh.state, snapshot, options, counted=counted)
    partition_plan, sample = _plan(mesh, state, options), sample_services(state)
    whole = whole_mesh(state, observation, sample)
    return PreparedSnapshot(Mesh(state, partition_plan), observation, whole, sample)


def score_whole(network: MeshNetwork, prepared: PreparedSnapshot) -> tuple[PartitionScore, ...]:
    """Score all parts in one pass over the uncut mesh.

    A part has all services that its core depends on, so this gives the same scores as the tasks of the parts, whose
    shared services are computed several times.
    """
    partition_plan, whole = _plan_of(prepared), prepared.whole
    if len(partition_plan.parts) == 1:
        return tuple(score(network, [whole]))
    is_returned = _returned(prepared)
    (mesh_score,) = score(network, [replace(whole, boundary=np.arange(len(whole.nodes)))])
    return tuple(
        mesh_score.part_of(index, part.core, part.owned_edges, is_returned[part.core])
        for index, part in enumerate(partition_plan.parts)
    )


def cut_tasks(prepared: PreparedSnapshot) -> tuple[PartitionTask, ...]:
    """Return one task for each part of the plan, with the services that its core depends on."""
    partition_plan = _plan_of(prepared)
    if len(partition_plan.parts) == 1:
        return (replace(prepared.whole, topology=None),)  # a replica would have to receive it with every snapshot
    is_returned, snapshot = _returned(prepared), uuid4().hex
    return tuple(_task(prepared, part, is_returned, index, snapshot) for index, part in enumerate(partition_plan.parts))


def replay(
    checkpoint: Checkpoint,
    state: MeshState,
    steps: Steps,
    options: Options,
) -> MeshState:
    """Return the state after snapshots with known verdicts, bit for bit as :func:`advance` left it with the same
    options. It does not score, so it takes a fraction of the time."""
    for snapshot, memory in steps:
        state = replace(_learn(checkpoint, state, snapshot, options, counted=True)[1], memory=memory)
    return state


def replayer(checkpoint_of: Callable[[str], Checkpoint], settings: Settings) -> Replay:
    """:func:`replay` with the weights and the options of the mesh that its first argument names."""
    return lambda mesh, state, steps: replay(checkpoint_of(mesh), state, steps, options(settings, mesh))


def _learn(
    checkpoint: Checkpoint, state: MeshState, snapshot: MeshSnapshot, options: Options, *, counted: bool
) -> tuple[Observation, MeshState]:
    """Return the snapshot against the mesh's past, and the state that has learned from it. The memory of incidents is
    brought up to the time of the snapshot; its verdict is still to come."""
    keep, keep_versions = options.policy.change_memory, options.policy.version_memory
    memory = state.memory.advance_changes(snapshot.changes, keep, options.window_size + keep, keep_versions)
    active = active_mutes(memory.mutes, options.services, snapshot.policies, snapshot.observed_at if counted else None)
    before = replace(state, memory=replace(memory, active_mutes=active))
    observation, after = observe(
        before,
        snapshot,
        window_size=options.window_size,
        neighbours=checkpoint.network.config.neighbours,
        counted=counted,
        longest_gap=options.policy.longest_gap_seconds,
        entry_points=options.entry_points,
    )
    if counted:
        training = Trained(checkpoint.node_tail.rate, checkpoint.edge_tail.rate, checkpoint.reference)
        after = observe_drift(after, observation, snapshot.observed_at, training)
    return observation, after


def calibrate(checkpoint: Checkpoint, prepared: PreparedSnapshot, scores: Sequence[PartitionScore]) -> CalibratedScores:
    """Join the scores of the parts that answered, and calibrate each series against its own past."""
    state, partition_plan = prepared.mesh.state, _plan_of(prepared)
    mesh_scores = assemble_scores(
        state,
        [(partition_plan.parts[s.part].core, partition_plan.parts[s.part].owned_edges, s) for s in scores],
        partition_plan.crossing,
    )
    surprise = surprises(prepared.observation, mesh_scores, checkpoint.node_tail, checkpoint.edge_tail)
    return CalibratedScores(tuple(scores), mesh_scores, surprise)


def build_meta_input(
    checkpoint: Checkpoint,
    prepared: PreparedSnapshot,
    calibrated: CalibratedScores,
    snapshot: MeshSnapshot,
    options: Options,
) -> MetaInput:
    """Gather the evidence for :func:`decide` from calibrated scores."""
    state, partition_plan = prepared.mesh.state, _plan_of(prepared)
    answered_parts = {s.part for s in calibrated.scores}
    size = len(state.node_ids), state.interval_seconds
    base, memory = options.policy.page_level(*size) + checkpoint.page_offset, state.memory
    now = snapshot.observed_at.timestamp()
    normal = memory.normal_scores(now - options.policy.lasting_of * state.interval_seconds)
    level = next_threshold(base, normal, memory.last_threshold(), options.policy, now)
    evidence = gather(
        state,
        prepared.observation,
        calibrated.mesh_scores,
        calibrated.surprise,
        options.policy,
        level,
    )
    context = VerdictContext(
        snapshot.observed_at,
        state.sequence,
        state.learned,
        state.interval_seconds,
        level,
        options.policy.notice_level(*size) + checkpoint.page_offset,
        tuple(p for p in range(len(partition_plan.parts)) if p not in answered_parts),
    )
    return MetaInput(
        evidence,
        len(partition_plan.parts),
        state.memory,
        context,
        None if context.missing_parts else _reconstruction_input(prepared, calibrated),
    )


def decide(checkpoint: Checkpoint, meta_input: MetaInput, policy: AlertPolicy) -> tuple[Verdict, IncidentMemory]:
    whole, context = meta_input.reconstruction, meta_input.context
    verdict, memory = build_verdict(checkpoint.meta, meta_input.evidence, meta_input.memory, policy, context)
    verdict = replace(verdict, model_digest=checkpoint.digest)
    if whole is None:
        return verdict, memory
    loss = reconstruction_loss(checkpoint.network, whole)
    return add_reconstruction(verdict, memory, loss, whole.mean, policy, context)


def explain(
    verdict: Verdict,
    memory: IncidentMemory,
    prepared: PreparedSnapshot,
    snapshot: MeshSnapshot,
    options: Options,
    *,
    counted: bool,
    events: Sequence[ClusterEvent],
) -> tuple[Verdict, IncidentMemory]:
    """Add to the incidents of a verdict what people need: context, impact, error budgets, severity, trends, owners."""
    window, entry_points = prepared.mesh.state.window, prepared.mesh.state.entry_points
    verdict = add_impact(add_context(verdict, window, events), window, entry_points)
    if counted:
        verdict, memory = add_error_budgets(verdict, memory, window, options.objectives)
        floor = options.policy.latency_floor_seconds
        verdict, memory = add_severity(verdict, memory, window, floor, entry_points)
    verdict = add_trends(sort_by_urgency(verdict), window)
    return add_owners(verdict, Owners(options.owners, snapshot.policies)), memory


def _gather(
    checkpoint: Checkpoint,
    prepared: PreparedSnapshot,
    scores: Sequence[PartitionScore],
    snapshot: MeshSnapshot,
    options: Options,
) -> tuple[CalibratedScores, MetaInput]:
    """Two stages in one call: each call of a runner can change the thread, which takes longer than some stages."""
    calibrated = calibrate(checkpoint, prepared, scores)
    return calibrated, build_meta_input(checkpoint, prepared, calibrated, snapshot, options)


def embed(checkpoint: Checkpoint, state: MeshState, options: Options) -> tuple[MeshSnapshot, Array]:
    """Return a state's newest snapshot, and the embeddings ``[N, D]`` of its services.

    They are those that the services would have if the same values came again in the next snapshot. So they need
    nothing but the stored state, and every session computes the same ones.
    """
    newest = state.window[-1]
    again = replace(newest, observed_at=newest.observed_at + timedelta(seconds=state.interval_seconds), changes=())
    observation, after = _learn(checkpoint, state, again, options, counted=False)
    every = np.arange(len(after.node_ids))
    (mesh_score,) = score(checkpoint.network, [whole_mesh(after, observation, every)])
    return newest, mesh_score.embeddings[_positions(after.node_ids, newest.node_ids)]


def plan_of(mesh: Mesh, options: Options) -> PartitionPlan:
    """Return the plan that the mesh was last cut by, made again if it is not known."""
    return mesh.plan or _plan(mesh, mesh.state, options)


def commit(mesh: Mesh, memory: IncidentMemory, *, counted: bool) -> Mesh:
    """Return the mesh after its verdict."""
    state = mesh.state
    if not counted:
        memory = state.memory.learn_baseline(memory)
    elif state.observed_at is not None:
        memory = memory.drop_expired(state.observed_at)
    return replace(mesh, state=replace(state, memory=memory))


def _plan(mesh: Mesh, state: MeshState, options: Options) -> PartitionPlan:
    """Return the same plan if the topology has not changed, else a plan with local changes."""
    if mesh.plan is not None and state.edge_index is mesh.state.edge_index and state.node_ids is mesh.state.node_ids:
        return mesh.plan
    weight = np.exp(state.edge_filters[SLOW_CENTRE, :, RATE].astype(np.float64))
    namespaces = number_namespaces(state.node_ids)
    topology = (namespaces, state.edge_index, weight, state.attended_callers, state.attended_callees)
    if mesh.plan is None:
        return plan(*topology, options.max_services)
    old_positions = _positions(mesh.state.node_ids, state.node_ids)
    return rebalance(mesh.plan, old_positions, *topology, options.max_services)


def _positions(before: Sequence[str], names: Sequence[str]) -> IntArray:
    """Return each service's position ``before``, ``[N]``; -1 if it is new."""
    positions = np.arange(len(names))
    if names[: len(before)] == before:  # as long as no service is forgotten; far faster than by name
        positions[len(before) :] = -1
        return positions
    row = {name: i for i, name in enumerate(before)}
    return np.fromiter((row.get(name, -1) for name in names), np.int64, len(names))


def _plan_of(prepared: PreparedSnapshot) -> PartitionPlan:
    partition_plan = prepared.mesh.plan
    assert partition_plan is not None  # prepare made it
    return partition_plan


def _returned(prepared: PreparedSnapshot) -> NDArray[np.bool_]:
    """Return the services whose embeddings are needed outside their part: those with a call to or from another part,
    and the sample for the reconstruction loss."""
    state = prepared.mesh.state
    is_returned = np.zeros(len(state.node_ids), bool)
    is_returned[prepared.sample] = True
    is_returned[state.edge_index[:, _plan_of(prepared).crossing]] = True
    return is_returned


def _returned_embeddings(prepared: PreparedSnapshot, scores: Sequence[PartitionScore]) -> tuple[IntArray, Array]:
    """Return each service's row ``[N]`` among the returned embeddings (-1: it has none), and these ``[B, D]``."""
    place, is_returned = np.full(len(prepared.mesh.state.node_ids), -1), _returned(prepared)
    offset = 0
    for s in scores:
        core = _plan_of(prepared).parts[s.part].core
        rows: IntArray = core[is_returned[core]]
        place[rows] = offset + np.arange(len(rows))
        offset += len(rows)
    return place, np.concatenate([s.embeddings for s in scores])


def _task(
    prepared: PreparedSnapshot, part: Partition, is_returned: NDArray[np.bool_], index: int, snapshot: str
) -> PartitionTask:
    state, whole = prepared.mesh.state, prepared.whole
    rows = part.nodes
    is_owned = np.zeros(len(whole.edges), bool)
    is_owned[part.owned_edges] = True
    calls = np.concatenate([part.owned_edges, part.edges[~is_owned[part.edges]]])
    position = np.empty(len(state.node_ids), np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    return PartitionTask(
        nodes=whole.nodes[rows],
        edges=whole.edges[calls],
        edge_index=position[state.edge_index[:, calls]],
        attended_callers=state.attended_callers[calls],
        attended_callees=state.attended_callees[calls],
        core=len(part.core),
        owned=len(part.owned_edges),
        boundary=np.flatnonzero(is_returned[part.core]),
        part=index,
        snapshot=snapshot,
        services=rows.astype(np.int32),
        calls=calls.astype(np.int32),
    )


def _reconstruction_input(prepared: PreparedSnapshot, calibrated: CalibratedScores) -> ReconstructionInput:
    """Return the inputs of the reconstruction loss, for a mesh whose parts have all answered."""
    state, crossing = prepared.mesh.state, _plan_of(prepared).crossing
    observed = state.edge_index, prepared.observation.edge_present, calibrated.mesh_scores.structure
    services = np.float32(max(len(state.node_ids), 1))
    if len(calibrated.scores) == 1:  # one part returns the sample alone
        only = calibrated.scores[0]
        return reconstruction_input(prepared.sample, *observed, only.embeddings, only.embedding_sum / services)
    place, embeddings = _returned_embeddings(prepared, calibrated.scores)
    total = np.sum([s.embedding_sum for s in calibrated.scores], axis=0)
    within = reconstruction_input(prepared.sample, *observed, embeddings[place[prepared.sample]], total / services)
    calls = crossing[prepared.observation.edge_present[crossing]]
    return replace(within, boundary=embeddings, crossing=place[state.edge_index[:, calls]])
