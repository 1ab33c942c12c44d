"""The rollout: which mesh uses which model, and how that changes."""

import threading
from contextlib import closing
from functools import partial

import pytest

from serve_app.api.schemas.models import ModelPin, RolloutAction, RolloutDocument
from serve_app.errors import CorruptState, StoreConflict, UnfitModel
from serve_app.models import rollout as changes
from serve_app.models.rollout import ALL_MESHES, MAX_EVENTS, change_rollout, pins_of, read_rollout
from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.records import ROLLOUT
from serve_app.stores.state_store import StateStore

ONE, TWO, THREE = (ModelPin(version=digit * 16, sha256=digit * 64) for digit in "123")
MESHES = [f"mesh-{i}" for i in range(1000)]
EMPTY = RolloutDocument()


def using(rollout: RolloutDocument, pin: ModelPin | None) -> set[str]:
    """The meshes whose verdicts this model makes."""
    return {mesh for mesh in MESHES if pins_of(rollout, mesh)[0] == pin}


def test_without_a_rollout_meshes_use_the_weights_of_the_settings() -> None:
    assert pins_of(EMPTY, "shop") == (None, None)


def test_in_a_shadow_no_mesh_uses_the_candidate_and_each_is_scored_by_it() -> None:
    shadow = changes.start_canary(EMPTY, ONE, 0.0, "ann")
    assert {pins_of(shadow, mesh) for mesh in [*MESHES, ALL_MESHES]} == {(None, ONE)}
    (event,) = shadow.history
    assert (event.action, event.model, event.share, event.by) == (RolloutAction.CANARY, ONE, 0.0, "ann")


def test_a_canary_uses_a_share_of_the_meshes_that_only_grows() -> None:
    tenth = changes.start_canary(EMPTY, ONE, 0.1)
    half = changes.start_canary(tenth, ONE, 0.5)
    assert 50 < len(using(tenth, ONE)) < 150
    assert 420 < len(using(half, ONE)) < 580
    assert using(tenth, ONE) < using(half, ONE)
    assert using(tenth, ONE) | using(tenth, None) == set(MESHES)
    assert all(pins_of(tenth, mesh) == (ONE, None) for mesh in using(tenth, ONE))
    assert using(changes.start_canary(EMPTY, TWO, 0.1), TWO) != using(tenth, ONE), "others try another candidate"
    assert pins_of(half, ALL_MESHES) == (None, ONE)


def test_a_promoted_model_ends_its_trial() -> None:
    promoted = changes.promote(changes.start_canary(EMPTY, ONE, 0.1), ONE, "ann")
    assert {pins_of(promoted, mesh) for mesh in [*MESHES, ALL_MESHES]} == {(ONE, ONE)}
    assert changes.promote(promoted, ONE) is promoted
    assert [event.action.value for event in promoted.history] == ["canary", "promote"]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_trial_is_rolled_back_to_its_baseline(share: float) -> None:
    trial = changes.start_canary(changes.promote(EMPTY, ONE), TWO, share)
    assert pins_of(trial, ALL_MESHES) == ((TWO, ONE) if share == 1 else (ONE, TWO))
    back = changes.roll_back(trial, "", "too many alerts")
    assert {pins_of(back, mesh) for mesh in MESHES} == {(ONE, ONE)}
    assert (back.trial, back.history[-1].reason, back.history[-1].model) == (None, "too many alerts", ONE)


def test_without_a_trial_a_rollback_leads_to_the_model_before() -> None:
    second = changes.promote(changes.promote(EMPTY, ONE), TWO)
    back = changes.roll_back(second)
    assert pins_of(back, "shop") == (ONE, ONE)
    assert changes.roll_back(back) == back, "a repeated request goes no further"
    with pytest.raises(UnfitModel, match="got neither"):
        changes.roll_back(EMPTY)


