"""The other model of a trial scores the snapshots of a session too: after the answer, in spare time, and silently.

Both models score the same prepared snapshot, so they see the same baselines. Those follow the verdicts of the model in
use. What alerting remembers, such as how often a service was unusual, each model has for itself.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from model.incidents.memory import IncidentMemory
from model.verdict import Verdict
from serve_app.api.schemas.models import BlockDocument, MeshTrialDocument, PairDocument
from serve_app.errors import ServeError, StoreConflict
from serve_app.metrics import SHADOWED, Instruments
from serve_app.models.comparison import SNAPSHOTS_OF_A_BLOCK, add_pair, is_comparable, outcome_of
from serve_app.models.rollout import pins_of
from serve_app.models.served import ServedModel, ServedModels
from serve_app.pipeline import Options, PreparedSnapshot
from serve_app.stores.base import StateStore

MOST_WAITING = 16  # snapshots of different meshes; of each mesh only the newest
MOST_PAIRS = 120  # in the document of a mesh
MOST_BLOCKS = 288  # a day of snapshots each 15 s
LONGEST_GAP_INTERVALS = 4.0  # a longer time between two snapshots counts as this many intervals
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JudgedSnapshot:
    """A snapshot that has its verdict.

    Attributes:
        mesh: name.
        prepared: as the model in use scored it.
        verdict: of the model in use.
        memory: of alerting, after it.
        seconds: duration of the pass of the network.
        options: of the mesh.
    """

    mesh: str
    prepared: PreparedSnapshot
    verdict: Verdict
    memory: IncidentMemory
    seconds: float
    options: Options

    @property
    def services(self) -> int:
        """Number of services in the snapshot."""
        return self.prepared.mesh.state.window[-1].num_nodes


# Scores a prepared snapshot with another model. Returns the verdict, the memory after it, and the duration of the pass.
JudgeBeside = Callable[[JudgedSnapshot, ServedModel, IncidentMemory], Awaitable[tuple[Verdict, IncidentMemory, float]]]


@dataclass(slots=True)
class _MeshTrial:
    """A trial in one mesh, as this session knows it.

    Attributes:
        used, other: versions of the models.
        memory: of the other model.
        document: as stored.
        revision: of the document.
        known: ids of the alerts that each model had so far, by version.
    """

    used: str
    other: str
    memory: IncidentMemory
    document: MeshTrialDocument
    revision: int
    known: dict[str, set[str]] = field(default_factory=dict)


class Shadow:
    """Scores in the shadow, of one session and event loop. One snapshot at a time; if too many wait, some are left out.

    Args:
        models: of the session.
        judge: scores a snapshot with another model.
        store: keeps what both models made of each snapshot.
        is_busy: whether snapshots wait for their verdicts.
        share: of the time for which it works at most while the session is busy.
        instruments: count the snapshots.
    """

    def __init__(
        self,
        models: ServedModels,
        judge: JudgeBeside,
        store: StateStore,
        is_busy: Callable[[], bool],
        share: float,
        instruments: Instruments,
    ) -> None:
        self._models, self._judge, self._store = models, judge, store
        self._is_busy, self._share, self._instruments = is_busy, share, instruments
        self._waiting: dict[str, JudgedSnapshot] = {}
        self._trials: dict[str, _MeshTrial] = {}
        self._is_working = False

    def offer(self, judged: JudgedSnapshot) -> bool:
        """Take a snapshot. Returns whether :meth:`work` must be started."""
        if self._waiting.pop(judged.mesh, None) is not None or len(self._waiting) >= MOST_WAITING:
            self._instruments.count(SHADOWED, outcome="left_out")
        if len(self._waiting) < MOST_WAITING:
            self._waiting[judged.mesh] = judged
        return not self._is_working

    async def work(self) -> None:
        """Score what waits, one after the other."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._waiting:
                judged = self._waiting.pop(next(iter(self._waiting)))
                began = time.monotonic()
                outcome = await self._try(judged)
                self._instruments.count(SHADOWED, outcome=outcome)
                if self._is_busy():
                    await asyncio.sleep((time.monotonic() - began) * (1 / self._share - 1))
        finally:
            self._is_working = False

    def forget(self, mesh: str) -> None:
        """Forget what is in memory of a mesh."""
        self._waiting.pop(mesh, None)
        self._trials.pop(mesh, None)

    async def _try(self, judged: JudgedSnapshot) -> str:
        """Score a snapshot, and store what both models made of it. Returns the outcome for the metric."""
        try:
            return "scored" if await self._score(judged) else "left_out"
        except StoreConflict:  # another session has the mesh now, or had it before
            self._trials.pop(judged.mesh, None)
            return "failed"
        except Exception as error:  # no one waits for it
            log.warning(
                "mesh %s: not scored in the shadow: %s", judged.mesh, error, exc_info=not isinstance(error, ServeError)
            )
            return "failed"

    async def _score(self, judged: JudgedSnapshot) -> bool:
        other = await self._models.other(judged.mesh)
        if other is None:
            self._trials.pop(judged.mesh, None)
            return False
        rollout, used = self._models.rollout, judged.verdict.model_digest
        trial = rollout.trial
        if trial is None or used == other.checkpoint.digest:  # it changed while the snapshot waited
            return False
        is_candidate = pins_of(rollout, judged.mesh)[0] == trial.candidate
        pair = (used, other.checkpoint.digest)
        known = self._trials.get(judged.mesh)
        if known is None or (known.used, known.other) != pair:
            known = self._trials[judged.mesh] = await self._begin(judged, *pair, is_candidate=is_candidate)
        memory = combine(known.memory, judged.prepared.mesh.state.memory)
        verdict, known.memory, seconds = await self._judge(judged, other, memory)
        ours, theirs = outcome_of(judged.verdict, judged.seconds), outcome_of(verdict, seconds)
        candidate, baseline = (ours, theirs) if is_candidate else (theirs, ours)
        found = PairDocument(observed_at=judged.verdict.observed_at, candidate=candidate, baseline=baseline)
        new = {}
        for one in (candidate, baseline):
            new[one.model] = len(set(one.alerts) - known.known[one.model])
            known.known[one.model] = set(one.alerts)
        known.document = add_to_trial(
            known.document,
            found,
            (new[candidate.model], new[baseline.model]),
            BlockDocument(since=trial.since, share=trial.share, began=found.observed_at),
            judged.prepared.mesh.state.interval_seconds,
            judged.services,
        )
        content = known.document.model_dump_json().encode()
        known.revision = await asyncio.to_thread(
            self._store.write_document, trial_name(judged.mesh), content, revision=known.revision
        )
        return True

    async def _begin(self, judged: JudgedSnapshot, used: str, other: str, *, is_candidate: bool) -> _MeshTrial:
        """Begin, or continue what another session has stored. The other model begins with what alerting remembers of
        the one in use."""
        candidate, baseline = (used, other) if is_candidate else (other, used)
        revision, document = await asyncio.to_thread(read_trial, self._store, judged.mesh)
        if document is None or (document.candidate, document.baseline) != (candidate, baseline):
            document = MeshTrialDocument(
                mesh=judged.mesh, services=judged.services, candidate=candidate, baseline=baseline
            )
        alerts = {one.id for one in judged.memory.open}
        known = {version: set(alerts) for version in (used, other)}
        return _MeshTrial(used, other, judged.prepared.mesh.state.memory, document, revision, known)


