"""Simulated meshes with an incident of each kind. Every snapshot is scored by the real service."""

from dataclasses import dataclass, replace

from lab.simulator.events.faults import CATALOGUE, Fault, FaultKind
from lab.simulator.events.operations import BenignChange
from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from model.snapshot import MeshSnapshot
from model.verdict import IncidentKind
from tests.page.meshes import without_telemetry

FAULT_FROM = 70  # snapshots before the fault
INTERVAL = 60.0  # s between snapshots: a verdict counts as the state of now for three of them


@dataclass(frozen=True, slots=True)
class Scene:
    """A fault in a simulated mesh, and what the detector makes of it.

    Attributes:
        seed: of the mesh.
        fault: injected at ``service`` with its greatest severity.
        lasts: snapshots from the first one of the fault to the one in view.
        expected: kind of the incident then.
        ends_after: snapshots of the fault.
        is_deployed: whether ``service`` is deployed just before the fault.
        silent_after: snapshots until the telemetry of the namespace of ``service`` stops; None: it does not stop.
    """

    seed: int
    fault: FaultKind
    service: str
    lasts: int
    expected: IncidentKind
    ends_after: int = 24
    is_deployed: bool = False
    silent_after: int | None = None

    def snapshots(self) -> list[MeshSnapshot]:
        """Return the snapshots up to the one in view."""
        spec = MeshSpec(services=60, seed=self.seed, interval_seconds=INTERVAL)
        simulator = Simulator(spec, snapshots=FAULT_FROM + self.lasts)
        size, end = CATALOGUE[self.fault].sizes[-1], FAULT_FROM + self.ends_after
        simulator.schedule(Fault(self.fault, self.service, FAULT_FROM, end, size))
        if self.is_deployed:
            simulator.schedule(BenignChange("deploy", self.service, FAULT_FROM - 1, reason="v1.4.2"))
        snapshots = list(simulator.snapshots())
        if self.silent_after is None:
            return snapshots
        begin, namespace = FAULT_FROM + self.silent_after, self.service.split("/")[0]
        silent = [name for name in snapshots[0].node_ids if name.startswith(f"{namespace}/")]
        return [*snapshots[:begin], *(without_telemetry(one, silent) for one in snapshots[begin:])]


FAILING = Scene(3, "error_burst", "games-01/fraud-4", 4, IncidentKind.FAILING)
SCENES = {
    "slow": Scene(1, "latency_injection", "ads-01/payments-1", 4, IncidentKind.SLOW, is_deployed=True),
    "failing": FAILING,
    "gone": Scene(2, "disappearance", "ads-01/geo-3", 4, IncidentKind.GONE),
    "retries": Scene(1, "retry_storm", "ads-01/geo-1", 5, IncidentKind.SENDS_TOO_MANY_CALLS),
    "flood": Scene(2, "retry_storm", "ads-01/ingress-1", 6, IncidentKind.SENDS_TOO_MANY_CALLS),
    "leak": Scene(2, "slow_leak", "ads-01/mobile-3", 9, IncidentKind.RESOURCES, ends_after=10),
    "cpu": Scene(2, "cpu_saturation", "ads-01/fraud-1", 4, IncidentKind.RESOURCES),
    "rerouted": Scene(1, "misroute", "ads-01/web-1", 5, IncidentKind.REROUTED),
    "silent": replace(FAILING, lasts=5, silent_after=4, expected=IncidentKind.TELEMETRY_MISSING),
    "crowd": Scene(2, "hub_degradation", "platform/shared-db-1", 4, IncidentKind.FAILING),
    "recovering": replace(FAILING, lasts=18, ends_after=12),
}
