"""A client of a running service. It sends snapshots and returns documents, or raises the errors of this package."""

import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from model.snapshot import MeshSnapshot
from serve_app.api.codec import ARROW, JSON, encode_snapshot
from serve_app.api.codec.arrow_embeddings import Embeddings, decode_embeddings
from serve_app.api.schemas.actions import (
    ActionDocument,
    FeedbackDocument,
    FeedbackListDocument,
    KeptActionDocument,
    KeptFeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
    MuteListDocument,
    ReceiverResult,
    TestAlertDocument,
    TestResultsDocument,
)
from serve_app.api.schemas.base import Document
from serve_app.api.schemas.drift import DriftDocument
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, IncidentsDocument
from serve_app.api.schemas.models import (
    CanaryDocument,
    ComparisonOfModels,
    ModelsDocument,
    PromotionDocument,
    RollbackDocument,
    RolloutDocument,
)
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.api.schemas.views import MeshDocument, OneMeshDocument
from serve_app.errors import ANSWERS, NoCapacity, ServeError, TooManyFailedLogins
from serve_app.net.endpoint import ssl_context

D = TypeVar("D", bound=Document)
_TYPE = "urn:tagae:problem:{}"
_ERRORS = {_TYPE.format(row.code): cls for cls, row in ANSWERS.items() if issubclass(cls, ServeError)}
_TEMPORARY = (408, 429, 503, 504)  # statuses that may pass
_FROM_PROXY = (502, 503, 504)  # a proxy's own answer if the service is down or broke off
PAUSE_SECONDS = 0.25  # before a request is repeated that found no service


