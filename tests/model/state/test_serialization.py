import json
import pickle
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from model.drift.sketch import DriftSketch
from model.errors import IncompatibleWeights
from model.incidents.feedback import Feedback, PastIncident
from model.incidents.memory import IncidentMemory
from model.incidents.mutes import Mute
from model.incidents.open_incident import Lead, OpenIncident, PastNotice
from model.incidents.reconstruction_history import ReconstructionHistory
from model.incidents.schedule import Burst, Schedule, Work
from model.incidents.threshold import Track
from model.snapshot import PlannedChange
from model.state.mesh_state import MeshState
from model.state.serialization import LAYOUT, pack_state, pack_step, unpack_state, unpack_step
from model.verdict import LimitForecast, NearbyChange, Reason, Severity, Suspect
from tests.builders import START
from tests.contract import different
from tests.model.model_cases import at, settled_state, snapshot, watch

NEAR = (NearbyChange(PlannedChange("deploy", "shop/cart", "why not"), at(5)),)
SUSPECT = Suspect(
    "shop/store",
    0.9,
    (Reason(metric="p99_latency", observed=0.4, expected=0.1, since=at(4), source="shop/cart", load=1.5),),
    (Reason(metric="sent_calls", observed=540.0, expected=300.0, since=at(4)),),
)
LEAKING = Suspect(
    "shop/cart",
    1.0,
    (
        Reason(
            metric="memory_utilization",
            observed=0.8,
            expected=0.4,
            since=at(1),
            forecast=LimitForecast(600.0, 300.0, 900.0),
        ),
    ),
)
MEMORY = IncidentMemory(
    scores=(0.5, 1.25, 3.0000001),
    times=(START.timestamp(), START.timestamp() + 15.25, START.timestamp() + 30),
    incident_scores=((START.timestamp() + 45, 7.5),),
    threshold=(6.25, at(2).timestamp()),
    tracks={"shop/cart": Track((7.25, 0.0, 6.5), START, at(1)), "shop/store": Track((3.5,), at(2))},
    above_notice={"shop/store": (0b1, at(3))},
    above_traffic={"shop/*": (0b11, at(4))},
    open=(
        OpenIncident(
            id="20260101T000000Z-abcd",
            since=START,
            severity=Severity.CRITICAL,
            members=("shop/cart", "shop/store"),
            normal_for={"shop/store": 2},
            quiet=2,
            returned=1,
            unseen=3,
            changes=NEAR,
            peak=12.5,
            suspects=(SUSPECT,),
            suspects_at=at(4),
            leads=(Lead(SUSPECT, 9, 2),),
            notices=(PastNotice(LEAKING, at(3)),),
            recurrences=2,
            spent=(("shop/front 99.9%", 7.5, 100.0),),
        ),
        OpenIncident(
            id="20260101T000100Z-beef", since=at(4), severity=Severity.MAJOR, members=("shop/gateway",), scope="shop/*"
        ),
    ),
    ended=(
        OpenIncident(
            id="20260101T000030Z-f00d",
            since=at(2),
            severity=Severity.MAJOR,
            members=("shop/search",),
            normal_for={"shop/search": 4},
            quiet=4,
            returned=4,
            suspects=(SUSPECT,),
            suspects_at=at(2),
            recurrences=1,
            ended_at=at(7),
        ),
    ),
    changes=((PlannedChange("deploy", "shop/cart", "why not"), 3),),
    mutes=(Mute("m", ("shop/*", "pay/bank"), START, at(100), "moved", at(0)),),
    schedule=Schedule({"shop/store": Work((Burst(START.timestamp(), 60.0, 7.5, 0.4),), 1800.0)}, START.timestamp()),
    reconstruction=ReconstructionHistory(
        "weights",
        np.array([[START.timestamp(), at(1).timestamp()], [0.07, 0.2], [0.0, 1.5]]),
        np.array([[1.0, 2.0], [0.5, 0.25]], np.float32),
        1,
        0b1,
        at(1),
    ),
    past=(PastIncident("20260101T000000Z-abcd", START, at(9), ("shop/cart",), {"shop/cart": (6.5, 0.0, 1.25)}),),
    feedback=(
        Feedback(
            incident="i-1",
            was_incident=False,
            services=("shop/cart",),
            since=START,
            until=at(9),
            given_at=at(9),
            moves={"shop/cart": (1.5, 0.0, 0.0)},
            note="nightly",
        ),
        Feedback(
            incident="i-2",
            was_incident=True,
            services=("shop/cart", "shop/store"),
            since=at(1),
            until=at(2),
            given_at=at(10),
            missed=True,
            culprit="shop/db",
        ),
    ),
)


