"""The demo's controls over HTTP: an application beside the service, deployed by the demo alone.

The show runs in the process of the command. It tells what there is to see, and takes the keys that somebody pressed in
a browser, with one call to and fro (:class:`Line`); who asks over HTTP is answered from what was told last.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from pathlib import Path
from time import sleep
from typing import Any

from fastapi import Request, Response
from ray import serve
from ray.exceptions import RayError
from ray.serve import Application

from serve_app.access import Access, Rules
from serve_app.deployments.bodies import read_json
from serve_app.deployments.http import interface
from serve_app.errors import InvalidDocument, NoCapacity, Overloaded
from serve_app.settings import Settings
from serve_app.settings.access import serve_rules
from serve_app.web.assets import HEADERS, page

NAME = "demo"  # of the application, and the first word of its paths
LIGHT_CPUS = 0.1
MOST_KEYS = 32  # that wait; nobody presses more in the time between two looks
MOST_BODY_BYTES = 1024
WAIT_SECONDS = 0.25  # that a call of the show waits for a key, hence how old what is told may be
ADDED = (  # to the page's head
    '<script type="module" src="/demo/controls.js"></script>',
    '<link rel="stylesheet" href="/demo/controls.css">',
)
PANEL = Path(__file__).parent.parent / "demo" / "web"  # a path, since the demo's package would bring the simulator


class WaitingKeys:
    """Keys that were pressed and not yet taken, a bounded number.

    Args:
        known: the keys that mean something.
        most: that may wait.
    """

    def __init__(self, known: Collection[str], most: int = MOST_KEYS) -> None:
        self._known = frozenset(known)
        self._most = most
        self._waiting: deque[str] = deque()
        self._came = asyncio.Event()

    def press(self, key: object) -> None:
        """One more.

        Raises:
            InvalidDocument: a key that means nothing.
            Overloaded: nobody takes them.
        """
        if not isinstance(key, str) or key not in self._known:
            raise InvalidDocument(
                f"key: expected one of {' '.join(sorted(map(repr, self._known)))}, came {str(key)[:20]!r}; "
                "GET /demo/show lists what each begins",
                pointer="/key",
            )
        if len(self._waiting) >= self._most:
            raise Overloaded(
                f"keys: expected at most {self._most} that wait, one more came; wait until the show has taken them",
                retry_after_seconds=1.0,
            )
        self._waiting.append(key)
        self._came.set()

    async def take(self, seconds: float) -> list[str]:
        """All that wait, in order; none if none comes within that time."""
        if not self._waiting:
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), seconds)
            except TimeoutError:
                return []
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


def _sent(content: bytes, media_type: str) -> Response:
    return Response(content, headers=HEADERS, media_type=media_type)


http = interface(openapi=None, prefix=f"/{NAME}")


@serve.ingress(http)
class RemoteControl:
    """What the panel of the page asks for, and the show's end of the line.

    Args:
        keys: that may be pressed.
        rules: of access, those of the service.
    """

    def __init__(self, keys: Collection[str], rules: Rules) -> None:
        self.access = Access(rules)
        self._keys = WaitingKeys(keys)
        self._show: bytes | None = None  # as told last

    @http.get("/")
    async def whole_page(self) -> Response:
        """The page with the demo's panel."""
        file = page(*ADDED, root="../")
        return _sent(file.plain, file.media_type)

    @http.get("/controls.js")
    async def script(self) -> Response:
        """The panel."""
        return _sent((PANEL / "controls.js").read_bytes(), "text/javascript")

    @http.get("/controls.css")
    async def style(self) -> Response:
        """Its looks."""
        return _sent((PANEL / "controls.css").read_bytes(), "text/css")

    @http.get("/show")
    async def show(self) -> Response:
        """All that can be seen of the demo now, but the verdicts."""
        if self._show is None:
            raise NoCapacity("show: it has not begun; ask again in a second", retry_after_seconds=1.0)
        return _sent(self._show, "application/json")

    @http.post("/keys", status_code=202)
    async def press(self, request: Request) -> Response:
        """Press a key, as at the terminal: ``{"key": "l"}``."""
        told = await read_json(request, MOST_BODY_BYTES)
        self._keys.press(told.get("key") if isinstance(told, dict) else None)
        return Response(status_code=202)

    async def exchange(self, show: bytes) -> list[str]:
        """The newest show in, the keys pressed since out; waits a moment for one."""
        self._show = show
        return await self._keys.take(WAIT_SECONDS)


def remote_control(keys: Collection[str], settings: Settings) -> dict[str, Application]:
    """The application by its name, for :func:`serve_app.app.start`."""
    deployment = serve.deployment(
        RemoteControl,
        ray_actor_options={"num_cpus": LIGHT_CPUS},
        max_ongoing_requests=50,
    )
    return {NAME: deployment.bind(tuple(keys), serve_rules(settings))}


class Line:
    """The show's end: one call at a time, for which nothing waits longer than it is told to."""

    def __init__(self) -> None:
        self._control = serve.get_app_handle(NAME)
        self._answer: Any = None  # of the call under way
        self._keys: list[str] = []

    @property
    def is_free(self) -> bool:
        """Whether the next show may be told."""
        return self._answer is None

    def tell(self, show: bytes) -> None:
        """Tell the newest show, and ask for keys."""
        self._answer = self._control.exchange.remote(show)

    def read(self, seconds: float) -> str:
        """The next key, or nothing if none comes within that time."""
        if not self._keys and self._answer is None:
            sleep(seconds)
        elif not self._keys:
            self._keys = self._answered(seconds)
        return self._keys.pop(0) if self._keys else ""

    def _answered(self, seconds: float) -> list[str]:
        try:
            keys: list[str] = self._answer.result(timeout_s=seconds)
        except TimeoutError:
            return []
        except RayError:  # the replica died, and keys with it; Serve starts another, which the next call tells the show
            keys = []
        self._answer = None
        return keys
