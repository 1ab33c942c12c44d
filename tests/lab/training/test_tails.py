"""Tails that are fitted to normal traffic."""

from dataclasses import replace

import numpy as np
import pytest

from lab.training.tails import TailCounts, fit_tail
from model.features import Array
from model.scoring.calibration import SeriesTail
from model.state.change_impact import OWN, SEEN, UNEXPOSED, no_impact
from model.state.filters import SCALES, TAIL_START, Deviation
from tests.model.filter_cases import Series
from tests.model.scoring.test_calibration import past


def count_meshes(*excesses: Array, seen: int, exposure: int = UNEXPOSED, scale: int = 0) -> list[TailCounts]:
    """Count meshes in which one channel exceeds the start of the tail by these excesses at one time scale."""
    meshes = []
    for excess in excesses:
        rows = len(excess)
        level = np.zeros((SCALES, rows, 1), np.float32)
        level[scale, :, 0] = TAIL_START + excess
        mesh = TailCounts(1)
        mesh.add(replace(past(rows=rows), level=level), np.full(rows, exposure), np.ones(rows, bool))
        mesh.tally[SEEN] = seen
        meshes.append(mesh)
    return meshes


def pareto(shape: float, scale: float, count: int = 40_000) -> Array:
    u = np.random.default_rng(0).random(count)
    return (scale / shape * (u**-shape - 1)).astype(np.float32)


@pytest.mark.parametrize("shape", [0.1, 0.2, 0.35])
def test_the_shape_of_a_generalised_pareto_is_recovered(shape: float) -> None:
    tail = fit_tail(count_meshes(pareto(shape, 0.7), seen=2_000_000))
    assert tail.shape[UNEXPOSED, 0, 0] == pytest.approx(shape, abs=0.03)
    assert tail.mean_excess[UNEXPOSED, 0, 0] == pytest.approx(0.7 / (1 - shape), rel=0.05)
    assert tail.rate[UNEXPOSED, 0, 0] == pytest.approx(0.02, rel=0.01)


def test_the_typical_mesh_counts_and_a_wild_one_makes_no_tail_heavy() -> None:
    calm = [pareto(0.1, 0.5, 2000)] * 4
    tail = fit_tail(count_meshes(*calm, pareto(0.1, 6.0, 9000), seen=100_000))
    assert tail.mean_excess[UNEXPOSED, 0, 0] == pytest.approx(calm[0].mean(), rel=1e-3)
    assert tail.shape[UNEXPOSED, 0, 0] == pytest.approx(0.1, abs=0.05)


def test_tails_thinner_than_exponential_are_treated_as_exponential() -> None:
    uniform = np.random.default_rng(0).random(10_000).astype(np.float32)
    tail = fit_tail(count_meshes(uniform, seen=100_000, exposure=OWN, scale=1))
    assert tail.shape[OWN, 1, 0] == 0


def test_too_few_excesses_keep_a_cautious_shape() -> None:
    tail = fit_tail(count_meshes(np.ones(9, np.float32), np.ones(40, np.float32), seen=0))
    np.testing.assert_allclose(tail.shape, 0.2)
    assert (tail.rate > 0).all()
    assert np.isfinite(tail.mean_excess).all()


def test_normal_noise_exceeds_levels_at_the_stated_rate() -> None:
    """Heavy-tailed noise (Student's t, 3 degrees) is calibrated on other snapshots of the same noise.

    Then levels with a probability of 10^-s occur about as often as that. The calibrated rate counts spells. Some spells
    last several snapshots, so a level may occur up to three times as often.
    """
    rows, rng = 400, np.random.default_rng(7)
    noisy, counts = Series(rows), TailCounts(1)

    def see() -> Deviation:
        return noisy.see(*(0.07 * rng.standard_t(3, rows)))

    for t in range(700):
        deviation = see()
        if t >= 300:
            counts.add(deviation, np.full(rows, UNEXPOSED), np.ones(rows, bool))
    tail = fit_tail([counts])
    surprises = []
    for _ in range(600):
        deviation = see()
        series = SeriesTail(tail, deviation, np.full(rows, UNEXPOSED), no_impact(1))
        surprises.append(series.surprise(np.maximum(deviation.level, 0)))
    values = np.stack(surprises)
    for decades in (1.5, 2.0, 2.5, 3.0):
        share = float((values > decades).mean())
        assert 10**-decades / 2 < share < 10**-decades * 3, (decades, share)
