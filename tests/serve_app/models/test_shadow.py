"""Scoring in the shadow: the same snapshots, silently, and only in spare time."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.checkpoint import Checkpoint, load, save
from model.incidents.memory import IncidentMemory
from model.mesh_weights import load_weights
from model.snapshot import MeshSnapshot
from model.verdict import Status, Verdict
from serve_app.api.schemas.models import MeshTrialDocument, ModelPin
from serve_app.errors import RegistryGone, UnfitModel
from serve_app.exporter import PrometheusInstruments
from serve_app.metrics import SHADOWED, Metric
from serve_app.models import admin
from serve_app.models import rollout as changes
from serve_app.models.comparison import SNAPSHOTS_PER_BLOCK, outcome_of
from serve_app.models.recorded_comparison import compare_over_recordings
from serve_app.models.registry import WEIGHTS, Registry
from serve_app.models.served import ServedModel, ServedModels, open_models
from serve_app.models.shadow import MAX_WAITING, JudgedSnapshot, Shadow, read_trial
from serve_app.pipeline import LocalRunner, Mesh, Options, advance_in_detail, commit, judge, with_memory
from serve_app.recordings.writer import RecordingWriter
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.state_store import StateStore
from tests.builders import add_model
from tests.serve_app.running import failing, record_simulation
from tests.serve_app.stores.content import append

SPEC = MeshSpec(services=30, seed=3)
OPTIONS = Options()
WARM_UP = 9  # snapshots
MIN_SNAPSHOTS = 60  # fewer than a limit wants, to be faster


def append_once(store: StateStore, mesh: str) -> None:
    """Store a mesh with any content: trials are of meshes that are stored."""
    if store.load(mesh) is None:
        append(store, 1, mesh)


class Counts(PrometheusInstruments):
    """Instruments that remember what they counted."""

    def __init__(self) -> None:
        super().__init__()
        self.shadowed: Counter[str] = Counter()

    def count(self, metric: Metric, amount: float = 1.0, **labels: str) -> None:
        if metric is SHADOWED:
            self.shadowed[labels["outcome"]] += round(amount)


class Session:
    """Pushes snapshots as a session does, and scores them in the shadow."""

    def __init__(self, store: StateStore, registry: Registry) -> None:
        self.settings = Settings(models={"registry": registry.place})
        self.counts, self.store = Counts(), store
        self.models: ServedModels = open_models(self.settings, load_weights(None, {}), store, self.counts)
        self.models.follow()
        self.is_busy = False
        self.shadow = Shadow(self.models, self.judge, store, lambda: self.is_busy, self.counts)
        self.admin = admin.ModelAdmin(self.settings, self.models, store)
        self.meshes: dict[str, Mesh] = {}
        self.verdicts: list[Verdict] = []
        self.shadowed: list[Verdict] = []  # verdicts of the other model

    async def judge(
        self, judged: JudgedSnapshot, model: ServedModel, memory: IncidentMemory
    ) -> tuple[Verdict, IncidentMemory]:
        runner, prepared = LocalRunner(model.checkpoint), with_memory(judged.prepared, memory)
        _, verdict, after = await judge(runner, prepared, prepared.mesh.state.window[-1], judged.options)
        self.shadowed.append(verdict)
        return verdict, commit(prepared.mesh, after, counted=True).state.memory

    async def push(self, mesh: str, snapshot: MeshSnapshot, *, work: bool = True) -> Verdict:
        model = await self.models.of(mesh)
        before = self.meshes.get(mesh, Mesh())
        append_once(self.store, mesh)
        advanced = advance_in_detail(model.checkpoint, before, snapshot, OPTIONS)
        self.meshes[mesh] = advanced.mesh
        self.verdicts.append(advanced.verdict)
        if self.models.has_trial:
            memory = advanced.mesh.state.memory
            self.shadow.offer(JudgedSnapshot(mesh, advanced.prepared, advanced.verdict, memory, OPTIONS))
            if work:
                await self.shadow.work()
        return advanced.verdict

    async def push_all(self, snapshots: Sequence[MeshSnapshot]) -> None:
        for snapshot in snapshots:
            await self.push("shop", snapshot)

    def try_out(self, pin: ModelPin, share: float = 0.0) -> None:
        self.models.change(lambda rollout: changes.start_canary(rollout, pin, share))

    def fail_beside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the other model fail with an error."""

        async def fail(*_: object) -> None:
            raise RuntimeError("shapes do not match")

        monkeypatch.setattr(self.shadow, "_judge", fail)

    def trial(self, mesh: str = "shop") -> MeshTrialDocument:
        return self.shadow._trials[mesh].document


