"""Meshes that people connect are collected until they delete them."""

import asyncio

import pytest

from model.snapshot import MeshSnapshot
from model.verdict import ClusterEvent
from serve_app.collect.base import Resume
from serve_app.collect.connections import ConnectedMeshes
from serve_app.collect.meshes import CollectedMeshes
from serve_app.errors import InvalidParameter
from serve_app.settings import MeshSettings, Settings

SETTINGS = Settings(meshes={"bank": MeshSettings(prometheus="http://127.0.0.1:9/bank")})


class Sessions:
    """Sessions that know these connections, and never say where to continue."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}

    async def push(self, mesh: str, snapshot: MeshSnapshot, events: tuple[ClusterEvent, ...]) -> None:
        raise AssertionError("nothing is polled before it is known where to continue")

    async def replay(self, mesh: str, snapshot: MeshSnapshot) -> None:
        raise AssertionError("nothing is polled before it is known where to continue")

    async def resume(self, mesh: str) -> Resume:
        await asyncio.Event().wait()
        raise AssertionError

    async def connections(self) -> dict[str, str]:
        return dict(self.urls)


async def test_the_collected_meshes_follow_the_connections() -> None:
    sessions = Sessions()
    meshes = CollectedMeshes(SETTINGS.collected, SETTINGS.collector, sessions, None)
    connected = ConnectedMeshes(SETTINGS, meshes, sessions)
    run = asyncio.create_task(meshes.run())

    async def collected_urls() -> dict[str, str | None]:
        await connected.update()
        assert [state.mesh for state in meshes.states()] == list(meshes.settings)
        await asyncio.sleep(0)
        assert len(meshes.tasks) == len(meshes.settings)
        return {mesh: settings.prometheus for mesh, settings in meshes.settings.items()}

    configured = {"bank": "http://127.0.0.1:9/bank"}
    assert await collected_urls() == configured
    sessions.urls = {"shop": "http://127.0.0.1:9/a", "bank": "http://127.0.0.1:9/b"}
    assert await collected_urls() == {**configured, "shop": "http://127.0.0.1:9/a"}
    (_, task) = meshes.tasks
    sessions.urls = {"shop": "http://127.0.0.1:9/b"}
    assert await collected_urls() == {**configured, "shop": "http://127.0.0.1:9/b"}
    assert task.cancelled()
    sessions.urls = {}
    assert await collected_urls() == configured
    await meshes.end()
    run.cancel()


def test_a_mesh_with_a_source_in_the_settings_cannot_be_connected() -> None:
    meshes = CollectedMeshes({}, SETTINGS.collector, Sessions(), None)
    with pytest.raises(InvalidParameter, match="change it there"):
        ConnectedMeshes(SETTINGS, meshes, Sessions()).settings_of("bank", "http://127.0.0.1:9")
