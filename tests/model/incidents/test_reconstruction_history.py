"""The mesh as a whole against its own history."""

from dataclasses import replace

import numpy as np
import pytest

from model.incidents.policy import AlertPolicy, VerdictContext
from model.incidents.reconstruction_history import (
    DISPLACEMENT_MARGIN,
    KEPT,
    LONGEST_SECONDS,
    MIN,
    ReconstructionHistory,
    follow_reconstruction,
)
from model.verdict import Reconstruction
from tests.model.model_cases import at

POLICY = AlertPolicy(confirm=3, confirm_of=4)  # so 6 of 8
USUAL, HIGH = 0.07, 0.2


def losses(history: ReconstructionHistory) -> list[float]:
    found: list[float] = history.past[1].tolist()
    return found


def follow(
    losses: list[float],
    history: ReconstructionHistory | None = None,
    first: int = 0,
    *,
    moved: float = 0.0,
    alerted: bool = False,
) -> tuple[list[Reconstruction], ReconstructionHistory]:
    """Follow snapshots whose embeddings vary a little, and are ``moved``."""
    history, found = history or ReconstructionHistory("weights"), []
    for index, loss in enumerate(losses, first):
        embedding = np.random.default_rng(index).normal(moved, 0.01, 64).astype(np.float32)
        when = VerdictContext(at(index), index, 100 + index, 15.0, 5.0, 5.0)
        one, history = follow_reconstruction(history, loss, embedding, POLICY, when, alerted=alerted)
        found.append(one)
    return found, history


def calm(count: int) -> list[float]:
    return np.random.default_rng(1).normal(USUAL, 0.001, count).tolist()


def test_thresholds_are_percentiles_after_ten_snapshots() -> None:
    _, history = follow(calm(159))
    found, settled = follow(calm(160))[0], history.snapshots - history.pending
    assert [one.loss_threshold for one in found[:MIN]] == [None] * MIN
    assert found[MIN].loss_threshold == pytest.approx(np.mean(calm(160)[:MIN]) + 3 * np.std(calm(160)[:MIN])), (
        "too few for a percentile"
    )
    assert found[MIN - 1].displacement is None
    assert found[-1].loss_threshold == pytest.approx(np.percentile(history.past[1, :settled], 99))
    assert found[-1].displacement == pytest.approx(1, abs=0.3)
    assert found[-1].displacement_threshold == pytest.approx(
        DISPLACEMENT_MARGIN * np.percentile(history.past[2, MIN:settled], 99)
    )


def test_the_warm_up_of_a_mesh_is_no_history() -> None:
    when = VerdictContext(at(0), 1, POLICY.warm_up, 15.0, 5.0, 5.0)
    _, history = follow_reconstruction(
        ReconstructionHistory(), HIGH, np.zeros(8, np.float32), POLICY, when, alerted=False
    )
    assert history.snapshots == 0


def test_six_of_eight_high_losses_exceed_and_are_not_learned() -> None:
    _, before = follow(calm(40))
    found, after = follow([HIGH] * 7 + [USUAL], before, 40)
    assert [one.exceeded for one in found] == [False] * 5 + [True] * 3
    assert [one.since for one in found] == [None] * 5 + [at(40)] * 3
    assert losses(after) == [*losses(before), USUAL]
    assert follow([USUAL] * 4, after, 48)[0][-1].exceeded is False


def test_a_single_high_loss_does_not_exceed_and_is_learned() -> None:
    _, before = follow(calm(40))
    found, after = follow([HIGH, USUAL, USUAL, USUAL, HIGH], before, 40)
    assert not any(one.exceeded for one in found)
    assert (losses(after).count(HIGH), after.pending) == (2, 1)


def test_embeddings_that_move_together_exceed_although_the_loss_is_usual() -> None:
    _, before = follow(calm(60))
    found, _ = follow(calm(8), before, 60, moved=0.1)
    assert found[-1].exceeded
    assert found[0].displacement is not None
    assert found[0].displacement > 5


def test_nothing_is_learned_of_an_alert() -> None:
    _, before = follow(calm(40))
    _, after = follow([HIGH] * 8, before, 40, alerted=True)
    assert losses(after) == losses(before)
    np.testing.assert_array_equal(after.moments, before.moments)


def test_a_level_that_lasts_becomes_the_own_one() -> None:
    _, before = follow(calm(40))
    count = int(LONGEST_SECONDS / 15)
    found, after = follow([HIGH] * (count + 2 * MIN), before, 40)
    assert all(one.exceeded for one in found[5:count])
    assert not any(one.exceeded for one in found[count + 5 :])
    assert set(losses(after)) == {HIGH}


def test_the_history_is_bounded() -> None:
    _, history = follow(calm(KEPT + 60))
    assert history.past.shape == (3, KEPT)
    assert history.past[0, -1] == at(KEPT + 59).timestamp()


def test_a_displacement_before_ten_snapshots_is_unknown() -> None:
    history = replace(
        ReconstructionHistory(), past=np.array([[1.0], [0.1], [1.0]]), moments=np.ones((2, 1), np.float32)
    )
    assert history.displacement(np.ones(1, np.float32)) is None
    assert history.thresholds(99) == (None, None)
