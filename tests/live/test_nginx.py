"""The service behind a real nginx with the shipped file, below a path and at the root."""

import gzip
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from lab.simulator.simulator import Simulator
from serve_app.alerts.links import Links, LinkSubject
from serve_app.api.client import Client
from serve_app.api.codec import snapshot_document
from serve_app.api.schemas.actions import FeedbackDocument, MuteDocument
from serve_app.api.schemas.verdict import VerdictDocument
from serve_app.deployments.http.streams import WAIT_SECONDS
from serve_app.errors import UnknownMesh
from serve_app.settings import LimitSettings, ServeSettings
from tests.live.nginx import Nginx
from tests.live.programs import free_ports, needs
from tests.serve_app.running import record_simulation, start_service
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    needs("nginx"),
]
SNAPSHOTS = record_simulation(MeshSpec(services=40, seed=2), 60, fault_from=40)


@dataclass(frozen=True, slots=True)
class Front:
    """The service behind nginx.

    Attributes:
        nginx: the proxy.
        client: pushes through the proxy.
        mesh: name of a mesh that no other test pushes.
    """

    nginx: Nginx
    client: Client
    mesh: str

    @property
    def url(self) -> str:
        """URL of the page; ends with a slash."""
        return self.nginx.url


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a service without a proxy."""
    (free,) = free_ports(1)
    state = tmp_path_factory.mktemp("state")
    with start_service("--set", f"store.path={state}", "--set", "limits.max_ahead_seconds=inf", "--port", str(free)):
        yield free


@pytest.fixture(scope="module", params=["/tagae/", "/"], ids=["below", "root"])
def front(port: int, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    nginx = Nginx(tmp_path_factory.mktemp("nginx"), port, request.param)
    nginx.start()
    try:
        with Client(nginx.url) as client:
            yield Front(nginx, client, f"shop-{len(request.param)}")
    finally:
        nginx.end()


@pytest.fixture(scope="module")
def incident(front: Front) -> str:
    """Id of the mesh's open incident."""
    for snapshot in SNAPSHOTS:
        verdict = front.client.push(front.mesh, snapshot)
    return verdict.incidents[0].id


