"""Mutes and sensitivities: which services are muted, how page levels move. Muted services are in no incident."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.decision.verdict_building import build_verdict
from model.evidence.gather import MAX_CANDIDATES, Evidence, _first
from model.evidence.kinds import EVENT_SURPRISE, EvidenceKind, K, page_score
from model.evidence.level_shifts import apply_level_shifts, excess, lower_evidence
from model.evidence.traffic import MESH, TrafficChange
from model.incidents.matching import FoundGroup, Group, groups, match_incidents, split_muted
from model.incidents.memory import IncidentMemory
from model.incidents.mutes import EVERY, LEVELS, ActiveMutes, Mute, active_mutes, matches
from model.incidents.open_incident import RETURNED, advance_members
from model.incidents.threshold import Track, decisive_scores, follow_scores
from model.snapshot import Sensitivity, ServicePolicy
from model.state.mesh_state import MeshState
from model.state.serialization import pack_state, unpack_state
from model.verdict import MuteInForce, MuteOrigin, Severity, Status, Suspect, Verdict
from tests.builders import open_incident, reason
from tests.model.decision.verdict_cases import LEVEL, POLICY, evidence, meta, when
from tests.model.model_cases import at

LOW, NORMAL, HIGH = Sensitivity.LOW, Sensitivity.NORMAL, Sensitivity.HIGH
NAMES = ("shop/cart", "shop/store", "pay/card", "pay/bank", "shopping/list", "edge/front")


def mute(*services: str, start: float = 0, end: float = 100) -> Mute:
    return Mute(f"m-{start}-{end}", services, at(start), at(end), "moved", at(0))


def muted(*services: str) -> ActiveMutes:
    return ActiveMutes((MuteInForce(MuteOrigin.API, services, "moved", "m"),))


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ((), []),
        (("shop/cart", "nobody/here"), ["shop/cart"]),
        (("shop/*",), ["shop/cart", "shop/store"]),
        (("shop/*", "pay/bank"), ["shop/cart", "shop/store", "pay/bank"]),
        ((EVERY,), list(NAMES)),
    ],
)
def test_a_mute_names_services_or_namespaces_or_all(named: tuple[str, ...], wanted: list[str]) -> None:
    assert [name for name, is_it in zip(NAMES, matches(named, NAMES), strict=True) if is_it] == wanted


def test_a_mute_is_active_from_start_to_end_and_a_window_mutes_all_services() -> None:
    given = [mute("shop/cart", start=10, end=20), mute(start=15, end=16)]
    who = [active_mutes(given, (), (), at(i)).is_muted(NAMES).tolist().count(True) for i in (9, 10, 15, 16, 19, 20)]
    assert who == [0, 1, len(NAMES), 1, 1, 0]
    assert active_mutes(given, (), [ServicePolicy("pay/*", mute="x")], None).mutes == (), "a baseline must be learned"


def test_mutes_add_up_and_have_their_origin() -> None:
    policies = [ServicePolicy("pay/bank", mute="old"), ServicePolicy("pay/card", mute="old")]
    found = active_mutes([mute("shop/cart")], [ServicePolicy("shop/*", mute="jobs")], policies, at(1)).mutes
    assert [(one.origin, one.services, one.reason) for one in found] == [
        (MuteOrigin.API, ("shop/cart",), "moved"),
        (MuteOrigin.SNAPSHOT, ("pay/bank", "pay/card"), "old"),
        (MuteOrigin.SETTINGS, ("shop/*",), "jobs"),
    ]
    assert [one.until for one in found] == [at(100), None, None]


@pytest.mark.parametrize(
    ("settings_say", "snapshot_says", "wanted"),
    [
        ({}, {}, 0.0),
        ({"shop/*": LOW}, {}, 1.0),
        ({"shop/*": LOW}, {"shop/cart": HIGH}, -0.5),
        ({"shop/cart": LOW}, {"shop/cart": HIGH}, 1.0),
        ({"shop/cart": NORMAL, "shop/*": LOW}, {}, 0.0),
        ({"shop/*": LOW}, {"shop/*": HIGH}, 1.0),
        ({"shop/*": LOW}, {"shop/cart": None}, 1.0),
    ],
)
def test_the_most_specific_sensitivity_counts(
    settings_say: dict[str, Sensitivity], snapshot_says: dict[str, Sensitivity | None], wanted: float
) -> None:
    of_settings, of_snapshot = (
        [ServicePolicy(*one) for one in policies.items()] for policies in (settings_say, snapshot_says)
    )
    raised = active_mutes((), of_settings, of_snapshot, at(0)).level_shifts(NAMES)
    assert raised[0] == wanted
    assert not raised[2:].any()


surprise = st.floats(0, 15, width=32)


@settings(max_examples=60)
@given(st.tuples(surprise, surprise, surprise), st.sampled_from(Sensitivity))
def test_sensitivity_moves_the_level_but_false_alarms_stay_silent_at_any_sensitivity(
    shown: tuple[float, float, float], sensitivity: Sensitivity
) -> None:
    kinds = np.zeros((1, K), np.float32)
    kinds[0, [EvidenceKind.LATENCY, EvidenceKind.ERROR, EvidenceKind.VANISHED]] = shown
    memory = IncidentMemory(active_mutes=ActiveMutes(levels={"shop/cart": LEVELS[sensitivity]}))
    moved, plain = page_score(apply_level_shifts(kinds, memory, ["shop/cart"])), page_score(kinds)
    assert np.sign(plain - moved) in (0, np.sign(LEVELS[sensitivity]))
    assert page_score(apply_level_shifts(kinds, memory, ["pay/card"])) == plain
    alone = np.zeros((1, K), np.float32)
    alone[0, EvidenceKind.LATENCY] = shown[0]
    expected = max(shown[0] - LEVELS[sensitivity], 0) if shown[0] > 0 else 0
    assert page_score(apply_level_shifts(alone, memory, ["shop/cart"])) == pytest.approx(expected, abs=1e-5)
    levels = memory.active_mutes.level_shifts(["shop/cart"])[:, None]
    over = excess(lower_evidence(kinds, levels), LEVEL)
    assert page_score(lower_evidence(kinds, levels + over)) < LEVEL


def test_a_muted_service_is_no_candidate() -> None:
    count = 3 * MAX_CANDIDATES
    order = np.random.default_rng(0).permutation(count)
    assert _first(order, np.zeros(count, bool)).tolist() == order[:MAX_CANDIDATES].tolist()
    muted_rows = np.zeros(count, bool)
    muted_rows[order[:MAX_CANDIDATES]] = True
    assert _first(order, muted_rows).tolist() == order[: 2 * MAX_CANDIDATES].tolist()


Step = tuple[list[float], list[bool], list[bool]]  # page scores, affected services, muted services
steps = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0.0, 9.0]), min_size=6, max_size=6),
        *[st.lists(st.booleans(), min_size=6, max_size=6)] * 2,
    ),
    min_size=1,
    max_size=12,
)
calls = st.lists(st.tuples(*[st.integers(0, 5)] * 2), max_size=8)


def step(memory: IncidentMemory, inputs: Step, pairs: np.ndarray, now: datetime) -> tuple[IncidentMemory, set[str]]:
    """Track incidents as the meta-model does, and return the services that mutes hide."""
    scores, affected, muted_rows = np.array(inputs[0], np.float32), np.array(inputs[1]), np.array(inputs[2])
    who = tuple(name for name, is_it in zip(NAMES, muted_rows, strict=True) if is_it)
    tracks = follow_scores(memory.tracks, NAMES, scores, LEVEL, POLICY, now)
    confirmed = decisive_scores(tracks, NAMES, POLICY, np.ones(len(NAMES), bool)) >= LEVEL
    memory = replace(memory, tracks=tracks, active_mutes=muted(*who) if who else ActiveMutes()).without_muted()
    found, hidden = split_muted(
        groups((scores > LEVEL) | confirmed | affected, confirmed, pairs), confirmed, muted_rows
    )
    matched = match_incidents(
        memory.open, [FoundGroup(group, now, Severity.MINOR) for group in found], NAMES, clear_after=4
    )
    for group in matched.groups.values():
        assert not muted_rows[group.rows].any()
    for incident in matched.open:
        assert not set(incident.members) & set(who)
    return replace(memory, open=matched.open), {NAMES[i] for i in hidden}


@settings(max_examples=60)
@given(steps, calls)
def test_a_muted_service_is_never_part_of_an_incident(drawn_steps: list[Step], pairs: list[tuple[int, int]]) -> None:
    index = np.array(pairs, np.int64).reshape(-1, 2).T
    memory, plain = IncidentMemory(), IncidentMemory()
    for i, one in enumerate(drawn_steps):
        memory, hidden = step(memory, one, index, at(i))
        unmuted = (*one[:2], [False] * len(NAMES))
        plain, hidden_unmuted = step(plain, unmuted, index, at(i))
        assert memory.tracks == plain.tracks, "a muted service is still tracked"
        assert hidden <= {name for name, is_it in zip(NAMES, one[2], strict=True) if is_it}
        assert not hidden_unmuted


@settings(max_examples=60)
@given(steps, calls)
def test_without_mutes_groups_are_the_same(drawn_steps: list[Step], pairs: list[tuple[int, int]]) -> None:
    index = np.array(pairs, np.int64).reshape(-1, 2).T
    for scores, affected, _ in drawn_steps:
        confirmed = np.array(scores) > LEVEL
        found = groups(confirmed | np.array(affected), confirmed, index)
        kept, hidden = split_muted(found, confirmed, np.zeros(len(NAMES), bool))
        assert [(g.rows.tolist(), g.is_confirmed) for g in kept] == [(g.rows.tolist(), g.is_confirmed) for g in found]
        assert len(hidden) == 0


def test_a_muted_service_connects_a_group_but_cannot_confirm_it() -> None:
    confirmed = np.array([True, True, False])
    one = Group(np.array([0, 1, 2]), True)
    kept, hidden = split_muted([one], confirmed, np.array([False, True, False]))
    assert [(g.rows.tolist(), g.is_confirmed) for g in kept] == [([0, 2], True)]
    assert hidden.tolist() == [1]
    kept, hidden = split_muted([one], confirmed, np.array([True, True, False]))
    assert [(g.rows.tolist(), g.is_confirmed) for g in kept] == [([2], False)]
    assert hidden.tolist() == [0, 1]


def test_an_incident_ends_when_none_of_its_services_is_above_the_level() -> None:
    several = (("shop/cart", "shop/store"), ("shop/cart", "pay/bank"), ("shop/store", "edge/front"), ("pay/card",))
    tracks = {
        "pay/bank": Track((1.0, 1.0, LEVEL), at(0), at(0)),
        "shop/store": Track((9.0, 9.0, 9.0), at(0), at(0)),
        "edge/front": Track((LEVEL - 1,), at(0)),  # unusual only
    }
    memory = IncidentMemory(open=tuple(open_incident(*members, id=members[0]) for members in several), tracks=tracks)
    left = replace(memory, active_mutes=muted("shop/*")).without_muted().open
    assert [incident.members for incident in left] == [("pay/bank",), ("pay/card",)]
    assert [incident.id for incident in left] == ["shop/cart", "pay/card"]
    assert replace(memory, active_mutes=muted()).without_muted().open == ()
    assert memory.without_muted() is memory


DOORS = ("shop/web", "shop/api", "bank/web")
NO_ONE, ALL = ActiveMutes(), muted()
Scene = tuple[int, Evidence, ActiveMutes]  # snapshots that show the same, and the mutes in them


def traffic(share: float, severe: bool = True) -> Evidence:
    """Return evidence of a mesh that gets this share of its usual requests."""
    change = TrafficChange(MESH, 300 * share, 300.0, DOORS, share > 1, severe)
    return replace(evidence(1.0, 1.0), traffic=(change,) if share != 1 else ())


def shortage(*services: float) -> Evidence:
    return replace(evidence(1.0, 1.0, calls=((0, 1),)), notice=np.array(services, np.float32))


LOSS, BACK, SHORT = traffic(0.1), traffic(1.0), shortage(EVENT_SURPRISE, EVENT_SURPRISE)


def play(*scenes: Scene, memory: IncidentMemory | None = None) -> list[Verdict]:
    """Return the last verdict of each scene, with the memory stored after each snapshot."""
    memory, index, last = memory or IncidentMemory(), 0, []
    for snapshots, scene, mutes in scenes:
        for _ in range(snapshots):
            memory = replace(memory, active_mutes=mutes)
            verdict, memory = build_verdict(meta(), scene, memory, POLICY, when(index))
            memory = unpack_state(pack_state(MeshState(memory=memory))).memory
            index += 1
        last.append(verdict)
    return last


def summary(verdict: Verdict) -> tuple[tuple[str, datetime, tuple[str, ...]], ...]:
    return tuple((one.id, one.since, one.affected) for one in verdict.incidents)


def test_a_window_hides_a_loss_of_traffic_that_outlasts_it() -> None:
    before, during, after = play((6, LOSS, NO_ONE), (6, LOSS, ALL), (1, LOSS, NO_ONE))
    (incident,) = before.incidents
    assert incident.severity is Severity.CRITICAL
    assert (during.incidents, during.status) == ((), Status.NORMAL)
    assert during.muted[0].hides == tuple(sorted(DOORS)), "it is muted and not over"
    assert summary(after) == summary(before), "at once, with its beginning"


@pytest.mark.parametrize("returning", [BACK, traffic(0.7, severe=False), traffic(1.5)], ids=["usual", "part", "more"])
def test_a_loss_of_traffic_that_ends_in_a_window_is_over(returning: Evidence) -> None:
    before, *later = play((6, LOSS, NO_ONE), (1, LOSS, ALL), (8, returning, ALL), (8, BACK, NO_ONE))
    assert before.incidents
    assert [(verdict.incidents, verdict.status) for verdict in later] == [((), Status.NORMAL)] * 3
    assert later[0].muted[0].hides
    assert not later[1].muted[0].hides


def test_a_loss_of_traffic_that_begins_in_a_window_is_listed_after_it() -> None:
    during, after = play((9, LOSS, ALL), (1, LOSS, NO_ONE))
    assert (during.incidents, during.status) == ((), Status.NORMAL)
    (incident,) = after.incidents
    assert (incident.since, incident.affected) == (at(0), tuple(sorted(DOORS)))


def test_a_muted_entry_point_is_no_part_of_a_loss_of_traffic_until_its_mute_ends() -> None:
    one, two, both, over = play(
        (6, LOSS, NO_ONE), (3, LOSS, muted(DOORS[0])), (1, LOSS, NO_ONE), (6, BACK, muted(DOORS[0]))
    )
    assert summary(one) == summary(both)
    ((name, since, members),) = summary(two)
    assert (name, since, members) == (one.incidents[0].id, at(0), tuple(sorted(DOORS[1:])))
    assert two.muted[0].hides == (DOORS[0],)
    assert over.incidents == ()


def test_an_incident_of_traffic_that_was_stored_without_services_ends() -> None:
    """As earlier versions stored one after a mute."""
    stored = open_incident(
        severity=Severity.CRITICAL, scope=MESH, suspects=(Suspect(DOORS[0], 1.0, (reason("request_rate", 1, 9),)),)
    )
    assert play((8, BACK, NO_ONE), memory=IncidentMemory(open=(stored,)))[0].incidents == ()


def test_a_notice_goes_on_without_a_muted_service_and_gets_it_back() -> None:
    before, during, after = play((4, SHORT, NO_ONE), (3, SHORT, muted("a/s0")), (1, SHORT, NO_ONE))
    assert [one.affected for one in (*before.notices, *during.notices, *after.notices)] == [
        ("a/s0", "a/s1"), ("a/s1",), ("a/s0", "a/s1"),
    ]  # fmt: skip
    assert len({one.notices[0].id for one in (before, during, after)}) == 1


def test_a_notice_outlasts_a_window_and_keeps_its_beginning() -> None:
    before, during, after = play((4, SHORT, NO_ONE), (6, SHORT, ALL), (1, SHORT, NO_ONE))
    assert (during.incidents, during.muted[0].hides) == ((), ("a/s0", "a/s1"))
    assert summary(after) == summary(before)


def test_a_notice_that_ends_in_a_window_does_not_come_back() -> None:
    usual = shortage(0.0, 0.0)
    *_, during, after = play((4, SHORT, NO_ONE), (2, SHORT, ALL), (6, usual, ALL), (6, usual, NO_ONE))
    assert during.incidents == after.incidents == ()
    assert during.muted[0].hides == ()


def test_a_mute_leaves_the_counts_of_the_other_services_alone() -> None:
    incident = open_incident(*"abc")
    for _ in range(RETURNED - 1):
        incident = advance_members(incident, "bc")
    tracks = {name: Track((9.0,), at(0), at(0)) for name in "bc"}
    memory = IncidentMemory(open=(incident,), tracks=tracks, active_mutes=muted("a"))
    (left,) = memory.without_muted().open
    for _ in range(RETURNED - 1):
        left = advance_members(left, "c")
        assert left.members == ("b", "c")
    assert advance_members(left, "c").members == ("c",)


def names_of(found: Sequence[MuteInForce]) -> list[tuple[str, ...]]:
    return [one.hides for one in found]


def test_mutes_list_the_services_that_they_hide_and_expire() -> None:
    active = ActiveMutes((*muted("shop/*").mutes, *muted().mutes))
    found = active.with_hidden(["shop/store", "pay/bank", "shop/cart"])
    assert names_of(found) == [("shop/cart", "shop/store"), ("pay/bank", "shop/cart", "shop/store")]
    assert active.with_hidden([]) == active.mutes
    memory = IncidentMemory(mutes=(mute(end=5), mute(end=6)), active_mutes=active)
    after = memory.drop_expired(at(5))
    assert (after.mutes, after.active_mutes) == ((mute(end=6),), ActiveMutes())