def sum_of_blocks(session: Session) -> int:
    return sum(block.snapshots for block in session.trial().blocks)


@pytest.fixture
def session(place: StoreSettings, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setattr(admin, "MIN_SNAPSHOTS", MIN_SNAPSHOTS)
    with closing(open_store(place)) as store:
        yield Session(store, registry)


def add(registry: Registry, checkpoint: Checkpoint, folder: Path, name: str) -> ModelPin:
    path = folder / f"{name}.safetensors"
    save(checkpoint, path)
    return add_model(registry, path)


@pytest.fixture
def twin(registry: Registry, tmp_path: Path) -> ModelPin:
    """The shipped weights under another version."""
    return add(registry, replace(load(), provenance={"seed": "twin"}), tmp_path, "twin")


@pytest.fixture
def nervous(registry: Registry, tmp_path: Path) -> ModelPin:
    """A model that alerts at almost everything."""
    shipped = load()
    return add(registry, replace(shipped, page_offset=shipped.page_offset - 4.0), tmp_path, "nervous")


def record_slow_moments(count: int) -> list[MeshSnapshot]:
    """Return a recording in which a service is slow now and then, too shortly for an alert of the shipped model."""
    simulator = Simulator(SPEC, snapshots=count)
    slow = (Fault("latency_injection", failing(SPEC), at, at + 5, 1.0) for at in range(25, count - 5, 25))
    simulator.schedule(*slow)
    return list(simulator.snapshots())


async def test_an_equal_model_makes_the_same_verdicts_in_the_shadow(session: Session, twin: ModelPin) -> None:
    snapshots = record_simulation(SPEC, 60, fault_from=40)
    await session.push_all(snapshots[:20])
    session.try_out(twin)
    await session.push_all(snapshots[20:])
    trial = session.trial()
    assert (trial.candidate, trial.baseline) == (twin.version, load().digest)
    assert len(session.shadowed) == 40
    for ours, theirs in zip(session.verdicts[20:], session.shadowed, strict=True):
        assert outcome_of(theirs, frozenset()) == outcome_of(ours, frozenset())
    assert any(verdict.alerts for verdict in session.shadowed), "the fault raises an alert"
    assert trial.newest == snapshots[-1].observed_at
    assert [verdict.model_digest for verdict in session.verdicts] == [load().digest] * 60, "it alerts no one"
    comparison = await asyncio.to_thread(session.admin.compare, twin.version)
    assert (comparison.same_status.value, comparison.same_culprit.value) == (1.0, 1.0)
    assert comparison.candidate_alerts_per_day == comparison.baseline_alerts_per_day
    assert comparison.score_difference.value == 0
    assert session.counts.shadowed == {"scored": 40}


async def test_after_a_promotion_the_roles_change_and_the_comparison_continues(
    session: Session, twin: ModelPin
) -> None:
    snapshots = record_simulation(SPEC, 45)
    session.try_out(twin)
    await session.push_all(snapshots[:25])
    session.try_out(twin, 1.0)
    await session.push_all(snapshots[25:])
    assert session.verdicts[-1].model_digest == twin.version
    trial = session.trial()
    assert trial.candidate == twin.version
    assert {block.share for block in trial.blocks} == {0.0, 1.0}, "first in the shadow, then in use"


async def test_another_session_continues_the_trial_of_a_mesh(
    session: Session, registry: Registry, twin: ModelPin
) -> None:
    full = WARM_UP + SNAPSHOTS_PER_BLOCK  # the first block is full, and stored
    snapshots = record_simulation(SPEC, full + 20)
    session.try_out(twin)
    await session.push_all(snapshots[:full])
    second = Session(session.store, registry)
    second.meshes = dict(session.meshes)
    await second.push_all(snapshots[full : full + 10])
    assert sum_of_blocks(second) == SNAPSHOTS_PER_BLOCK + 10
    session.meshes = dict(second.meshes)
    await session.push_all(snapshots[full + 10 :])
    assert session.counts.shadowed == {"scored": full + 9, "failed": 1}, "its document was out of date once"
    assert sum_of_blocks(session) == SNAPSHOTS_PER_BLOCK + 10, "what the second had not stored is lost, but its first"


async def test_a_trial_is_stored_with_the_first_and_the_last_snapshot_of_a_block(
    session: Session, twin: ModelPin, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = session.store.write_document

    def count(name: str, content: bytes, *, revision: int) -> int:
        written.append(name)
        return write(name, content, revision=revision)

    session.try_out(twin)
    monkeypatch.setattr(session.store, "write_document", count)
    await session.push_all(record_simulation(SPEC, WARM_UP + 2 * SNAPSHOTS_PER_BLOCK + 5))
    assert written == ["trial/shop"] * (1 + 2 * 2 + 1)
    revision, stored = read_trial(session.store, "shop")
    assert stored is not None
    assert [block.snapshots for block in stored.blocks] == [SNAPSHOTS_PER_BLOCK, SNAPSHOTS_PER_BLOCK, 1]
    assert session.trial().blocks[-1].snapshots == 5, "the session of the mesh knows the rest"
    assert revision > 0


async def test_a_verdict_of_a_third_model_leaves_the_trial_as_it_is(session: Session, twin: ModelPin) -> None:
    """As when a session could not load the model in use, and used other weights for a while."""
    snapshots = record_simulation(SPEC, 30)
    session.try_out(twin)
    await session.push_all(snapshots[:20])
    before, trial = session.trial(), session.shadow._trials["shop"]
    of = session.models.of

    async def third(mesh: str) -> ServedModel:
        return ServedModel(replace((await of(mesh)).checkpoint, digest="3" * 16))

    session.models.of = third  # type: ignore[method-assign]
    await session.push("shop", snapshots[20])
    assert session.trial() == before
    session.models.of = of  # type: ignore[method-assign]
    await session.push("shop", snapshots[21])
    assert session.shadow._trials["shop"] is trial, "with what the other model remembers"
    assert session.counts.shadowed == {"scored": 21, "left_out": 1}


async def test_a_registry_that_is_away_neither_fails_nor_ends_a_trial(
    session: Session, twin: ModelPin, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.try_out(twin)
    snapshots = record_simulation(SPEC, 3)
    await session.push("shop", snapshots[0])
    before, trial = session.trial(), session.shadow._trials["shop"]

    async def away(pin: ModelPin | None) -> None:
        raise RegistryGone("the registry is away")

    with monkeypatch.context() as patched:
        patched.setattr(session.models, "load", away)
        await session.push("shop", snapshots[1])
    assert session.trial() == before
    await session.push("shop", snapshots[2])
    assert session.shadow._trials["shop"] is trial
    assert session.counts.shadowed == {"scored": 2, "left_out": 1}


@pytest.mark.parametrize("how", ["error", "partial", "in use"])
async def test_a_candidate_that_cannot_score_is_rolled_back(
    session: Session, twin: ModelPin, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the shadow it ends with an error, or scores a part; in use, a snapshot has no verdict."""
    judge = session.judge

    async def judge_in_part(judged: JudgedSnapshot, model: ServedModel, memory: IncidentMemory) -> Any:
        verdict, after = await judge(judged, model, memory)
        return replace(verdict, status=Status.PARTIAL, coverage=0.5), after

    if how == "error":
        session.fail_beside(monkeypatch)
    elif how == "partial":
        monkeypatch.setattr(session.shadow, "_judge", judge_in_part)
    session.try_out(twin, 1.0 if how == "in use" else 0.0)
    for i, snapshot in enumerate(record_simulation(SPEC, MIN_SNAPSHOTS)):
        await session.admin.check()
        assert session.models.has_trial, f"after {i} snapshots"
        if how == "in use":
            append_once(session.store, "shop")
            await session.shadow.add_failure("shop", twin.version)
        else:
            assert (await session.push("shop", snapshot)).model_digest == load().digest
    await session.admin.check()
    event = session.models.rollout.history[-1]
    assert event.action.value == "rollback"
    assert event.reason == (
        "it could not score 100% of the snapshots (95% interval from 100%), at most 5%, with the baseline 0%"
    )
    comparison = session.admin.compare(twin.version)
    assert (comparison.snapshots, comparison.attempts) == (0, MIN_SNAPSHOTS)
    assert comparison.candidate_failed.value == 1.0
    if how == "error":
        assert session.counts.shadowed == {"failed": MIN_SNAPSHOTS}
        assert "mesh shop: not scored in the shadow: shapes do not match" in caplog.text


async def test_a_model_on_all_meshes_that_cannot_be_loaded_is_rolled_back(
    session: Session, twin: ModelPin, tmp_path: Path
) -> None:
    (tmp_path / "models" / twin.version / WEIGHTS).write_bytes(b"changed")
    session.try_out(twin, 1.0)
    for snapshot in record_simulation(SPEC, MIN_SNAPSHOTS):
        assert (await session.push("shop", snapshot)).model_digest == load().digest, "it keeps the weights before"
    await session.admin.check()
    event = session.models.rollout.history[-1]
    assert (event.action.value, event.by) == ("rollback", "")
    assert event.reason.startswith("it could not score 100% of the snapshots")


async def test_a_baseline_that_fails_is_no_reason_to_go_back_to_it(
    session: Session, twin: ModelPin, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.fail_beside(monkeypatch)
    session.try_out(twin, 1.0)
    await session.push_all(record_simulation(SPEC, 60))
    await session.admin.check()
    assert session.models.has_trial
    assert session.admin.compare(twin.version).baseline_failed.value == 1.0


async def test_the_gate_rolls_back_a_model_that_alerts_too_often(session: Session, nervous: ModelPin) -> None:
    snapshots = record_slow_moments(120)
    await session.push_all(snapshots[:20])
    session.try_out(nervous, 1.0)
    for snapshot in snapshots[20:]:
        await session.push("shop", snapshot)
        await session.admin.check()
        if not session.models.has_trial:
            break
    history = session.models.rollout.history
    assert [event.action.value for event in history] == ["canary", "rollback"]
    assert history[-1].by == ""
    assert "budget" in history[-1].reason or "agrees" in history[-1].reason
    verdict = await session.push("shop", snapshots[-1])
    assert verdict.model_digest == load().digest


async def test_without_a_trial_nothing_is_stored(session: Session) -> None:
    await session.push_all(record_simulation(SPEC, 5))
    assert read_trial(session.store, "shop") == (0, None)
    assert not session.counts.shadowed


async def test_only_the_newest_snapshot_of_a_mesh_waits_and_few_meshes(session: Session, twin: ModelPin) -> None:
    snapshots = record_simulation(SPEC, 3)
    session.try_out(twin)
    for snapshot in snapshots:
        await session.push("shop", snapshot, work=False)
    for i in range(MAX_WAITING):
        await session.push(f"mesh-{i}", snapshots[0], work=False)
    assert session.counts.shadowed == {"left_out": 3}
    await session.shadow.work()
    assert session.counts.shadowed == {"left_out": 3, "scored": MAX_WAITING}
    assert session.trial().newest == snapshots[-1].observed_at


async def test_while_the_session_is_busy_the_shadow_rests(
    session: Session, twin: ModelPin, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    session.try_out(twin)
    snapshots = record_simulation(SPEC, 2)
    await session.push("shop", snapshots[0])
    monkeypatch.setattr("serve_app.models.shadow.asyncio.sleep", rest)
    session.is_busy = True
    await session.push("shop", snapshots[1])
    assert len(rests) == 1
    assert rests[0] > 0


async def test_a_deleted_mesh_has_no_trial(session: Session, twin: ModelPin) -> None:
    session.try_out(twin)
    await session.push("shop", record_simulation(SPEC, 1)[0])
    await session.shadow.delete("shop")
    assert session.store.read_document("trial/shop").revision == 0


def test_models_are_compared_over_recordings(registry: Registry, nervous: ModelPin, tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "shop", 15.0, {"source": "simulated"}) as writer:
        for snapshot in record_slow_moments(60):
            writer.write(snapshot)
    card = registry.card(nervous.version)
    comparison = compare_over_recordings(registry, card, None, [tmp_path / "shop"], Settings())
    assert (comparison.candidate, comparison.baseline) == (nervous.version, load().digest)
    assert (comparison.meshes, comparison.snapshots) == (1, 51)
    assert comparison.candidate_alerts_per_day.value is not None
    assert comparison.baseline_alerts_per_day.value is not None
    assert comparison.candidate_alerts_per_day.value > comparison.baseline_alerts_per_day.value
    with pytest.raises(UnfitModel, match="expected another baseline"):
        compare_over_recordings(registry, card, card, [tmp_path / "shop"], Settings())
