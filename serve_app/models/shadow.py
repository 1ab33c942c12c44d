"""A trial's other model also scores a session's snapshots: after the answer, in spare time, and silently.

Both models score the same prepared snapshot, so they see the same baselines, which follow the verdicts of the model in
use. Each model has its own alerting memory, for example how often a service was unusual.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from model.incidents.memory import IncidentMemory
from model.verdict import Verdict
from serve_app.api.schemas.models import BlockDocument, MeshTrialDocument
from serve_app.errors import Overloaded, RegistryGone, ServeError, StoreConflict
from serve_app.metrics import SHADOWED, Instruments
from serve_app.models.comparison import SNAPSHOTS_PER_BLOCK, add_failure, add_snapshot, attempts, outcome_of
from serve_app.models.served import Roles, ServedModel, ServedModels
from serve_app.pipeline import Options, PreparedSnapshot
from serve_app.stores.state_store import StateStore

MAX_WAITING = 16  # snapshots, only the newest one of each mesh
MAX_BLOCKS = 288  # in a mesh's trial: a day with a snapshot every 15 s
SHARE = 0.2  # maximum share of time for shadow scoring while snapshots wait; excess snapshots are left out
SCORED, FAILED, LEFT_OUT = "scored", "failed", "left_out"  # outcomes of the metric
STORED_SIZES = (1, SNAPSHOTS_PER_BLOCK)  # the trial is stored after these numbers of snapshots in a block
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JudgedSnapshot:
    """A snapshot that has its verdict.

    Attributes:
        memory: alerting's memory after the snapshot.
    """

    mesh: str
    prepared: PreparedSnapshot
    verdict: Verdict
    memory: IncidentMemory
    options: Options


# Scores a prepared snapshot with another model. Returns the verdict and the updated memory.
JudgeBeside = Callable[[JudgedSnapshot, ServedModel, IncidentMemory], Awaitable[tuple[Verdict, IncidentMemory]]]


@dataclass(slots=True)
class _MeshTrial:
    """A trial in one mesh, as this session knows it.

    Attributes:
        revision: the document's revision in the store.
        last_block: in the store; None: there is none.
        memory: the other model's memory; None before its first snapshot.
        alerts: ids of each model's alerts, by version.
    """

    roles: Roles
    document: MeshTrialDocument
    revision: int
    last_block: BlockDocument | None
    memory: IncidentMemory | None = None
    alerts: dict[str, frozenset[str]] = field(default_factory=dict)


class Shadow:
    """Shadow scoring in one session and event loop: one snapshot at a time; if too many wait, some are left out.

    Args:
        is_busy: whether snapshots wait for their verdicts.
    """

    def __init__(
        self,
        models: ServedModels,
        judge: JudgeBeside,
        store: StateStore,
        is_busy: Callable[[], bool],
        instruments: Instruments,
    ) -> None:
        self._models, self._judge, self._store = models, judge, store
        self._is_busy, self._instruments = is_busy, instruments
        self._waiting: dict[str, JudgedSnapshot] = {}
        self._trials: dict[str, _MeshTrial] = {}
        self._is_working = False
        self._lock = asyncio.Lock()  # held while a trial changes

    def offer(self, snapshot: JudgedSnapshot) -> bool:
        """Accept a snapshot, and return whether :meth:`work` must be started."""
        if self._waiting.pop(snapshot.mesh, None) is not None or len(self._waiting) >= MAX_WAITING:
            self._instruments.count(SHADOWED, outcome=LEFT_OUT)
        if len(self._waiting) < MAX_WAITING:
            self._waiting[snapshot.mesh] = snapshot
        return not self._is_working

    async def work(self) -> None:
        """Score waiting snapshots one after the other."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._waiting:
                snapshot = self._waiting.pop(next(iter(self._waiting)))
                began = time.monotonic()
                outcome = await self._try(snapshot)
                self._instruments.count(SHADOWED, outcome=outcome)
                if self._is_busy():
                    await asyncio.sleep((time.monotonic() - began) * (1 / SHARE - 1))
        finally:
            self._is_working = False

    async def add_failure(self, mesh: str, model: str) -> None:
        """Count a snapshot that failed with the model in use, so that there is no verdict to compare. A mesh without
        stored state has no trial."""
        roles = self._models.roles(mesh)
        if roles is None or roles.active != model:
            return
        try:
            async with self._lock:
                if await asyncio.to_thread(self._store.load, mesh) is None:
                    return
                trial = await self._trial(mesh, roles)
                await self._count_failure(mesh, trial, of_candidate=roles.is_candidate)
        except ServeError as error:
            self._trials.pop(mesh, None)
            log.warning("mesh %s: a failed snapshot is not counted in the trial of a model: %s", mesh, error)

    async def delete(self, mesh: str) -> None:
        """Delete a mesh's trial.

        Raises:
            ServeError: the store cannot be used.
        """
        self._waiting.pop(mesh, None)
        self._trials.pop(mesh, None)
        if self._models.registry is not None:  # without a registry, a store need not have documents
            await asyncio.to_thread(_delete_trial, self._store, mesh)

    def forget_all(self) -> None:
        """Forget all meshes when a trial is over."""
        self._waiting.clear()
        self._trials.clear()

    async def _try(self, snapshot: JudgedSnapshot) -> str:
        """Score a snapshot, record both models' results, and return the outcome for the metric."""
        try:
            async with self._lock:
                return await self._score(snapshot)
        except StoreConflict:  # the mesh has moved from or to another session
            self._trials.pop(snapshot.mesh, None)
        except Exception as error:  # no one waits for it
            log.warning(
                "mesh %s: not scored in the shadow: %s",
                snapshot.mesh,
                error,
                exc_info=not isinstance(error, ServeError),
            )
        return FAILED

    async def _score(self, snapshot: JudgedSnapshot) -> str:
        roles = self._models.roles(snapshot.mesh)
        if roles is None:
            return LEFT_OUT
        trial = await self._trial(snapshot.mesh, roles, snapshot)
        if snapshot.verdict.model_digest != roles.active:  # models changed meanwhile, or one could not be loaded
            if not self._models.is_broken(roles.active):
                return LEFT_OUT
            await self._count_failure(snapshot.mesh, trial, of_candidate=roles.is_candidate)
            return FAILED
        try:
            other_model = await self._models.load(roles.beside)
            memory = snapshot.prepared.mesh.state.memory
            memory = memory if trial.memory is None else combine(trial.memory, memory)
            verdict, trial.memory = await self._judge(snapshot, other_model, memory)
        except (Overloaded, RegistryGone):  # not the model's fault
            return LEFT_OUT
        except Exception:
            await self._count_failure(snapshot.mesh, trial, of_candidate=not roles.is_candidate)
            raise
        active_outcome = outcome_of(snapshot.verdict, trial.alerts[roles.active])
        other_outcome = outcome_of(verdict, trial.alerts[roles.other])
        trial.alerts = {roles.active: active_outcome.alerts, roles.other: other_outcome.alerts}
        candidate, baseline = (active_outcome, other_outcome) if roles.is_candidate else (other_outcome, active_outcome)
        at, state = snapshot.verdict.observed_at, snapshot.prepared.mesh.state
        document = trial.document.model_copy(update={"services": state.window[-1].num_nodes})
        empty = _empty_block(trial, at)
        trial.document = add_snapshot(document, at, candidate, baseline, empty, state.interval_seconds)
        await self._store_if_due(snapshot.mesh, trial)
        return SCORED

    async def _trial(self, mesh: str, roles: Roles, snapshot: JudgedSnapshot | None = None) -> _MeshTrial:
        """Begin a mesh's trial, or continue it from this or another session's stored document. The other model begins
        with the alerting memory of the model in use."""
        models = roles.candidate, roles.baseline
        trial = self._trials.get(mesh)
        if trial is None or (trial.document.candidate, trial.document.baseline) != models:
            revision, document = await asyncio.to_thread(read_trial, self._store, mesh)
            if document is None or (document.candidate, document.baseline) != models:
                document = MeshTrialDocument(mesh=mesh, services=0, candidate=models[0], baseline=models[1])
            last = document.blocks[-1] if document.blocks else None
            trial = self._trials[mesh] = _MeshTrial(roles, document, revision, last)
        elif trial.roles.active != roles.active:  # they have swapped roles
            trial.memory, trial.alerts = None, {}
        if snapshot is not None and not trial.alerts:
            ids = frozenset(incident.id for incident in snapshot.memory.open)
            trial.alerts = dict.fromkeys((roles.active, roles.other), ids)
        trial.roles = roles  # its share may have changed
        return trial

    async def _count_failure(self, mesh: str, trial: _MeshTrial, *, of_candidate: bool) -> None:
        empty = _empty_block(trial, datetime.now(UTC))
        trial.document = add_failure(trial.document, empty, of_candidate=of_candidate)
        await self._store_if_due(mesh, trial)

    async def _store_if_due(self, mesh: str, trial: _MeshTrial) -> None:
        """Store a trial at a block's first and last snapshot. The document has 100 KB and more: writing it with each
        snapshot would be most of a trial's cost. A crash, or a mesh's move to another session, loses the comparison of
        later snapshots. Their verdicts are stored, and the trial continues."""
        blocks = trial.document.blocks[-MAX_BLOCKS:]
        trial.document = trial.document.model_copy(update={"blocks": blocks})
        last = blocks[-1] if blocks else None
        is_due = last is not None and last != trial.last_block and attempts(last) in STORED_SIZES
        if (trial.revision and not is_due) or self._trials.get(mesh) is not trial:
            return
        content = trial.document.model_dump_json().encode()
        trial.revision = await asyncio.to_thread(
            self._store.write_document, _document_name(mesh), content, revision=trial.revision
        )
        trial.last_block = last
        if self._trials.get(mesh) is not trial:  # the mesh was deleted meanwhile
            await asyncio.to_thread(_delete_trial, self._store, mesh)