@cache
def full_state() -> MeshState:
    _, state = watch([snapshot(30, calls=((0, 1), (0, 2)))], settled_state())
    unmeasured = np.arange(len(state.node_ids), dtype=np.int32)
    _, weekly = watch(snapshot(i, interval=300.0) for i in range(20))
    assert weekly.traffic.weeks.any()
    traffic = replace(weekly.traffic, low=weekly.traffic.level - np.float32(0.5))
    return replace(state, memory=MEMORY, node_unmeasured=unmeasured, traffic=traffic)


@pytest.mark.parametrize("state", [MeshState(), full_state()], ids=["empty", "full"])
def test_a_loaded_state_is_equal(state: MeshState) -> None:
    back = unpack_state(pack_state(state), state.window)
    assert not different(back, state)
    assert pack_state(back) == pack_state(state)
    for ours, theirs in ((back, state), (back.traffic, state.traffic), (back.drift, state.drift)):
        arrays = [name for field in fields(ours) if isinstance(getattr(ours, name := field.name), np.ndarray)]
        assert all(getattr(ours, name).dtype == getattr(theirs, name).dtype for name in arrays)


def test_a_step_has_only_the_losses_since_the_full_state() -> None:
    history = ReconstructionHistory("weights")
    for number in range(6):
        embedding = np.full(2, number, np.float32)
        history = history.learn(at(number), 0.1 * number, 1.0, embedding, is_above=False, longest=3)
        if number == 3:
            full = IncidentMemory(reconstruction=history)
    memory = IncidentMemory(reconstruction=history)
    step = pack_step(memory, snapshots=2)
    assert load(step)["reconstruction.past"].shape == (3, 2)
    assert not different(unpack_step(step, full), memory)


def test_a_step_after_a_new_start_of_the_history_has_none_of_the_earlier_losses() -> None:
    before, after = ReconstructionHistory("old"), ReconstructionHistory("new")
    for number in range(4):
        before = before.learn(at(number), 0.1, 1.0, np.zeros(2, np.float32), is_above=False, longest=3)
    after = after.learn(at(5), 0.3, 1.0, np.zeros(2, np.float32), is_above=False, longest=3)
    for memory in (IncidentMemory(reconstruction=after), IncidentMemory(reconstruction=ReconstructionHistory("new"))):
        step = pack_step(memory, snapshots=2)
        assert not different(unpack_step(step, IncidentMemory(reconstruction=before)), memory)


def test_the_ring_is_stored_separately() -> None:
    assert unpack_state(pack_state(full_state())).window == ()


def test_another_schema_is_refused_naming_the_channel() -> None:
    tensors = load(pack_state(full_state()))
    theirs = tensors["document"].tobytes().decode().replace("cpu_per_request", "cpu_per_call")
    tensors["document"] = np.frombuffer(theirs.encode(), np.uint8)
    with pytest.raises(IncompatibleWeights, match=r"node channel 8: expected .*cpu_per_request.* got .*cpu_per_call"):
        unpack_state(save(tensors))


@pytest.mark.parametrize("size", [0, 4, 100, 5_000, -1])
def test_a_truncated_state_is_refused(size: int) -> None:
    with pytest.raises(IncompatibleWeights, match=r"^saved state: expected"):
        unpack_state(pack_state(full_state())[:size])


def test_a_pickle_is_refused_and_not_run() -> None:
    with pytest.raises(IncompatibleWeights, match=r"^saved state: expected"):
        unpack_state(pickle.dumps({"node_filters": np.zeros(3)}))


@given(st.binary(max_size=200))
@example(b"\2\0\0\0\0\0\0\0[]")  # a header that is no object
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(IncompatibleWeights, match=r"^saved state: expected"):
        unpack_state(data)


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b"null", b'{"schema": 3}', b"\xff\xfe", b'{"layout": 1, "schema": "{}"}'], ids=repr
)
def test_a_state_with_another_document_is_refused(document: bytes) -> None:
    tensors = load(pack_state(full_state()))
    with pytest.raises(IncompatibleWeights, match=r"^saved state: expected"):
        unpack_state(save(tensors | {"document": np.frombuffer(document, np.uint8)}))


