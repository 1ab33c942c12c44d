from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import IncompatibleWeights
from model.features import (
    CPU_PER_REQUEST,
    EDGE_CHANNELS,
    ERROR,
    NODE_CHANNELS,
    OWN_TIME,
    P50,
    P99,
    RATE,
    SCHEMA,
    WEIGHT,
    Channel,
    ChannelValues,
    FeatureSchema,
    channel_values,
)
from model.snapshot import MeshSnapshot
from tests.model.model_cases import EDGE, NODE, snapshot

CHANNELS = {f"{kind}.{c.name}": c for kind, cs in (("node", NODE_CHANNELS), ("edge", EDGE_CHANNELS)) for c in cs}


def channels_of(one: MeshSnapshot, interval: float = 15.0) -> ChannelValues:
    return channel_values(
        one.node_features, one.node_observed, one.edge_features, one.edge_observed, one.edge_index, interval
    )


def value(values: ChannelValues, row: int, channel: int) -> float:
    return NODE_CHANNELS[channel].inverse(float(values.node[row, channel]))


@given(st.sampled_from(sorted(CHANNELS)), st.floats(0, 1, width=32))
def test_transforms_and_inverses_are_a_round_trip(name: str, share: float) -> None:
    channel = CHANNELS[name]
    x = share if channel.unit == "ratio" else share * 1e4
    back = channel.inverse(float(channel.forward(np.array([x], np.float32))[0]))
    # float32 has seven digits for x + offset, and a logit divides the error by p (1 - p).
    assert back == pytest.approx(x, rel=2e-5, abs=1e-5 * max(channel.offset, 0.01))


@given(st.sampled_from(sorted(CHANNELS)), st.floats(-80, 80))
def test_inverses_stay_in_range_for_any_expectation(name: str, y: float) -> None:
    channel = CHANNELS[name]
    x = channel.inverse(y)
    assert np.isfinite(x)
    assert x >= 0
    if channel.transform == "logit":
        assert x <= 1


@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_transforms_are_increasing(channel: Channel) -> None:
    grid = np.linspace(0, 1, 50, dtype=np.float32)
    assert (np.diff(channel.forward(grid)) > 0).all()


def test_own_time_is_latency_minus_the_time_of_callees() -> None:
    # The gateway answers 100 requests a second in 20 ms and makes 50 calls a second of 10 ms to each of two services:
    # it waits 10 ms a request.
    assert value(channels_of(snapshot()), 0, OWN_TIME) == pytest.approx(0.010, rel=1e-3)


def test_own_time_does_not_change_with_a_callees_latency() -> None:
    nodes, edges = {(0, P50): NODE[P50] + 0.030 * 50 / 100}, {(0, P50): EDGE[P50] + 0.030}
    slower = channels_of(snapshot(nodes=nodes, edges=edges))
    before = channels_of(snapshot())
    assert slower.node[0, OWN_TIME] == pytest.approx(before.node[0, OWN_TIME], abs=1e-4)
    assert slower.node[0, P50] > before.node[0, P50] + 0.4


def test_own_time_is_never_below_a_twentieth_of_the_latency() -> None:
    edges = {(..., P50): 5.0}
    assert value(channels_of(snapshot(edges=edges)), 0, OWN_TIME) == pytest.approx(0.001, rel=1e-2)


def test_own_time_is_unknown_if_calls_have_no_latency() -> None:
    observed = channels_of(snapshot(edges={(0, P50): np.nan})).node_observed[:, OWN_TIME]
    np.testing.assert_array_equal(observed, [False, True, True, True, True])