def read_trial(store: StateStore, mesh: str) -> tuple[int, MeshTrialDocument | None]:
    """Read a mesh's stored trial and its revision; 0 and None if there is none. A trial from another version counts as
    none."""
    document = store.read_document(_document_name(mesh))
    try:
        return document.revision, MeshTrialDocument.model_validate_json(document.content)
    except ValueError:
        return document.revision, None


def _delete_trial(store: StateStore, mesh: str) -> None:
    document = store.read_document(_document_name(mesh))
    if document.revision:
        store.write_document(_document_name(mesh), b"", revision=document.revision)


def _document_name(mesh: str) -> str:
    return f"trial/{mesh}"


def _empty_block(trial: _MeshTrial, began: datetime) -> BlockDocument:
    return BlockDocument(since=trial.roles.trial.since, share=trial.roles.trial.share, began=began)


def combine(memory: IncidentMemory, active_memory: IncidentMemory) -> IncidentMemory:
    """Return a shadow model's alerting memory: its own deviations and incidents, with facts about the mesh, such as
    planned changes, mutes and feedback, from the memory of the model in use."""
    if active_memory.lost:  # the gap was so long that nothing stays open
        memory = memory.forget_incidents()
    return replace(
        memory,
        changes=active_memory.changes,
        expiring_changes=active_memory.expiring_changes,
        late=active_memory.late,
        feedback=active_memory.feedback,
        mutes=active_memory.mutes,
        active_mutes=active_memory.active_mutes,
        schedule=active_memory.schedule,
    )