@pytest.mark.parametrize("change", [{"layout": LAYOUT + 1}, {"memory": {}}, {"node_ids": 3}, {"drift": []}], ids=repr)
def test_a_state_of_another_layout_is_refused(change: dict[str, object]) -> None:
    tensors = load(pack_state(full_state()))
    document = json.loads(tensors["document"].tobytes()) | change
    tensors["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    with pytest.raises(IncompatibleWeights, match=r"^saved state: expected"):
        unpack_state(save(tensors))


def test_a_state_of_an_earlier_version_is_read_without_the_counts_of_its_services() -> None:
    tensors = load(pack_state(full_state()))
    document = json.loads(tensors["document"].tobytes())
    for one in (*document["memory"]["open"], *document["memory"]["ended"]):
        one["calm"] = [*one.pop("normal_for").values(), 0]
    tensors["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    memory = unpack_state(save(tensors)).memory
    assert memory == replace(
        MEMORY,
        open=tuple(replace(one, normal_for={}) for one in MEMORY.open),
        ended=tuple(replace(one, normal_for={}) for one in MEMORY.ended),
    )


def test_a_state_without_an_array_is_refused_with_the_name_of_the_array() -> None:
    tensors = load(pack_state(full_state()))
    del tensors["edge_filters"]
    with pytest.raises(IncompatibleWeights, match="edge_filters"):
        unpack_state(save(tensors))


def test_a_step_has_all_that_is_remembered_except_for_earlier_scores_and_losses() -> None:
    memory = unpack_step(pack_step(MEMORY, snapshots=3), IncidentMemory())
    assert memory == replace(MEMORY, reconstruction=memory.reconstruction)


def test_a_sketch_of_another_version_starts_again() -> None:
    tensors = load(pack_state(full_state()))
    tensors["drift.counts.values"] = np.zeros((3, 5), np.float32)
    assert not different(unpack_state(save(tensors)).drift, DriftSketch())
    del tensors["drift.counts.values"]
    assert not different(unpack_state(save(tensors)).drift, DriftSketch())
    tensors = load(pack_state(full_state()))
    del tensors["drift.calls.ends"]
    assert not different(unpack_state(save(tensors)).drift, DriftSketch())


def test_what_is_true_of_one_snapshot_only_is_not_stored() -> None:
    memory = replace(MEMORY, lost=("20260101T000000Z-gone",), expiring_changes=frozenset({"shop/cart"}))
    assert unpack_state(pack_state(replace(full_state(), memory=memory))).memory == MEMORY
    assert unpack_step(pack_step(memory, snapshots=3), MEMORY) == MEMORY


def test_a_stored_suspect_without_context_is_read() -> None:
    tensors = load(pack_state(full_state()))
    document = json.loads(tensors["document"].tobytes())
    for incident in document["memory"]["open"]:
        for suspect in incident["suspects"]:
            del suspect["context"]
    tensors["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    back, _ = unpack_state(save(tensors), full_state().window).memory.open
    assert back.suspects == (replace(SUSPECT, context=()),)


def remember(memory: IncidentMemory, alerts: Sequence[bool], first: int = 0, keep: int = 6) -> IncidentMemory:
    """Add a score for each of these, with an alert or without; the times begin with the first number."""
    for number, alerted in enumerate(alerts, first):
        at_time = START + timedelta(seconds=15 * number)
        memory = memory.add_score(float(number), at_time, normal=not alerted, keep=keep)
    return memory


@given(st.lists(st.booleans(), max_size=12), st.lists(st.booleans(), max_size=12), st.integers(0, 3))
def test_a_step_with_the_full_state_before_it_has_all_scores(
    before: list[bool], since: list[bool], without_score: int
) -> None:
    full = remember(IncidentMemory(), before)
    after = remember(full, since, first=len(before))
    packed = pack_step(after, snapshots=max(1, len(since) + without_score))
    assert unpack_step(packed, full) == after


def test_a_step_does_not_grow_with_the_scores() -> None:
    full = remember(IncidentMemory(), [False] * 200, keep=2000)
    few = pack_step(remember(IncidentMemory(), [False] * 5, keep=2000), snapshots=5)
    many = pack_step(remember(full, [False] * 5, first=200, keep=2000), snapshots=5)
    assert len(many) <= len(few) + 16  # digits of the count
