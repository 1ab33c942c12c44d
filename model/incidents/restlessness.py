"""How much higher the page level has to be in a mesh that is more restless than the meshes of training.

The promised number of false alerts holds for meshes like those. In others, more of the normal scores are high. A
mesh's own history shows it: how often its page scores come near the level without an alert. Beyond that height the
number of episodes falls exponentially, as peaks over a threshold do (Pickands 1975), with the slope of training's
meshes.
"""

from collections.abc import Sequence

import numpy as np

from model.incidents.policy import AlertPolicy

SLOPE = 1.07  # decades in which the number of episodes falls by a factor of e, in simulated meshes without faults
EPISODES = 66.0  # per day: episodes are counted above the score that training's meshes exceed so often ...
DEEPEST = 2.5  # ... but at most this many decades below the page level ...
TAIL = 3.0  # ... and in the tail of the scores
WEIGHT = 12.0  # of training's meshes, in episodes
MOST = 1.0  # decade


def restlessness(
    scores: Sequence[float],
    times: Sequence[float],
    level: float,
    policy: AlertPolicy,
    services: int,
    interval_seconds: float,
) -> float:
    """Return by how many decades the page level rises, 0 to 1.

    A mesh that is calmer than training's keeps the level, because its history may be short or its load low. Snapshots
    near an alert do not count: what leads to it, or follows it, may be its fault.

    Args:
        scores, times: mesh scores without alerts, and when (Unix, s), oldest first.
        level: page level of the policy and the weights.
        policy: with the promised number of false alerts, and how many snapshots confirm an alert.
        services: of the mesh.
        interval_seconds: between snapshots, s.
    """
    policy = policy.at_interval(interval_seconds)
    needed, of = policy.confirm + policy.doubtful, policy.confirm_of + policy.doubtful
    budget = policy.budget(services)
    depth = max(0.0, min(SLOPE * float(np.log(EPISODES / budget)), DEEPEST, level - TAIL))
    above = np.array(scores) > level - depth
    lately = np.convolve(above, np.ones(of))[: len(above)] if len(above) else above
    counted = np.ones(len(above), bool)
    for alert in np.flatnonzero(np.diff(times) > 1.5 * interval_seconds).tolist():
        counted[max(0, alert + 1 - policy.clear) : alert + 1 + policy.clear] = False
    confirmed = np.flatnonzero(above & (lately >= needed) & counted)
    episodes = len(confirmed) and 1 + int((np.diff(confirmed) > policy.clear).sum())
    expected = budget * np.exp(depth / SLOPE) * int(counted.sum()) * interval_seconds / 86400
    return float(np.clip(SLOPE * np.log((episodes + WEIGHT) / (expected + WEIGHT)), 0, MOST))
