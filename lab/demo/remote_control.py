"""The demo's controls over HTTP: an application beside the service.

The show runs in the command's process. With one call it sends its newest state and gets the keys that were pressed in a
browser (:class:`Line`). HTTP requests are answered from the newest state.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from time import sleep
from typing import Any

from fastapi import Request, Response
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application

from serve_app.access import Access, Rules
from serve_app.deployments.http.bodies import read_json
from serve_app.deployments.http.interface import interface
from serve_app.errors import InvalidDocument, NoCapacity, Overloaded
from serve_app.runtime import reporting
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules
from serve_app.web.assets import HEADERS, page

NAME = "demo"  # of the application, and the first word of its paths
LIGHT_CPUS = 0.1
MAX_KEYS = 32  # limit for waiting keys; no one presses more between two calls
MAX_BODY_BYTES = 1024
WAIT_SECONDS = 0.25  # for which a call waits for a key, so the state can be this old
ADDED = (  # to the page's head
    '<script type="module" src="/demo/controls.js"></script>',
    '<link rel="stylesheet" href="/demo/controls.css">',
)
PANEL = Path(__file__).parent / "web"


class WaitingKeys:
    """Pressed keys that the show has not collected."""

    def __init__(self, keys: Collection[str], limit: int = MAX_KEYS) -> None:
        self._keys = frozenset(keys)
        self._waiting = asyncio.Queue[str](limit)

    def press(self, key: object) -> None:
        """Add a key.

        Raises:
            InvalidDocument: the key is unknown.
            Overloaded: too many keys wait.
        """
        if not isinstance(key, str) or key not in self._keys:
            raise InvalidDocument(
                f"key: expected one of {' '.join(sorted(map(repr, self._keys)))}, got {str(key)[:20]!r}; "
                "GET /demo/show lists what each begins",
                pointer="/key",
            )
        try:
            self._waiting.put_nowait(key)
        except asyncio.QueueFull:
            raise Overloaded(
                f"keys: expected at most {self._waiting.maxsize} waiting keys, got one more; wait until the show has "
                "read them",
                retry_after_seconds=1.0,
            ) from None

    async def take(self, seconds: float) -> list[str]:
        """Remove and return the waiting keys in order; an empty list if none is pressed within that time."""
        keys: list[str] = []
        if self._waiting.empty():
            try:
                keys.append(await asyncio.wait_for(self._waiting.get(), seconds))
            except TimeoutError:
                return keys
        while not self._waiting.empty():
            keys.append(self._waiting.get_nowait())
        return keys


def _respond(content: bytes, media_type: str) -> Response:
    return Response(content, headers=HEADERS, media_type=media_type)


http = interface(openapi=None)


@serve.ingress(http)
class RemoteControl:
    """Serves the page's panel, and exchanges state and keys with the show."""

    sign_ins = backend = None  # parts of the service's own ingress

    def __init__(self, keys: Collection[str], rules: Rules) -> None:
        reporting.prepare()
        self.access = Access(rules)
        self._keys = WaitingKeys(keys)
        self._show: bytes | None = None  # the newest state

    @http.get("/")
    async def whole_page(self) -> Response:
        file = page(*ADDED, root="../")
        return _respond(file.plain, file.media_type)

    @http.get("/controls.js")
    async def script(self) -> Response:
        return _respond((PANEL / "controls.js").read_bytes(), "text/javascript")

    @http.get("/controls.css")
    async def style(self) -> Response:
        return _respond((PANEL / "controls.css").read_bytes(), "text/css")

    @http.get("/show")
    async def show(self) -> Response:
        """Return the demo's state, without verdicts."""
        if self._show is None:
            raise NoCapacity("show: it has not started; try again in a second", retry_after_seconds=1.0)
        return _respond(self._show, "application/json")

    @http.post("/keys", status_code=202)
    async def press(self, request: Request) -> Response:
        """Press a key, as at the terminal: ``{"key": "l"}``."""
        document = await read_json(request, MAX_BODY_BYTES)
        self._keys.press(document.get("key") if isinstance(document, dict) else None)
        return Response(status_code=202)

    async def exchange(self, show: bytes) -> list[str]:
        """Store the newest state, and return the keys pressed since; wait a moment for one."""
        self._show = show
        return await self._keys.take(WAIT_SECONDS)


def remote_control(keys: Collection[str], settings: Settings) -> dict[str, Application]:
    """Return the application by its name, for :func:`serve_app.app.start`."""
    deployment = serve.deployment(
        RemoteControl,
        ray_actor_options={"num_cpus": LIGHT_CPUS},
        max_ongoing_requests=50,
    )
    return {NAME: deployment.bind(tuple(keys), serve_rules(settings))}


class Line:
    """The show's connection to :class:`RemoteControl`: one call at a time, which never blocks the show."""

    def __init__(self) -> None:
        self._control = serve.get_app_handle(NAME)
        self._answer: Any = None  # of the call under way
        self._keys: list[str] = []

    @property
    def is_free(self) -> bool:
        return self._answer is None

    def send(self, show: bytes) -> None:
        self._answer = self._control.exchange.remote(show)

    def read(self, seconds: float) -> str:
        """Return the next key; empty if none is pressed within that time."""
        if not self._keys and self._answer is None:
            sleep(seconds)
        elif not self._keys:
            self._keys = self._receive(seconds)
        return self._keys.pop(0) if self._keys else ""

    def _receive(self, seconds: float) -> list[str]:
        try:
            keys: list[str] = self._answer.result(timeout_s=seconds)
        except TimeoutError:
            return []
        except RayError:
            keys = []  # the replica died with its keys; Serve starts another, which gets the state with the next call
        self._answer = None
        return keys
