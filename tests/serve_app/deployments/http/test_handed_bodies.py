"""Bodies that travel with their requests, from the gate to the application."""

from copy import deepcopy

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.types import Message, Receive, Scope, Send

from serve_app.deployments.http.handed_bodies import EXTENSION, hand_body, replay_body, take_handed_bodies

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/", "extensions": {"other": 1}, "state": {}}
GONE = {"type": "http.disconnect"}


async def leave() -> Message:
    """The ``receive`` of a client that has left."""
    return GONE


async def ignore(_: Message) -> None:
    """A ``send`` that no one reads."""


async def read_messages(scope: Scope, receive: Receive = leave) -> list[Message]:
    """Return the first three messages that an application gets."""
    found: list[Message] = []

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        found.extend([await receive() for _ in range(3)])

    await take_handed_bodies(app)(scope, receive, ignore)
    return found


@pytest.mark.parametrize("body", [b"", b"{}", bytes(2**20)])
async def test_a_handed_body_arrives_once_in_a_copy_and_then_the_disconnect(body: bytes) -> None:
    scope = deepcopy(hand_body(SCOPE, body))  # as Serve's copy for the replica
    whole = {"type": "http.request", "body": body, "more_body": False}
    assert await read_messages(scope) == [whole, GONE, GONE]
    assert scope["extensions"] == {"other": 1}


async def test_the_body_is_not_asked_for_again_while_the_client_stays() -> None:
    async def stay() -> Message:
        raise AssertionError("Serve's own receive was called before the body was read")

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        assert (await receive())["body"] == b"{}"

    await take_handed_bodies(app)(hand_body(SCOPE, b"{}"), stay, ignore)


async def test_each_attempt_has_the_body() -> None:
    scope = {key: value for key, value in SCOPE.items() if key != "extensions"}
    for _ in range(2):
        assert (await read_messages(hand_body(scope, b"{}")))[0]["body"] == b"{}"
    assert "extensions" not in scope
    for _ in range(2):
        assert (await read_messages(hand_body(SCOPE, b"{}")))[0]["body"] == b"{}"
    assert SCOPE["extensions"] == {"other": 1}


async def test_a_body_that_was_read_is_not_kept() -> None:
    freed: list[bool] = []

    class Body(bytes):
        def __del__(self) -> None:
            freed.append(True)

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        assert not freed
        await receive()
        assert freed

    await take_handed_bodies(app)(hand_body(SCOPE, Body(b"{}")), leave, ignore)


@pytest.mark.parametrize("scope", [SCOPE, {"type": "http"}, {"type": "lifespan"}])
async def test_a_request_without_a_handed_body_passes_unchanged(scope: Scope) -> None:
    assert await read_messages(scope) == [GONE] * 3
    whole = {"type": "http.request", "body": b"x", "more_body": False}
    assert await read_messages(scope, replay_body(b"x", leave)) == [whole, GONE, GONE]


async def test_a_client_cannot_set_the_body_with_a_header() -> None:
    app = FastAPI()
    app.add_middleware(take_handed_bodies)

    @app.post("/")
    async def echo(request: Request) -> str:
        return (await request.body()).decode()

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tagae") as client:
        for name in (EXTENSION, "extensions", f"extensions.{EXTENSION}"):
            answer = await client.post("/", content=b"sent", headers={name: "forged"})
            assert answer.json() == "sent"