class Client:
    """One connection to one service; a context manager.

    Every request is safe to repeat: a repeated snapshot gets the stored verdict, repeated feedback or a repeated mute
    the stored one. So requests are repeated for up to ``patience_seconds`` if the service is busy (429, 503), late
    (504, even if the snapshot was stored), down (refused connections), or stopped while it answered. A repeated DELETE
    that finds nothing counts as done.

    Args:
        url: such as ``http://127.0.0.1:8000``.
        patience_seconds: for all attempts of a call together.
        reach_seconds: shorter patience until the first answer, so that a wrong URL is reported soon; None: the same as
            ``patience_seconds``.
        on_retry: called once for each repeated request after the first answer, with the reason and the patience in
            words.
        ca_file: CA bundle to use instead of the system store.

    Each method raises the service's error with its text, or ``NoCapacity`` if there is no answer.

    Raises:
        BadSettings: ``ca_file`` cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 30.0,
        patience_seconds: float = 60.0,
        reach_seconds: float | None = None,
        on_retry: Callable[[str], None] = lambda _: None,
        token: str | None = None,
        ca_file: Path | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._patience = patience_seconds
        self._reach = patience_seconds if reach_seconds is None else min(reach_seconds, patience_seconds)
        self._is_reached = False
        self._on_retry = on_retry
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
        """Score one snapshot."""
        response = self._send("POST", f"/v1/meshes/{mesh}/snapshots", encode_snapshot(snapshot, ARROW))
        return VerdictDocument.model_validate_json(response.content)

    def baseline(self, mesh: str, snapshot: MeshSnapshot) -> None:
        """Set baselines and calibration from a snapshot, which does not count and gets no verdict."""
        self._send("POST", f"/v1/meshes/{mesh}/baseline", encode_snapshot(snapshot, ARROW))

    def verdict(self, mesh: str) -> VerdictDocument:
        """The newest verdict."""
        return self._get(VerdictDocument, f"meshes/{mesh}/verdict")

    def drift(self, mesh: str) -> DriftDocument:
        """How far a mesh is from training and from its own last week."""
        return self._get(DriftDocument, f"meshes/{mesh}/drift")

    def meshes(self) -> list[MeshDocument]:
        """All meshes of the service."""
        return [MeshDocument.model_validate(row) for row in self._send("GET", "/v1/meshes").json()]

    def mesh(self, mesh: str) -> OneMeshDocument:
        """One mesh, where its snapshots come from, and how the newest one was scored."""
        return self._get(OneMeshDocument, f"meshes/{mesh}")

    def read(self, mesh: str, view: str, **parameters: datetime | str | None) -> Any:
        """A mesh's view as JSON, such as ``graph``, from ``GET /v1/meshes/{mesh}/{view}``; a parameter of None is left
        out."""
        query = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in parameters.items()
            if value is not None
        }
        return self._send("GET", f"/v1/meshes/{mesh}/{view}", parameters=query).json()

    def embeddings(self, mesh: str) -> Embeddings:
        """The newest snapshot's embeddings."""
        return decode_embeddings(self._send("GET", f"/v1/meshes/{mesh}/embeddings").content)

    def incidents(
        self,
        mesh: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        service: str | None = None,
        team: str | None = None,
    ) -> Iterator[ArchivedIncidentDocument]:
        """The incidents of a period, or without one those open now, the newest first, page by page; with ``team``, its
        own."""
        cursor: str | None = None
        while True:
            page = IncidentsDocument.model_validate(
                self.read(mesh, "incidents", since=since, until=until, service=service, team=team, cursor=cursor)
            )
            yield from page.incidents
            cursor = page.next
            if cursor is None:
                return

    def incident(self, mesh: str, incident: str) -> ArchivedIncidentDocument:
        """An incident, open or archived, at its highest score."""
        return self._get(ArchivedIncidentDocument, f"meshes/{mesh}/incidents/{_path_segment(incident)}")

    def delete(self, mesh: str) -> None:
        """Delete a mesh."""
        self._send("DELETE", f"/v1/meshes/{mesh}")

    def give_feedback(self, mesh: str, feedback: FeedbackDocument | MissedDocument) -> KeptFeedbackDocument:
        """Report a false alarm, the cause of an incident, or a missed incident. Returns the stored feedback."""
        return self._post(KeptFeedbackDocument, f"meshes/{mesh}/feedback", feedback)

    def feedback(self, mesh: str) -> list[KeptFeedbackDocument]:
        """All stored feedback, oldest first."""
        return self._get(FeedbackListDocument, f"meshes/{mesh}/feedback").feedback

    def withdraw_feedback(self, mesh: str, incident: str) -> None:
        """Withdraw the feedback on an incident, by its id."""
        self._send("DELETE", f"/v1/meshes/{mesh}/feedback/{_path_segment(incident)}")

    def act(self, mesh: str, incident: str, action: ActionDocument) -> KeptActionDocument:
        """Record an action on an incident. Returns the stored action."""
        return self._post(KeptActionDocument, f"meshes/{mesh}/incidents/{_path_segment(incident)}/actions", action)

    def mute(self, mesh: str, mute: MuteDocument) -> KeptMuteDocument:
        """Mute services or the whole mesh for a while. Returns the stored mute."""
        return self._post(KeptMuteDocument, f"meshes/{mesh}/mutes", mute)

    def mutes(self, mesh: str) -> list[KeptMuteDocument]:
        """The current and future mutes, oldest first."""
        return self._get(MuteListDocument, f"meshes/{mesh}/mutes").mutes

    def unmute(self, mesh: str, mute: str) -> None:
        """Remove a mute by its id."""
        self._send("DELETE", f"/v1/meshes/{mesh}/mutes/{_path_segment(mute)}")

    def models(self) -> ModelsDocument:
        """The models of the registry."""
        return self._get(ModelsDocument, "models")

    def compare_models(self, version: str) -> ComparisonOfModels:
        """The differences between a model and its baseline in the trial."""
        return self._get(ComparisonOfModels, f"models/{_path_segment(version)}/comparison")

    def try_model(self, version: str, share: float | None = None) -> RolloutDocument:
        """Try a model on a share of the meshes."""
        return self._post(RolloutDocument, f"models/{_path_segment(version)}/canary", CanaryDocument(share=share))

    def promote_model(self, version: str, mesh: str | None = None) -> RolloutDocument:
        """Make all meshes, or one, use a model."""
        return self._post(RolloutDocument, f"models/{_path_segment(version)}/promote", PromotionDocument(mesh=mesh))

    def roll_back_model(self, mesh: str | None = None, reason: str = "") -> RolloutDocument:
        """End a trial, or go back to the model before."""
        return self._post(RolloutDocument, "models/rollback", RollbackDocument(mesh=mesh, reason=reason))

    def send_test_alert(self, receiver: str | None = None) -> list[ReceiverResult]:
        """Send a test alert to all receivers, or to the receivers of a kind or address."""
        return self._post(TestResultsDocument, "receivers/test", TestAlertDocument(receiver=receiver)).receivers

    def metrics(self) -> str:
        """The service's metrics in Prometheus' text format."""
        return self._send("GET", "/metrics").text

    def _get(self, model: type[D], path: str) -> D:
        return model.model_validate_json(self._send("GET", f"/v1/{path}").content)

    def _post(self, model: type[D], path: str, document: Document) -> D:
        return model.model_validate_json(
            self._send("POST", f"/v1/{path}", document.model_dump_json().encode(), JSON).content
        )

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        media_type: str = ARROW,
        parameters: dict[str, str] | None = None,
    ) -> httpx.Response:
        headers = {"content-type": media_type} if content is not None else {}
        began, is_repeated = time.monotonic(), False
        while True:
            try:
                response = self._http.request(method, path, params=parameters, content=content, headers=headers)
            except httpx.UnsupportedProtocol as error:
                raise NoCapacity(f"url {self.url}: expected http://HOST:PORT; {error}") from None
            except httpx.TransportError as error:
                remaining = began + (self._patience if self._is_reached else self._reach) - time.monotonic()
                reason = f"{error or type(error).__name__}"
                if remaining < 0:
                    raise NoCapacity(
                        f"no answer from {self.url}: {reason}; start it with `tagae serve`, or correct the URL"
                    ) from None
                pause = PAUSE_SECONDS
            else:
                self._is_reached = True
                remaining = began + self._patience - time.monotonic()
                if remaining < 0 or not _is_temporary(response):
                    is_done = method == "DELETE" and is_repeated and response.status_code == 404
                    return response if is_done else _require_success(response)
                reason = f"{response.status_code} {response.reason_phrase}"
                pause = min(_retry_after(response), remaining)
            if self._is_reached and not is_repeated:
                self._on_retry(f"{method} {self.url}{path}: {reason}; trying again for up to {remaining:.0f} s")
            is_repeated = True
            headers["connection"] = "close"  # the next attempt may reach another pod or node, which can answer
            time.sleep(pause)


