"""The collected meshes follow the connections that people make and delete on the page."""

import asyncio
import logging

from serve_app.collect.base import Sessions
from serve_app.collect.meshes import CollectedMeshes
from serve_app.errors import InvalidParameter, ServeError
from serve_app.settings import MeshSettings, Settings

FOLLOW_SECONDS = 3.0  # time between two reads of the connected meshes
log = logging.getLogger(__name__)


class ConnectedMeshes:
    """Adds connected meshes to those that are collected, and removes them when people delete them."""

    def __init__(self, settings: Settings, meshes: CollectedMeshes, sessions: Sessions) -> None:
        self._settings, self._meshes, self._sessions = settings, meshes, sessions
        self._urls: dict[str, str] = {}  # of Prometheus, by mesh
        self._updating = asyncio.Lock()  # an older answer that arrives later would end what a newer one began

    def settings_of(self, mesh: str, prometheus: str) -> MeshSettings:
        """The settings of a mesh that is connected to a Prometheus.

        Raises:
            InvalidParameter: its source is in the settings.
        """
        settings = self._settings.mesh(mesh)
        if settings.is_collected:
            raise InvalidParameter(f"mesh {mesh!r}: expected one without a source in the settings; change it there")
        return settings.model_copy(update={"prometheus": prometheus})

    async def update(self) -> None:
        """Collect exactly the configured and the currently connected meshes."""
        async with self._updating:
            self._apply(await self._sessions.connections())

    def _apply(self, connections: dict[str, str]) -> None:
        urls = {mesh: url for mesh, url in connections.items() if not self._settings.mesh(mesh).is_collected}
        for mesh, _ in self._urls.items() - urls.items():
            self._meshes.remove(mesh)
            del self._urls[mesh]
        for mesh, url in urls.items() - self._urls.items():
            self._meshes.add(mesh, self.settings_of(mesh, url))
            self._urls[mesh] = url

    async def follow(self) -> None:
        """Update every :data:`FOLLOW_SECONDS` until cancelled."""
        problem = ""
        while True:
            try:
                await self.update()
                problem = ""
            except ServeError as error:
                if str(error) != problem:
                    log.warning("it is not known which meshes are connected: %s", error)
                problem = str(error)
            await asyncio.sleep(FOLLOW_SECONDS)
