"""Which requests the audit log records, in which order, and what happens when it cannot be written."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app.access import Access, Principal, Rules
from serve_app.api.schemas.audit import AuditRecordDocument
from serve_app.deployments.http import problems
from serve_app.deployments.http.audit import audit_requests, note_names, record_change
from serve_app.errors import NoCapacity, ServeError, StoreFull, StoreGone, UnknownMesh
from serve_app.runtime import replica

MESH = "/v1/meshes/shop"


class Records:
    """The audit log of a session, which can be away."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.is_away = self.is_full = False
        self.error: ServeError = NoCapacity("MeshSession: no replica could answer")

    async def append(self, record: AuditRecordDocument) -> None:
        self._note("begin", record)

    async def finish(self, record: AuditRecordDocument) -> None:
        self._note("finish", record)

    def _note(self, event: str, content: Any) -> None:
        if self.is_away:
            raise self.error
        if self.is_full:
            raise StoreFull("store: full")
        self.events.append((event, content))


class Sessions:
    """What the audit log needs of a backend."""

    def __init__(self, records: Records) -> None:
        self.records = SimpleNamespace(audit=records)

    async def ask(self, method: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return await method(*arguments)


class Admit:
    """In place of the access control."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["principal"] = Principal("ada", way="cookie")
        await self._app(scope, receive, send)


class Uncounted:
    """Instruments that count nothing."""

    def count(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def http(records: Records, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    app = FastAPI(dependencies=[Depends(record_change)])
    app.state.instruments = Uncounted()
    problems.install(app)

    @app.post("/v1/meshes/{mesh}/mutes")
    async def add_mute(mesh: str, request: Request) -> str:
        note_names(request, "shop/cart", None)
        records.events.append(("change", mesh))
        return "done"

    @app.delete("/v1/meshes/{mesh}/mutes/{mute}")
    async def remove_mute(mesh: str, mute: str) -> str:
        raise UnknownMesh("mesh: none")

    @app.delete("/v1/meshes/{mesh}")
    async def fail(mesh: str) -> str:
        raise RuntimeError

    @app.post("/v1/meshes/{mesh}/snapshots")
    async def push(mesh: str) -> str:
        return "verdict"

    @app.delete("/v1/meshes/{mesh}/feedback/{incident}")
    async def withdraw_feedback(mesh: str, incident: str) -> str:
        records.is_full = False
        return "done"

    @app.get("/v1/meshes/{mesh}/mutes")
    async def mutes(mesh: str) -> str:
        return "none"

    ingress = SimpleNamespace(backend=Sessions(records), access=Access(Rules()))
    monkeypatch.setattr(replica, "ingress", lambda: ingress)
    app.add_middleware(audit_requests)
    app.add_middleware(Admit)
    return app


async def send(http: FastAPI, method: str, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(http, raise_app_exceptions=False, client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path, headers=headers)


async def test_a_change_is_recorded_before_it_is_made(http: FastAPI, records: Records) -> None:
    assert (await send(http, "POST", f"{MESH}/mutes", **{"x-request-id": "r-1"})).status_code == 200
    assert [event for event, _ in records.events] == ["begin", "change", "finish"]
    before, after = records.events[0][1], records.events[2][1]
    assert (before.status, after.status) == (None, 200)
    assert (after.user, after.way, after.action, after.mesh) == ("ada", "token", "add_mute", "shop")
    assert (after.names, after.request, after.address) == (["shop/cart"], "r-1", "203.0.113.7")


async def test_no_change_without_a_record(http: FastAPI, records: Records) -> None:
    records.is_away = True
    answer = await send(http, "POST", f"{MESH}/mutes")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:tagae:problem:audit-gone")
    assert "nothing was changed" in answer.json()["detail"]
    records.error = StoreGone("store: away")  # which the change needs, too
    answer = await send(http, "POST", f"{MESH}/mutes")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:tagae:problem:store-gone")
    assert records.events == []


async def test_a_full_store_can_be_cleared(http: FastAPI, records: Records) -> None:
    """Deletions make room, so they are recorded afterwards. Other changes have to wait."""
    records.is_full = True
    assert (await send(http, "POST", f"{MESH}/mutes")).status_code == 503
    assert (await send(http, "DELETE", f"{MESH}/feedback/i-1")).status_code == 200
    ((event, record),) = records.events
    assert (event, record.action, record.status) == ("finish", "withdraw_feedback", 200)


@pytest.mark.parametrize(("path", "status"), [(f"{MESH}/mutes/m-1", 404), (MESH, 500)])
async def test_a_change_that_failed_is_recorded(http: FastAPI, records: Records, path: str, status: int) -> None:
    assert (await send(http, "DELETE", path)).status_code == status
    assert [record.status for _, record in records.events] == [None, status]


async def test_reads_are_not_recorded(http: FastAPI, records: Records) -> None:
    await send(http, "GET", f"{MESH}/mutes")
    await send(http, "POST", "/v1/nothing")
    assert records.events == []


async def test_pushes_are_not_recorded_and_go_on_without_the_log(http: FastAPI, records: Records) -> None:
    records.is_away = True
    assert (await send(http, "POST", f"{MESH}/snapshots")).status_code == 200
    assert records.events == []


async def test_a_request_id_of_others_is_checked(http: FastAPI, records: Records) -> None:
    await send(http, "POST", f"{MESH}/mutes", **{"x-request-id": "x" * 500})
    await send(http, "POST", f"{MESH}/mutes", **{"x-request-id": "<b>"})
    assert all(len(record.request) == 16 for event, record in records.events if event == "finish")