def _path_segment(name: str) -> str:
    """An id as one segment of a path."""
    return quote(name, safe="")


def _retry_after(response: httpx.Response) -> float:
    """Seconds to wait: what the service asks for, and up to one second more to spread the clients."""
    header = response.headers.get("retry-after", "")
    seconds = float(header) if header.replace(".", "", 1).isdigit() else PAUSE_SECONDS
    return seconds + random.uniform(0, min(1.0, seconds))


def _is_temporary(response: httpx.Response) -> bool:
    """Whether the same request can succeed later."""
    if _problem(response).get("type") == _TYPE.format(ANSWERS[TooManyFailedLogins].code):
        return False  # the token is wrong, and waiting does not help
    return response.status_code in _TEMPORARY or _is_service_down(response)


def _is_service_down(response: httpx.Response) -> bool:
    """Whether something else answered because the service is down."""
    return not _problem(response) and response.status_code in _FROM_PROXY


def _require_success(response: httpx.Response) -> httpx.Response:
    """The response, or the error that the service raised."""
    if response.is_success:
        return response
    problem = _problem(response)
    is_page = response.headers.get("content-type", "").startswith("text/html")
    detail = problem.get("detail") or (not is_page and response.text[:200]) or response.reason_phrase
    default = NoCapacity if _is_service_down(response) else ServeError
    error_class = _ERRORS.get(problem.get("type", ""), default)
    details = {name: problem[name] for name in ("pointer", "errors", "retry_after_seconds") if problem.get(name)}
    raise error_class(f"{response.request.method} {response.url.path}: {response.status_code}: {detail}", **details)


def _problem(response: httpx.Response) -> dict[str, Any]:
    """The service's problem document; empty if something else answered."""
    try:
        return dict(response.json())
    except (ValueError, TypeError):
        return {}
