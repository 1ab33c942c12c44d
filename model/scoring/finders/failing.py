"""Services that fail for many users while a planned change is near."""

import numpy as np

from model.features import ERROR, NODE_CHANNELS, RATE
from model.scoring.finders.finder import Finding
from model.scoring.kinds import EvidenceKind
from model.scoring.scored_mesh import ScoredMesh
from model.state.change_impact import OWN

FAILING_SURPRISE = 6.5  # of a service that fails a third of its requests, even after a deploy
LEAST_REQUESTS = 50  # requests in a snapshot that count in full


def find_failing(mesh: ScoredMesh) -> tuple[Finding, ...]:
    """Find services that fail for many users while a planned change is near.

    Deploys cause errors for a moment in most meshes, so the tails near changes are heavy. They do not excuse a service
    that fails a third of its requests: ``FAILING_SURPRISE`` if that is true of enough requests in the snapshot. Few
    requests count less each time; together they count as :func:`with_rare_failures`, near changes too.
    """
    state, observation = mesh.state, mesh.observation
    node = observation.node
    exposed = (observation.node_exposure == OWN) & node.observed[:, ERROR] & node.observed[:, RATE]
    if not exposed.any():
        return ()
    surprise = np.zeros(len(exposed), np.float32)
    now, usual = (np.float32(1) / (1 + np.exp(-v[exposed, ERROR])) for v in (node.value, node.expected))
    rate = np.exp(node.value[exposed, RATE]) - np.float32(NODE_CHANNELS[RATE].offset)
    enough = np.clip(rate * state.interval_seconds / LEAST_REQUESTS, 0, 1)
    surprise[exposed] = FAILING_SURPRISE * enough * np.clip((now - usual - 0.15) / 0.15, 0, 1)
    return (Finding(EvidenceKind.ERROR, surprise),)