def combine(own: IncidentMemory, shared: IncidentMemory) -> IncidentMemory:
    """What alerting remembers for a model in the shadow: its own deviations and incidents, and what is known of the
    mesh, such as planned changes, mutes and feedback."""
    if shared.lost:  # a gap so long that nothing stays open
        own = own.forget_incidents()
    return replace(
        own,
        changes=shared.changes,
        expiring_changes=shared.expiring_changes,
        late=shared.late,
        feedback=shared.feedback,
        mutes=shared.mutes,
        active_mutes=shared.active_mutes,
        schedule=shared.schedule,
    )


def add_to_trial(
    document: MeshTrialDocument,
    pair: PairDocument,
    new_alerts: tuple[int, int],
    empty: BlockDocument,
    interval_seconds: float,
    services: int,
    most_blocks: int = MOST_BLOCKS,
) -> MeshTrialDocument:
    """Add a snapshot to the trial of a mesh.

    Args:
        document: with the snapshots before it.
        pair: what both models made of it.
        new_alerts: of the candidate and of the baseline, that began with it.
        empty: a block that begins with it.
        interval_seconds: between two snapshots, as a rule.
        services: in the snapshot.
        most_blocks: that are kept.
    """
    blocks, pairs = document.blocks, document.pairs
    if is_comparable(pair):
        block = blocks[-1] if blocks else empty
        is_full = block.snapshots >= SNAPSHOTS_OF_A_BLOCK
        if not blocks or is_full or (block.since, block.share) != (empty.since, empty.share):
            blocks, block = [*blocks, empty][-most_blocks:], empty
        passed = (pair.observed_at - pairs[-1].observed_at).total_seconds() if pairs else interval_seconds
        seconds = min(max(passed, 0.0), LONGEST_GAP_INTERVALS * interval_seconds)
        blocks = [*blocks[:-1], add_pair(block, pair, seconds, *new_alerts)]
    changes = {"pairs": [*pairs, pair][-MOST_PAIRS:], "blocks": blocks, "services": services}
    return document.model_copy(update=changes)


def trial_name(mesh: str) -> str:
    """The name of the document in the store that has the trial of a mesh."""
    return f"trial/{mesh}"


def read_trial(store: StateStore, mesh: str) -> tuple[int, MeshTrialDocument | None]:
    """The revision and the trial of a mesh; 0 and None if there is none. One of another version counts as none."""
    found = store.read_document(trial_name(mesh))
    if found is None:
        return 0, None
    try:
        return found.revision, MeshTrialDocument.model_validate_json(found.content)
    except ValueError:
        return found.revision, None
