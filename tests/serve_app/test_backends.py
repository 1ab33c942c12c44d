"""Verdicts do not depend on the bodies that the network's ops have."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kernels.library import COMPILED
from lab.simulator.mesh.topology import MeshSpec
from tests.serve_app.test_pipeline import busiest

# A mesh with a fault, judged with the ops of TAGAE_KERNELS. One line of JSON per snapshot.
JUDGE = """
import json
import sys
import kernels
from model.checkpoint import load
from serve_app.pipeline import Mesh, Options, advance
from lab.simulator.events.faults import Fault
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator

checkpoint, spec, mesh = load(), MeshSpec(services=60, calls_per_service=4, seed=3), Mesh()
faults = [Fault("latency_injection", sys.argv[1], 34, 48, 40.0)]
for snapshot in Simulator(spec, faults, snapshots=52).snapshots():
    verdict, mesh = advance(checkpoint, mesh, snapshot, Options(max_services=40))
    print(json.dumps({
        "backend": kernels.backend(),
        "numbers": [verdict.mesh_score, verdict.threshold, verdict.probability, *(s.score for s in verdict.suspects)],
        "status": verdict.status.value,
        "incidents": [[i.severity.value, i.affected, i.kind.value, i.suspects[0].service] for i in verdict.incidents],
        "reasons": [[r.metric, r.source] for i in verdict.incidents for r in i.suspects[0].reasons],
    }))
"""


def judge(setting: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, busiest(MeshSpec(services=60, calls_per_service=4, seed=3))],
        env={**os.environ, "TAGAE_KERNELS": setting},
        capture_output=True,
        text=True,
        check=False,
    )
    if "UnavailableBackend" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_verdicts_are_those_of_the_reference(compiled: str) -> None:
    ours, theirs = judge(compiled), judge("reference")
    assert {line["backend"] for line in ours} == {compiled}
    assert {line["backend"] for line in theirs} == {"reference"}
    assert any(line["incidents"] for line in theirs), "the fault raises an incident"
    for one, other in zip(ours, theirs, strict=True):
        assert one["numbers"] == pytest.approx(other["numbers"], rel=1e-3, abs=1e-4)
        for what in ("status", "incidents", "reasons"):
            assert one[what] == other[what]
