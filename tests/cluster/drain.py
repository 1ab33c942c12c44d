"""Drains of nodes, simulated on the objects: which pods count for a budget, where replicas can go, who is ready.

Placement is the worst that Serve may choose. Each replica goes to the first pod with room, so the pods that come last
get what is left, and a new pod comes last.
"""

from collections import Counter
from typing import Any

from tests.cluster.pods import Deployment, Pod


class Blocked(Exception):
    """A budget refuses an eviction, and nothing that happens later changes that."""


class Cluster:
    """An installation whose pods have found their nodes.

    Args:
        pods: in the order in which replicas choose them.
        replicas: what Serve places in them.
        budgets: documents of PodDisruptionBudgets.
    """

    def __init__(self, pods: list[Pod], replicas: list[Deployment], budgets: list[dict[str, Any]]) -> None:
        self.pods = pods
        self._budgets = [one["spec"] for one in budgets]
        self.waiting = Counter({one: one.count for one in replicas})
        self._place()

    def drain(self, pod: Pod) -> Counter[str]:
        """Evict a pod, start another one of its group on another node, and place its replicas again.

        Returns:
            Replicas that ran until the new pod was there, by deployment.

        Raises:
            Blocked: a budget refuses.
        """
        for budget in self._budgets:
            self._ask(budget, pod)
        self.pods.remove(pod)
        self.waiting.update(pod.replicas)
        self._place()
        meanwhile: Counter[str] = Counter()
        for one in self.pods:
            meanwhile.update({deployment.name: n for deployment, n in one.replicas.items() if n})
        self.pods.append(pod.replacement())
        self._place()
        return meanwhile

    def _ask(self, budget: dict[str, Any], pod: Pod) -> None:
        """Refuse an eviction that a budget forbids, as the API server does."""
        wanted = budget["selector"]["matchLabels"].items()
        if not wanted <= pod.labels.items():
            return
        if not pod.is_ready and budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow":
            return
        healthy = sum(one.is_ready for one in self.pods if wanted <= one.labels.items())
        if healthy - 1 < budget["minAvailable"]:
            raise Blocked(f"{pod.group}: {healthy} of its pods are ready, {budget['minAvailable']} must stay")

    def _place(self) -> None:
        for deployment in self.waiting:
            for pod in self.pods:
                while self.waiting[deployment] and pod.has_room(deployment):
                    pod.replicas[deployment] += 1
                    self.waiting[deployment] -= 1