def test_one_candidate_is_tried_at_a_time() -> None:
    trial = changes.start_canary(EMPTY, ONE, 0.1)
    with pytest.raises(UnfitModel, match=f"expected no other trial, got one of {ONE.version}"):
        changes.start_canary(trial, TWO, 0.1)
    with pytest.raises(UnfitModel, match="roll it back first"):
        changes.promote(trial, TWO)
    with pytest.raises(UnfitModel, match="than the one in use"):
        changes.start_canary(changes.promote(EMPTY, ONE), ONE, 0.1)


def test_a_single_mesh_has_a_model_of_its_own_and_gives_it_up() -> None:
    own = changes.promote(changes.start_canary(EMPTY, ONE, 0.5), THREE, "ann", mesh="shop")
    assert pins_of(own, "shop") == (THREE, THREE)
    assert changes.promote(own, THREE, mesh="shop") is own
    back = changes.roll_back(own, mesh="shop")
    assert pins_of(back, "shop") == pins_of(changes.start_canary(EMPTY, ONE, 0.5), "shop")
    assert [event.mesh for event in back.history] == ["", "shop", "shop"]
    with pytest.raises(UnfitModel, match="got 'shop'"):
        changes.roll_back(back, mesh="shop")


def test_the_history_is_bounded() -> None:
    rollout = EMPTY
    for i in range(MAX_EVENTS):
        rollout = changes.roll_back(changes.start_canary(rollout, ONE, i / MAX_EVENTS))
    assert len(rollout.history) == MAX_EVENTS


def test_the_store_keeps_it(store: StateStore, place: StoreSettings) -> None:
    assert read_rollout(store) == (0, EMPTY)
    assert change_rollout(store, lambda rollout: rollout) == EMPTY
    assert read_rollout(store)[0] == 0, "what changes nothing writes nothing"
    changed = change_rollout(store, lambda rollout: changes.start_canary(rollout, ONE, 0.1))
    with closing(open_store(place)) as other:
        revision, rollout = read_rollout(other)
    assert rollout == changed
    assert revision > 0


def test_a_person_who_follows_a_rule_goes_back_once() -> None:
    first = changes.promote(EMPTY, ONE)
    trial = changes.start_canary(first, TWO, 0.1)
    by_rule = changes.roll_back(trial, reason="too many alerts")
    assert changes.roll_back(by_rule, "ada") == by_rule
    assert by_rule.active == ONE


def test_changes_of_many_processes_are_all_kept(store: StateStore, place: StoreSettings) -> None:
    def work(first: int) -> None:
        with closing(open_store(place)) as own:
            for i in range(first, first + 10):
                name = f"mesh-{i}"
                while True:
                    try:
                        change_rollout(own, partial(changes.promote, pin=ONE, mesh=name))
                        break
                    except StoreConflict:  # so many at once that a person would try again
                        continue

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_rollout(store)[1].meshes == {f"mesh-{i}": ONE for i in range(30)}


def test_a_document_of_another_version_is_refused_and_new_fields_are_ignored(store: StateStore) -> None:
    revision = store.write_document(ROLLOUT, b'{"active": null, "colour": "blue"}', revision=0)
    assert read_rollout(store)[1] == EMPTY
    store.write_document(ROLLOUT, b'{"active": "blue"}', revision=revision)
    with pytest.raises(CorruptState, match="expected a document of this version"):
        read_rollout(store)


def test_a_caller_sees_the_models_and_changes_of_the_meshes_that_it_may_see() -> None:
    rollout = changes.promote(changes.promote(EMPTY, ONE, mesh="shop"), TWO, mesh="pay")
    rollout = changes.roll_back(changes.start_canary(rollout, THREE, 0.1), mesh="pay")
    rollout = changes.promote(rollout, TWO, mesh="bank")
    seen = changes.limit_to(rollout, lambda mesh: mesh == "shop")
    assert seen.meshes == {"shop": ONE}
    assert [event.mesh for event in seen.history] == ["shop", ""]
    assert seen.trial == rollout.trial
    assert changes.limit_to(rollout, lambda mesh: True) == rollout
