"""A client of a running service: snapshots in, verdict documents or the house's own errors out."""

import random
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, JSON, encode_snapshot
from serve_app.api.schemas.actions import (
    FeedbackDocument,
    FeedbackListDocument,
    KeptFeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
    MuteListDocument,
)
from serve_app.api.schemas.base import Document
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.schemas.views import MeshDocument
from serve_app.errors import ANSWERS, NoCapacity, ServeError, TooManyFailedLogins
from serve_app.net.endpoint import ssl_context

_TYPE = "urn:tagae:problem:{}"
_RAISED = {_TYPE.format(row.code): cls for cls, row in ANSWERS.items() if issubclass(cls, ServeError)}
_PASSING = (408, 429, 503, 504)  # statuses that promise a better time
_AWAY = (502, 503, 504)  # what a proxy says of a service that is not there or broke off, in words of its own
PAUSE_SECONDS = 0.25  # before a request is sent again that found no service
_STARTING = "/-/routes"  # named by Ray's front, which is there before the service and answers 404


class Client:
    """One connection to one service; a context manager.

    Every request may be sent twice: a snapshot is answered with the stored verdict, feedback and a mute with what is
    kept. So a request is sent again until ``patience_seconds`` have passed where the service is busy (429, 503), late
    (504, also where the snapshot was stored), not there (refused connections), or ended while it answered. A DELETE
    that is sent again and finds nothing left has done its work.

    Args:
        url: such as ``http://127.0.0.1:8000``.
        timeout_seconds: of one attempt.
        patience_seconds: of all attempts of one call together.
        token: of the service, if it asks for one.
        ca_file: certificates to trust instead of the system's.
        transport: instead of the network.

    Raises:
        BadSettings: ``ca_file`` cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 30.0,
        patience_seconds: float = 60.0,
        token: str | None = None,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience = patience_seconds
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=self.url,
            timeout=timeout_seconds,
            transport=transport,
            headers=headers,
            verify=ssl_context(ca_file),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def push(self, mesh: str, snapshot: MeshSnapshot) -> VerdictDocument:
        """Score one snapshot.

        Raises:
            ServeError: the class the service raised, with its words; ``NoCapacity`` where nobody answers.
        """
        response = self._send("POST", f"/v1/meshes/{mesh}/snapshots", _body(snapshot))
        return VerdictDocument.model_validate_json(response.content)

    def baseline(self, mesh: str, snapshot: MeshSnapshot) -> None:
        """Let a snapshot set baselines and calibration; it does not count and has no verdict. Errors as ``push``."""
        self._send("POST", f"/v1/meshes/{mesh}/baseline", _body(snapshot))

    def verdict(self, mesh: str) -> VerdictDocument:
        """The newest verdict. Errors as ``push``."""
        return VerdictDocument.model_validate_json(self._send("GET", f"/v1/meshes/{mesh}/verdict").content)

    def meshes(self) -> list[MeshDocument]:
        """All meshes the service knows. Errors as ``push``."""
        return [MeshDocument.model_validate(row) for row in self._send("GET", "/v1/meshes").json()]

    def delete(self, mesh: str) -> None:
        """Forget a mesh. Errors as ``push``."""
        self._send("DELETE", f"/v1/meshes/{mesh}")

    def tell(self, mesh: str, said: FeedbackDocument | MissedDocument) -> KeptFeedbackDocument:
        """Say of an incident that it was none, whose doing it was, or that it was missed; what is kept of it. Errors as
        ``push``; ``UnknownIncident`` where there is none of this id."""
        response = self._send("POST", f"/v1/meshes/{mesh}/feedback", _json(said), JSON)
        return KeptFeedbackDocument.model_validate_json(response.content)

    def feedback(self, mesh: str) -> list[KeptFeedbackDocument]:
        """All that is kept of what was said, in the order in which it was said. Errors as ``push``."""
        response = self._send("GET", f"/v1/meshes/{mesh}/feedback")
        return FeedbackListDocument.model_validate_json(response.content).feedback

    def take_back(self, mesh: str, incident: str) -> None:
        """Forget what was said of an incident, by the id that it is kept under. Errors as ``tell``."""
        self._send("DELETE", f"/v1/meshes/{mesh}/feedback/{_in_path(incident)}")

    def mute(self, mesh: str, mute: MuteDocument) -> KeptMuteDocument:
        """Let services, or the whole mesh, page nobody for a while; the mute as it is kept. Errors as ``push``."""
        response = self._send("POST", f"/v1/meshes/{mesh}/mutes", _json(mute), JSON)
        return KeptMuteDocument.model_validate_json(response.content)

    def mutes(self, mesh: str) -> list[KeptMuteDocument]:
        """The mutes in force and to come, in the order in which they were given. Errors as ``push``."""
        response = self._send("GET", f"/v1/meshes/{mesh}/mutes")
        return MuteListDocument.model_validate_json(response.content).mutes

    def lift(self, mesh: str, mute: str) -> None:
        """Take a mute back, by its id. Errors as ``push``; ``UnknownMute`` where there is none of this id."""
        self._send("DELETE", f"/v1/meshes/{mesh}/mutes/{_in_path(mute)}")

    def metrics(self) -> str:
        """The service's metrics in Prometheus' text form. Errors as ``push``."""
        return self._send("GET", "/metrics").text

    def _send(self, method: str, path: str, content: bytes | None = None, media_type: str = ARROW) -> httpx.Response:
        headers = {"content-type": media_type} if content is not None else {}
        until, is_repeated = time.monotonic() + self._patience, False
        while True:
            try:
                response = self._http.request(method, path, content=content, headers=headers)
            except httpx.UnsupportedProtocol as error:
                raise NoCapacity(f"url {self.url}: expected http://HOST:PORT; {error}") from None
            except httpx.TransportError as error:
                if time.monotonic() > until:
                    raise NoCapacity(
                        f"no answer from {self.url}: {error or type(error).__name__}; start it with `tagae serve`, "
                        "or correct the URL"
                    ) from None
                is_repeated = True
                time.sleep(PAUSE_SECONDS)
                continue
            passing = (response.status_code in _PASSING or _nobody_there(response)) and not _is_for_good(response)
            if not passing or time.monotonic() > until:
                is_done = method == "DELETE" and is_repeated and response.status_code == 404
                return response if is_done else _checked(response)
            is_repeated = True
            time.sleep(min(_retry_after(response), max(0.0, until - time.monotonic())))


def _body(snapshot: MeshSnapshot) -> bytes:
    return encode_snapshot(snapshot, ARROW)  # the fastest to read and write


def _json(said: Document) -> bytes:
    return said.model_dump_json().encode()


def _in_path(name: str) -> str:
    """An id as one step of a path, whatever people typed."""
    return quote(name, safe="")


def _retry_after(response: httpx.Response) -> float:
    """Seconds to wait: as the service asks, and up to a second more, so that clients do not come back all at once."""
    given = response.headers.get("retry-after", "")
    seconds = float(given) if given.replace(".", "", 1).isdigit() else PAUSE_SECONDS
    return seconds + random.uniform(0, min(1.0, seconds))


def _is_for_good(response: httpx.Response) -> bool:
    """Whether waiting alone helps nothing: the token is wrong, and was too often."""
    return _problem(response).get("type") == _TYPE.format(ANSWERS[TooManyFailedLogins].code)


def _nobody_there(response: httpx.Response) -> bool:
    """Whether somebody answered in place of the service."""
    if _problem(response):
        return False
    return response.status_code in _AWAY or (response.status_code == 404 and _STARTING in response.text)


def _checked(response: httpx.Response) -> httpx.Response:
    """The response, or the error that the service raised."""
    if response.is_success:
        return response
    problem = _problem(response)
    is_page = response.headers.get("content-type", "").startswith("text/html")
    detail = problem.get("detail") or (not is_page and response.text[:200]) or response.reason_phrase
    otherwise = NoCapacity if _nobody_there(response) else ServeError
    raised = _RAISED.get(problem.get("type", ""), otherwise)
    raise raised(
        f"{response.request.method} {response.url.path}: {response.status_code}: {detail}", **_details(problem)
    )


def _problem(response: httpx.Response) -> dict[str, Any]:
    """What the service says is wrong; nothing: it was somebody else who answered."""
    try:
        return dict(response.json())
    except (ValueError, TypeError):
        return {}


def _details(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: problem[name] for name in ("pointer", "errors", "retry_after_seconds") if problem.get(name)}
