"""A recording of a mesh with a deploy, and then a service that is slow for a while."""

from lab.simulator.events.faults import Fault
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator

SPEC = MeshSpec(services=40, seed=3)
MESH = "shop"
FAULT_FROM, FAULT_TO, LENGTH = 40, 56, 70
SLOWER = 10.0  # times its usual latency on top, about 80 ms: users notice it
SLOW = "health-01/stock-2"  # not all of its callers suffer if it is slow
DEPLOYED = next(name for name in Simulator(SPEC).node_ids if name != SLOW)
FAULT = Fault("latency_injection", SLOW, FAULT_FROM, FAULT_TO, SLOWER)
SNAPSHOTS = list(Simulator(SPEC, [FAULT], [BenignChange("deploy", DEPLOYED, 25)], snapshots=LENGTH).snapshots())
