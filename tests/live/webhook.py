"""A receiver of alerts, and a check that it got each event once."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.live.loaded_cluster import Sender
from tests.serve_app.collect.prometheus.standin import Request


@dataclass
class Webhook:
    """A receiver that stores the events that it receives. An event may come again, under the same id.

    Attributes:
        events: by id.
        deliveries: how often each event came, by id.
    """

    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    deliveries: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: Request) -> None:
        event = json.loads(request.body)
        self.events[event["id"]] = event
        self.deliveries[event["id"]] += 1
        request.send(200, b"{}")

    @property
    def repeats(self) -> int:
        """How many deliveries were of an event that had come before."""
        return self.deliveries.total() - len(self.deliveries)

    def starts(self) -> list[tuple[str, str]]:
        """Mesh and id of each incident that opened, once for each event."""
        return self._of("opened")

    def ends(self) -> list[tuple[str, str]]:
        """Mesh and id of each incident that was resolved or merged, once for each event."""
        return self._of("resolved", "merged")

    def knows(self, senders: Sequence[Sender]) -> bool:
        """Whether it got the start of each incident that is open by the newest verdicts."""
        now_open = {
            (sender.mesh, incident["id"]) for sender in senders for incident in sender.verdicts[-1]["incidents"]
        }
        return bool(now_open) and now_open <= set(self.starts())

    def check(self) -> None:
        """Check that no incident opened twice, and that no event of an incident is missing or came under two ids."""
        opened = self.starts()
        assert len(set(opened)) == len(opened), "no incident opened twice"
        numbers: dict[tuple[str, str], list[int]] = {}
        for event in self.events.values():
            numbers.setdefault((event["mesh"], event["incident"]["id"]), []).append(event["sequence"])
        for incident, found in numbers.items():
            assert sorted(found) == list(range(1, len(found) + 1)), f"{incident}: no event is lost or doubled"

    def _of(self, *kinds: str) -> list[tuple[str, str]]:
        return [
            (event["mesh"], event["incident"]["id"]) for event in list(self.events.values()) if event["event"] in kinds
        ]
