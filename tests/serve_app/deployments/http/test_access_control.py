"""What the application makes of the caller whom the gate found."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from serve_app.access import Access, Principal, Rules
from serve_app.access import Scope as Permission
from serve_app.access.sign_ins import SignedInUser
from serve_app.access.tokens import Grant
from serve_app.deployments.http.access_control import control_access, hand_principal, principal_of
from serve_app.exporter import PrometheusInstruments
from serve_app.runtime import replica

ADA = SignedInUser("id-1", "ada", "Ada", ("sre",), int(time.time()) + 3600)
READER = (Grant(frozenset({Permission.READ})),)
SIGNED_IN = Principal("Ada", READER, "oidc", user=ADA)


class Application:
    """An application behind the access control, and what a gate would have handed to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.access, self.sign_ins = Access(Rules()), self
        monkeypatch.setattr(replica, "ingress", lambda: self)
        self.caller: Principal | None = None
        self.ends_on_another_replica = False
        self.followed = 0
        app = FastAPI()
        app.state.instruments = PrometheusInstruments(replica="test")
        app.add_api_route("/who", self._who)
        app.add_middleware(control_access)
        self._app = app

    async def _who(self, request: Request) -> str:
        return principal_of(request).name

    async def follow(self) -> None:
        self.followed += 1
        if self.ends_on_another_replica:
            self.access.ended_sign_ins |= {ADA.id}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope if self.caller is None else hand_principal(scope, self.caller), receive, send)

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://localhost") as client:
                return await client.get(path)

        return asyncio.run(ask())


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Application:
    return Application(monkeypatch)


@pytest.mark.parametrize("path", ["/who", "/unknown"])
def test_a_request_that_passed_no_gate_is_refused(application: Application, path: str) -> None:
    answer = application.get(path)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:tagae:problem:forbidden")
    assert "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH" in answer.json()["detail"]


@pytest.mark.parametrize("caller", [Principal("reader", READER, "token"), SIGNED_IN])
def test_the_application_knows_the_caller_of_the_gate(application: Application, caller: Principal) -> None:
    application.caller = caller
    answer = application.get("/who")
    assert (answer.status_code, answer.json()) == (200, caller.name)
    assert application.followed == (caller.user is not None)


def test_a_sign_in_that_ended_on_another_replica_is_refused(application: Application) -> None:
    application.caller, application.ends_on_another_replica = SIGNED_IN, True
    answer = application.get("/who")
    assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")


def test_a_sign_in_that_has_expired_meanwhile_is_refused(application: Application) -> None:
    application.caller = replace(SIGNED_IN, user=replace(ADA, expires=int(time.time()) - 1))
    assert application.get("/who").status_code == 401
