"""The compiled passes against the numpy code of the model that defines them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import kernels
from kernels import passes
from model.features import EDGE_CHANNELS, ERROR, MANY, NODE_CHANNELS, Array, Channel, channel_values
from model.scoring.calibration import SeriesTail, Tail
from model.snapshot import BoolArray, IntArray
from model.state.change_impact import EXPOSURES
from model.state.few_requests import Counts, count_failures
from model.state.filters import SCALES, SLOTS, Deviation, new_filters, update_filters

T = TypeVar("T")
TABLES = [(0, NODE_CHANNELS), (1, EDGE_CHANNELS), (16, EDGE_CHANNELS), (77, NODE_CHANNELS), (300, EDGE_CHANNELS)]
MESHES = [(0, 0), (1, 0), (1, 1), (3, 5), (60, 180), (300, 1000)]
compiled = pytest.mark.skipif(not passes.are_compiled(), reason="the reference runs")


def both(monkeypatch: pytest.MonkeyPatch, compute: Callable[[], T]) -> tuple[T, T]:
    """Return the results of the compiled pass and of its definition."""
    ours = compute()
    with monkeypatch.context() as patch:
        patch.setattr(passes, "are_compiled", lambda: False)
        return ours, compute()


def fields(one: Any) -> dict[str, NDArray[Any]]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def assert_alike(ours: Any, theirs: Any, rtol: float = 0, atol: float = 0) -> None:
    """Compare all arrays of two objects."""
    for name, values in fields(theirs).items():
        assert np.asarray(fields(ours)[name]).dtype == np.asarray(values).dtype
        np.testing.assert_allclose(fields(ours)[name], values, rtol=rtol, atol=atol, err_msg=name)


def watch(rows: int, channels: tuple[Channel, ...], snapshots: int, seed: int) -> list[tuple[Deviation, Array]]:
    """Filter random series with spikes and missing values; what is not measured may have noise that is not a number."""
    rng = np.random.default_rng(seed)
    size = rows, len(channels)
    filters = new_filters(rows, np.zeros((SLOTS, 0, len(channels)), np.float32), channels)
    seen = []
    for _ in range(snapshots):
        measured = rng.random(size) < 0.9
        spikes = rng.normal(0, 3, size) * (rng.random(size) < 0.03)
        value = np.where(measured, 0.3 * rng.standard_normal(size) + spikes, 0).astype(np.float32)
        noise = np.where(measured | (rng.random(size) < 0.5), 0.01 * rng.random(size), np.nan).astype(np.float32)
        muted, paused = rng.random((2, rows)) < 0.1
        requests = rng.choice([1, 3, 10, 19, 1000], rows).astype(np.float32)
        deviation, filters = update_filters(filters, value, measured, noise, muted, paused, channels, requests)
        seen.append((deviation, filters))
    return seen


@compiled
@pytest.mark.parametrize(("rows", "channels"), TABLES)
def test_filters_are_the_same_to_the_last_bit(
    rows: int, channels: tuple[Channel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a machine with the library continues the state of one without it, and the other way round."""
    ours, theirs = both(monkeypatch, lambda: watch(rows, channels, 60, seed=rows))
    for (deviation, filters), (expected, expected_filters) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(filters, expected_filters)
        assert_alike(deviation, expected)


def random_mesh(nodes: int, edges: int) -> tuple[Array, BoolArray, Array, BoolArray, IntArray]:
    rng = np.random.default_rng(nodes)

    def table(rows: int, metrics: int) -> tuple[Array, BoolArray]:
        features = rng.lognormal(0, 2, (rows, metrics)).astype(np.float32)
        features[:, 1] = rng.random(rows)
        features[rng.random((rows, metrics)) < 0.01] = 0
        features[rng.random(rows) < 0.02, 0] = 1e30
        observed = rng.random((rows, metrics)) < 0.9
        return np.where(observed, features, np.float32(0)), observed

    return *table(nodes, 7), *table(edges, 4), rng.integers(0, max(nodes, 1), (2, edges))