@pytest.mark.parametrize("factor", [0.1, 3.0, 40.0])
def test_weight_and_cpu_per_request_do_not_change_with_the_load(factor: float) -> None:
    nodes, edges = np.tile(NODE, (5, 1)), np.tile(EDGE, (4, 1))
    edges[1, RATE] = 20.0
    before = channels_of(snapshot(nodes=nodes, edges=edges))
    nodes[:, RATE] *= factor
    nodes[:, 4] = np.minimum(nodes[:, 4] * factor, 1)
    edges[:, RATE] *= factor
    after = channels_of(snapshot(nodes=nodes, edges=edges))
    np.testing.assert_allclose(after.edge[:, WEIGHT], before.edge[:, WEIGHT], atol=1e-5)
    assert np.exp(before.edge[:2, WEIGHT]) == pytest.approx([5 / 7 + 0.01, 2 / 7 + 0.01], rel=1e-5)
    if factor < 1 / NODE[4]:
        np.testing.assert_allclose(after.node[:, CPU_PER_REQUEST], before.node[:, CPU_PER_REQUEST], atol=1e-4)


@pytest.mark.parametrize("channel", [RATE, ERROR, P50, P99, OWN_TIME, CPU_PER_REQUEST])
def test_noise_of_services_shrinks_with_traffic(channel: int) -> None:
    rates = (1.0, 10.0, 100.0, 1000.0)
    noise = [channels_of(snapshot(nodes={(..., RATE): x})).node_noise[0, channel] for x in rates]
    assert (np.diff(noise) < 0).all()
    assert noise[0] > 10 * noise[-1]


@pytest.mark.parametrize("channel", range(len(EDGE_CHANNELS)))
def test_noise_of_calls_shrinks_with_traffic(channel: int) -> None:
    few, many = (channels_of(snapshot(edges={(..., RATE): x})).edge_noise for x in (1.0, 100.0))
    assert (many[0, channel] < few[0, channel]).all()


def test_noise_shrinks_with_the_interval() -> None:
    long, short = channels_of(snapshot(), 300.0), channels_of(snapshot(), 5.0)
    assert (long.node_noise[:, [RATE, ERROR, P50, P99]] < short.node_noise[:, [RATE, ERROR, P50, P99]]).all()


def test_noise_of_a_rate_follows_a_poisson_count() -> None:
    """Sampled counts of 100 requests a second over 15 s vary in the channel by its stated noise."""
    channel = NODE_CHANNELS[RATE]
    counts = np.random.default_rng(0).poisson(1500, 20_000) / 15.0
    spread = float(np.var(channel.forward(counts.astype(np.float32))))
    assert channels_of(snapshot()).node_noise[0, RATE] == pytest.approx(spread, rel=0.05)


def test_noise_of_an_error_rate_follows_a_binomial_count() -> None:
    channel = NODE_CHANNELS[ERROR]
    ratios = np.random.default_rng(0).binomial(1500, 0.01, 20_000) / 1500
    spread = float(np.var(channel.forward(ratios.astype(np.float32))))
    assert channels_of(snapshot()).node_noise[0, ERROR] == pytest.approx(spread, rel=0.15)


def test_a_channel_that_was_not_observed_is_zero_and_masked() -> None:
    values = channels_of(snapshot(nodes={(2, P99): np.nan}))
    assert not values.node_observed[2, P99]
    assert values.node[2, P99] == 0
    assert values.node_observed[1, P99]


def test_a_schema_comes_back_from_its_text() -> None:
    assert FeatureSchema.from_json(SCHEMA.to_json()) == SCHEMA


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SCHEMA, node=(*NODE_CHANNELS[:3], *NODE_CHANNELS[4:])), "node channel 3: .*p99_latency"),
        (replace(SCHEMA, node=NODE_CHANNELS[:-1]), "node channel 8: expected .*cpu_per_request.* got none"),
        (
            replace(SCHEMA, edge=(*EDGE_CHANNELS, NODE_CHANNELS[0])),
            "edge channel 5: expected none, got .*request_rate",
        ),
        (
            replace(SCHEMA, edge=(*EDGE_CHANNELS[:4], replace(EDGE_CHANNELS[4], offset=0.5))),
            "edge channel 4: .*weight.*offset=0.5",
        ),
        (replace(SCHEMA, version=9), "expected feature schema 3, got 9"),
    ],
)
def test_another_schema_is_refused_naming_the_channel(other: FeatureSchema, message: str) -> None:
    came = FeatureSchema.from_json(other.to_json())
    with pytest.raises(IncompatibleWeights, match=rf"^weights x: {message}"):
        SCHEMA.require(came, "weights x")
