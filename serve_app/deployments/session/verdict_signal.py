"""Wakes readers that wait for the next verdict of a mesh."""

import asyncio
from weakref import WeakValueDictionary


class VerdictSignal:
    """Events by mesh, for one event loop. An event lives only while someone waits for it."""

    def __init__(self) -> None:
        self._awaited: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def next_verdict(self, mesh: str) -> asyncio.Event:
        """An event that is set with the next verdict of the mesh."""
        return self._awaited.setdefault(mesh, asyncio.Event())

    def notify(self, mesh: str) -> None:
        """Wake the readers: a verdict was stored, or the mesh was deleted."""
        if event := self._awaited.pop(mesh, None):
            event.set()