class Events:
    """A stream of events, read line by line."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200
        assert "content-encoding" not in response.headers, "compression would wait for a full block"
        self._lines = response.iter_lines()

    def until(self, beginning: str) -> str:
        """Return the rest of the first line with this beginning."""
        return next(line.removeprefix(beginning) for line in self._lines if line.startswith(beginning))


def event_time(verdict: VerdictDocument) -> str:
    at: str = verdict.model_dump(mode="json")["observed_at"]
    return at


def stream(front: Front, **query: str) -> Any:
    headers = {"accept": "text/event-stream", "accept-encoding": "gzip"}
    path = f"{front.url}v1/meshes/{front.mesh}/verdicts/stream"
    return httpx.stream("GET", path, params=query, headers=headers, timeout=PATIENCE_SECONDS)


def test_the_page_and_all_its_files_are_served(front: Front) -> None:
    with httpx.Client(follow_redirects=False) as http:
        if front.url != f"{front.nginx.origin}/":
            without = http.get(front.url.removesuffix("/"))
            assert (without.status_code, without.headers["location"]) == (
                301,
                front.url.removeprefix(front.nginx.origin),
            )
            assert http.get(front.nginx.origin).status_code == 404, "TAGAE does not answer other paths"
        page = http.get(front.url)
        assert (page.status_code, page.headers["content-encoding"]) == (200, "gzip")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        named = re.findall(r'(?:href|src)="([^"#]+)"', page.text)
        assert len([name for name in named if name.endswith(".js")]) > 10
        for name in named:
            file = http.get(urljoin(front.url, name))
            assert file.status_code == 200, name
            if "/vendor/" not in name and name.endswith(".js"):
                assert file.headers["content-type"] == "text/javascript; charset=utf-8"


def test_headers_do_not_change_redirects(front: Front) -> None:
    """Any client may send these, and nginx passes on headers that it is not configured to set."""
    headers = {
        "x-forwarded-prefix": "/evil",
        "x-forwarded-host": "evil",
        "x-forwarded-proto": "ftp",
        "forwarded": "host=evil",
    }
    for path in ("", "openapi.json", "nowhere"):
        plain, other = httpx.get(front.url + path), httpx.get(front.url + path, headers=headers)
        assert plain.content == other.content
        assert b"evil" not in other.content


def test_an_event_comes_within_a_second_of_its_verdict_and_idle_streams_send_comments(front: Front) -> None:
    front.client.push(front.mesh, SNAPSHOTS[0])
    with stream(front) as response:
        events = Events(response)
        assert events.until("data: ")
        for snapshot in SNAPSHOTS[1:4]:
            observed_at = event_time(front.client.push(front.mesh, snapshot))
            answered = time.monotonic()
            assert json.loads(events.until("data: "))["observed_at"] == observed_at
            assert time.monotonic() - answered < 1 * TIME_FACTOR
        events.until(": nothing new")
        assert time.monotonic() - answered < WAIT_SECONDS + 2 * TIME_FACTOR, "nginx does not buffer events"


def test_a_closed_stream_makes_room_and_a_reopened_one_misses_nothing(front: Front) -> None:
    front.client.push(front.mesh, SNAPSHOTS[4])
    with stream(front) as response:
        last = Events(response).until("id: ")
    times = [event_time(front.client.push(front.mesh, snapshot)) for snapshot in SNAPSHOTS[5:8]]
    for _ in range(ServeSettings().max_streams + 3):
        with stream(front, since=last) as response:
            events = Events(response)
            assert [events.until("id: ") for _ in times] == times


def test_a_stream_resumes_after_a_restart_of_nginx(front: Front) -> None:
    front.client.push(front.mesh, SNAPSHOTS[8])
    with stream(front) as response:
        events = Events(response)
        last = events.until("id: ")
        front.nginx.end()
        with pytest.raises(httpx.RemoteProtocolError):  # the connection broke, and the client notices
            events.until("id: ")
    front.nginx.start()
    observed_at = event_time(front.client.push(front.mesh, SNAPSHOTS[9]))
    with stream(front, since=last) as response:
        assert Events(response).until("id: ") == observed_at


def test_a_large_snapshot_passes_and_one_beyond_the_limit_does_not(front: Front) -> None:
    (snapshot,) = Simulator(MeshSpec(services=2000, seed=1), snapshots=1).snapshots()
    body = json.dumps(snapshot_document(snapshot))
    large = f"{front.mesh}-large"
    assert len(body) > 2**20, "this is nginx's default limit"
    answer = httpx.post(
        f"{front.url}v1/meshes/{large}/snapshots",
        content=body,
        headers={"content-type": "application/json"},
        timeout=PATIENCE_SECONDS,
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "warming_up")
    assert front.client.push(large, snapshot).sequence == 1, "the same snapshot in Arrow gives the same verdict"
    with httpx.stream("GET", f"{front.url}v1/meshes/{large}/graph", headers={"accept-encoding": "gzip"}) as graph:
        packed = b"".join(graph.iter_raw())
    assert len(json.loads(gzip.decompress(packed))["services"]) == 2000
    most = LimitSettings().max_body_bytes
    for size, status in ((most, 400), (most + 1, 413)):
        refused = httpx.post(f"{front.url}v1/meshes/{large}/snapshots", content=b"x" * size, timeout=PATIENCE_SECONDS)
        assert refused.status_code == status


def test_feedback_is_stored_and_links_lead_to_the_proxy(front: Front, incident: str) -> None:
    front.client.give_feedback(front.mesh, FeedbackDocument(incident=incident, was_incident=True))
    assert [feedback.incident for feedback in front.client.feedback(front.mesh)] == [incident]
    links = Links(external_url=front.url).urls(LinkSubject(front.mesh, incident=incident))
    assert links["dashboard_url"] == f"{front.url}#mesh={front.mesh}&incident={incident}"
    page = httpx.get(urldefrag(links["dashboard_url"]).url)
    assert page.headers["content-type"].startswith("text/html")
    assert httpx.get(links["verdict_url"]).json()["incidents"][0]["id"] == incident
    report = httpx.get(f"{front.url}v1/meshes/{front.mesh}/report", params={"incident": incident})
    assert report.status_code == 200
    assert report.text.startswith("<!doctype html>")
    front.client.withdraw_feedback(front.mesh, incident)
    assert front.client.feedback(front.mesh) == []


def test_a_mute_is_stored_and_removed(front: Front, incident: str) -> None:
    end = SNAPSHOTS[-1].observed_at + timedelta(hours=2)
    mute = front.client.mute(front.mesh, MuteDocument(services=[SNAPSHOTS[-1].node_ids[0]], end=end, reason="moved"))
    assert [one.id for one in front.client.mutes(front.mesh)] == [mute.id]
    front.client.unmute(front.mesh, mute.id)
    assert front.client.mutes(front.mesh) == []


def test_a_client_waits_for_an_absent_service_behind_a_proxy(front: Front, tmp_path: Path) -> None:
    """Another nginx stands for the service, because it restarts at once."""
    outer = Nginx(tmp_path, int(front.nginx.origin.rpartition(":")[2]), "/")
    outer.start()
    try:
        path = front.url.removeprefix(front.nginx.origin)
        with ThreadPoolExecutor(1) as beside, Client(outer.origin + path) as client:
            front.nginx.end()
            assert httpx.get(outer.origin).status_code == 502
            asked = beside.submit(client.meshes)
            front.nginx.start()
            assert front.mesh in {one.mesh for one in asked.result(60)}
    finally:
        outer.end()


def test_a_refusal_keeps_its_message(front: Front) -> None:
    with pytest.raises(UnknownMesh, match="nowhere"):
        front.client.verdict("nowhere")