@compiled
@pytest.mark.parametrize(("nodes", "edges"), MESHES)
def test_channels_are_the_same_up_to_the_logarithm(nodes: int, edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = random_mesh(nodes, edges)
    ours, theirs = both(monkeypatch, lambda: channel_values(*mesh, 15.0))
    assert_alike(ours, theirs, rtol=2e-6, atol=1e-6)


def random_tails(rows: int, channels: int) -> tuple[SeriesTail, Array]:
    """Return tails with exposed rows, levels on both sides of their start, and what the neighbours let expect."""
    rng = np.random.default_rng(rows)

    def normal(*shape: int) -> Array:
        return (3 * rng.standard_normal(shape)).astype(np.float32)

    size, scales = (rows, channels), (SCALES, rows, channels)
    seen = rng.integers(0, 2000, size).astype(np.float32)
    past = Deviation(
        now=normal(*size),
        past_short=normal(*size),
        past_long=normal(*size),
        level=normal(*scales),
        observed=rng.random(size) < 0.9,
        value=normal(*size),
        expected=normal(*size),
        spread=np.abs(normal(*size)),
        seen=seen,
        exceed_count=np.abs(normal(*scales)),
        exceed_sum=np.abs(normal(*scales)),
    )
    shipped = [most * rng.random((EXPOSURES, SCALES, channels), np.float32) for most in (0.1, 1.0, 0.4)]
    shipped[2][0, 0] = 0  # an exponential tail
    exposure = np.where(rng.random(rows) < 0.2, rng.integers(0, EXPOSURES, rows), 0)
    impact = 50 * rng.random((4, EXPOSURES, SCALES, channels), np.float32)
    return SeriesTail(Tail(*shipped), past, exposure, impact), normal(*size)


@compiled
@pytest.mark.parametrize(("rows", "channels"), [(rows, len(channels)) for rows, channels in TABLES])
def test_surprises_are_the_same_up_to_the_logarithm(rows: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    series, predicted = random_tails(rows, channels)
    for ours, theirs in zip(*both(monkeypatch, lambda: series.calibrate(predicted)), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=3e-6)


@compiled
def test_arrays_that_do_not_fit_are_named() -> None:
    filters, one = np.zeros((SLOTS, 2, 1), np.float32), np.zeros((2, 1), np.float32)
    mask, rows = np.ones((2, 1), bool), np.zeros(2, bool)
    channels = (NODE_CHANNELS[0],)
    with pytest.raises(kernels.InvalidArgument, match=r"noise: expected shape \[2, 1\], got \[1, 1\]"):
        update_filters(filters, one, mask, one[:1], rows, rows, channels)
    with pytest.raises(kernels.InvalidArgument, match="expected 1 to 64 channels, got 65"):
        update_filters(np.zeros((SLOTS, 2, 65), np.float32), one, mask, one, rows, rows, channels)


@compiled
@pytest.mark.parametrize("row", [-1, 3])
def test_calls_of_services_that_do_not_exist_are_refused(row: int) -> None:
    mesh = random_mesh(3, 5)
    mesh[-1][1, 2] = row
    with pytest.raises(kernels.InvalidArgument, match="channel_values: expected row indices"):
        channel_values(*mesh, 15.0)


@compiled
def test_inputs_need_not_be_contiguous_nor_writable() -> None:
    node, node_observed, edge, edge_observed, ends = mesh = random_mesh(60, 180)
    turned = np.asfortranarray(node), np.asfortranarray(node_observed), np.asfortranarray(edge), edge_observed, ends
    for table in turned:
        table.setflags(write=False)
    assert_alike(channel_values(*turned, 15.0), channel_values(*mesh, 15.0))


def count(rows: int, channels: tuple[Channel, ...], snapshots: int) -> list[tuple[Deviation, Counts, Array]]:
    """Count failures among few and among many requests; some rows begin to fail, and some have a long past of it."""
    rng = np.random.default_rng(rows)
    size = rows, len(channels)
    usual = rng.choice([0.001, 0.05, 0.5], rows)
    requests = rng.choice([0.2, 2, 8, 40, 150, 900, 5000], rows)
    counts, found = Counts.none(rows), []
    filters = new_filters(rows, np.zeros((SLOTS, 0, len(channels)), np.float32), channels)
    for index in range(snapshots):
        share = np.where((np.arange(rows) % 3 == 0) & (index > 0.8 * snapshots), 0.4, usual)
        made = rng.poisson(requests)
        value = rng.normal(0, 0.1, size).astype(np.float32)
        value[:, ERROR] = channels[ERROR].forward((rng.binomial(made, share) / np.maximum(made, 1)).astype(np.float32))
        measured = np.broadcast_to(made[:, None] > 0, size) & (rng.random(size) < 0.98)
        some = np.where(rng.random(rows) < 0.98, np.maximum(made, 1), MANY).astype(np.float32)
        muted, paused = rng.random((2, rows)) < 0.005
        of_snapshot = value, measured, np.zeros(size, np.float32), muted, paused, channels, some
        deviation, updated = update_filters(filters, *of_snapshot)
        deviation, counts, surprise = count_failures(counts, deviation, filters, measured, some, paused)
        filters = updated
        found.append((deviation, counts, surprise))
    return found


@compiled
@pytest.mark.parametrize(("rows", "channels"), TABLES)
def test_failures_are_counted_alike(rows: int, channels: tuple[Channel, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(monkeypatch, lambda: count(rows, channels, 150))
    for (deviation, counts, surprise), (expected, expected_counts, expected_surprise) in zip(ours, theirs, strict=True):
        assert_alike(deviation, expected, rtol=1e-5, atol=1e-5)
        assert_alike(counts, expected_counts)
        np.testing.assert_allclose(surprise, expected_surprise, rtol=1e-5)
    assert rows < 100 or np.any([surprise for _, _, surprise in ours])


@compiled
def test_counts_of_other_snapshots_are_shared_and_their_number_is_checked() -> None:
    (_, before, _), (_, after, _) = count(20, EDGE_CHANNELS, 2)
    assert all(new is old for new, old in zip(after.recent[1:], before.recent[:-1], strict=True))
    constants, usual, level = np.zeros(16, np.float32), np.zeros((3, 2), np.float32), np.zeros((3, 2, 5), np.float32)
    row, table, flags = np.zeros(2, np.float32), np.zeros((2, 5), np.float32), np.zeros((2, 5), bool)
    recent = Counts.none(2).recent[1:]
    with pytest.raises(kernels.InvalidArgument, match="recent: expected 16 arrays, got 15"):
        passes.count_failures(constants, recent, usual, table, table, flags, row, flags[:, 0], level, table, flags)


@compiled
def test_arrays_that_change_in_place_are_not_copied() -> None:
    arrays = [np.zeros(shape, np.float32) for shape in ((2, 5), (2, 5), (3, 2, 5))]
    past, value, level = arrays
    known, row = np.ones((2, 5), bool), np.zeros(2, np.float32)
    counts = Counts.none(2)
    with pytest.raises(kernels.InvalidArgument, match="level: expected a contiguous, writable array of float32"):
        passes.count_failures(
            *(np.zeros(16, np.float32), counts.recent, counts.usual, past, past, known, row, row > 0),
            *(np.asfortranarray(level), value, known),
        )
