"""Controllers of a mesh at each snapshot, with the values that kube-state-metrics would report.

A service has one workload with another name, so the link between them must be read and cannot be guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from model.snapshot import MeshSnapshot
from serve_app.collect.prometheus.keys import Key
from serve_app.collect.prometheus.workloads import Controller, Controllers

REPLICAS = 3  # default number of replicas
EMPTIED = 20  # snapshots after which a workload that was scaled to zero is deleted


def workload_of(node_id: str) -> Key:
    """Return namespace and name of the workload of a service."""
    namespace, name = node_id.split("/", 1)
    return namespace, f"{name}-v1"


@dataclass
class Cluster:
    """The desired state of a mesh's controllers, from announced changes.

    Attributes:
        empties: a workload to be retired is first scaled to zero and deleted later; else it is deleted at once.
        controllers: current state.
    """

    empties: bool = False
    controllers: dict[Key, Controller] = field(default_factory=dict)
    _retired: dict[Key, int] = field(default_factory=dict)

    def after(self, snapshot: MeshSnapshot, wanted: Mapping[str, int] | None = None) -> Controllers:
        """Advance by one snapshot and return the controllers.

        Args:
            snapshot: with the announced changes.
            wanted: replicas by service; None: announced changes set them.
        """
        for name in snapshot.node_ids:
            if (key := workload_of(name)) not in self._retired:
                self.controllers.setdefault(key, Controller(REPLICAS, 1))
        for change in snapshot.changes:
            self._decide(change.kind, workload_of(change.service), by_hand=wanted is None)
        for name, replicas in (wanted or {}).items():
            key = workload_of(name)
            before = self.controllers.get(key)
            if before is not None and key not in self._retired and before.replicas != replicas:
                self.controllers[key] = Controller(replicas, before.generation + 1)
        self._bury()
        return dict(self.controllers)

    def _decide(self, kind: str, key: Key, *, by_hand: bool) -> None:
        controller = self.controllers.get(key)
        if controller is None:
            return
        changed = replace(controller, generation=controller.generation + 1)
        if kind == "deploy":
            self.controllers[key] = changed
        elif kind in ("scale_out", "scale_in") and by_hand:
            more = 1 if kind == "scale_out" else -1
            self.controllers[key] = replace(changed, replicas=max(1, controller.replicas + more))
        elif kind == "deletion":
            self._retired[key] = EMPTIED if self.empties else 0
            self.controllers[key] = replace(changed, replicas=0)

    def _bury(self) -> None:
        for key, left in self._retired.items():
            if left == 0:
                self.controllers.pop(key, None)
            self._retired[key] = left - 1
