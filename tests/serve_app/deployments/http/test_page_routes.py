"""Routes of the page on a running service: its files, columns, maps, and the stream of verdicts."""

import gzip
import json
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.app import GRACE_SECONDS
from serve_app.collect.loop import CollectorState
from serve_app.deployments.http.routes.views import source_document
from serve_app.deployments.http.streams import TICK_SECONDS, WAIT_SECONDS
from serve_app.settings import Settings
from serve_app.web.assets import files
from serve_app.web.documents import (
    ComparisonDocument,
    DetailsDocument,
    MapDocument,
    ServicesDocument,
    TimelineDocument,
)
from tests.serve_app.running import Service, failing, problem, push, record_simulation, start_service
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

SPEC = MeshSpec(services=30, seed=3)
SNAPSHOTS = record_simulation(SPEC, 24, fault_from=16)
MESH = "looked-at"
PATH = f"/v1/meshes/{MESH}"
STREAM = "/v1/meshes/{}/verdicts/stream"


def text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def at(index: int) -> str:
    return text(SNAPSHOTS[index].observed_at)


@pytest.fixture(scope="module")
def verdicts(service: Service) -> list[dict[str, Any]]:
    """Verdicts of a mesh in which a service fails."""
    found = [push(service, MESH, snapshot) for snapshot in SNAPSHOTS]
    assert found[-1]["incidents"]
    return found


# columns and maps


def test_the_timeline_matches_the_verdicts(service: Service, verdicts: list[dict[str, Any]]) -> None:
    response = service.http.get(f"{PATH}/timeline")
    timeline = TimelineDocument.model_validate_json(response.content)
    columns = response.json()
    for name in ("observed_at", "sequence", "status", "mesh_score", "threshold", "probability", "coverage"):
        assert columns[name] == [verdict[name] for verdict in verdicts], name
    assert failing(SPEC) in {one.service for one in timeline.incidents}
    assert all(
        took is not None and 1 < took < 1e3 * service.settings.serve.deadline_seconds for took in timeline.milliseconds
    )
    later = service.http.get(f"{PATH}/timeline", params={"since": at(20), "limit": 2}).json()
    assert later["observed_at"] == [at(21), at(22)]
    problem(service.http.get("/v1/meshes/nowhere/timeline"), 404, "unknown-mesh")
    problem(service.http.get(f"{PATH}/timeline", params={"sinec": at(0)}), 422, "invalid-parameter")


def test_the_map_is_the_graph_with_positions(service: Service, verdicts: list[dict[str, Any]]) -> None:
    for when in ({}, {"at": at(18)}):
        response = service.http.get(f"{PATH}/map", params=when)
        assert (response.status_code, response.headers["content-encoding"]) == (200, "gzip")
        drawn_map = MapDocument.model_validate_json(response.content)
        graph = service.http.get(f"{PATH}/graph", params=when).json()
        verdict = service.http.get(f"{PATH}/verdict", params=when).json()
        assert verdict == (verdicts[18] if when else verdicts[-1])
        assert text(drawn_map.observed_at) == graph["observed_at"] == verdict["observed_at"]
        names = [f"{one['namespace']}/{one['name']}" for one in graph["services"]]
        assert drawn_map.nodes.name == [*names, *graph["vanished"]]
        for mine, theirs in zip(
            drawn_map.nodes.deviation, [one["deviation"] for one in graph["services"]], strict=False
        ):
            assert mine == pytest.approx(theirs, abs=0.01)
        calls = {(one["source"], one["destination"]): one["requests_per_second"] for one in graph["calls"]}
        drawn = zip(
            drawn_map.edges.source, drawn_map.edges.destination, drawn_map.edges.requests_per_second, strict=True
        )
        assert {(drawn_map.nodes.name[s], drawn_map.nodes.name[d]): rate for s, d, rate in drawn} == pytest.approx(
            calls, abs=0.01
        )
    plain = service.http.get(f"{PATH}/map", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == service.http.get(f"{PATH}/map").json()


@pytest.mark.usefixtures("verdicts")
def test_services_are_found_by_a_part_of_their_names(service: Service) -> None:
    name = failing(SPEC)
    found = ServicesDocument.model_validate_json(
        service.http.get(f"{PATH}/services", params={"text": name[1:-1].upper()}).content
    )
    assert name in found.services
    assert found.total == len(found.services) < len(SNAPSHOTS[-1].node_ids)
    problem(service.http.get("/v1/meshes/nowhere/services"), 404, "unknown-mesh")
    problem(service.http.get(f"{PATH}/services", params={"limit": 0}), 422, "invalid-parameter")


@pytest.mark.parametrize("route", ["map", "graph", "verdict"])
@pytest.mark.usefixtures("verdicts")
def test_an_instant_that_is_not_stored_is_unknown(service: Service, route: str) -> None:
    other = text(SNAPSHOTS[0].observed_at + timedelta(seconds=1))
    problem(service.http.get(f"{PATH}/{route}", params={"at": other}), 404, "unknown-instant")
    problem(service.http.get(f"{PATH}/{route}", params={"at": "yesterday"}), 422, "invalid-parameter")
    problem(service.http.get(f"/v1/meshes/nowhere/{route}", params={"at": other}), 404, "unknown-mesh")


@pytest.mark.usefixtures("verdicts")
def test_comparisons_are_answered(service: Service) -> None:
    def compared(*ends: str) -> httpx.Response:
        names = ("first_from", "first_to", "second_from", "second_to")
        return service.http.get(f"{PATH}/comparison", params=dict(zip(names, ends, strict=False)))

    found = ComparisonDocument.model_validate_json(compared(at(0), at(15), at(17), at(23)).content)
    assert (found.first_snapshots, found.second_snapshots) == (16, 7)
    assert (found.rows[0].service, found.rows[0].metric) == (failing(SPEC), "error_rate")
    detail = problem(compared("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", at(17), at(23)), 422, "invalid-parameter")
    assert f"the kept snapshots are {at(0)} to {at(23)}" in detail["detail"]
    problem(compared(at(0), at(15), at(17)), 422, "invalid-parameter")


@pytest.mark.usefixtures("verdicts")
def test_details_of_a_service_and_of_its_calls_are_answered(service: Service) -> None:
    snapshot, name = SNAPSHOTS[-1], failing(SPEC)

    def ask(**query: str) -> httpx.Response:
        return service.http.get(f"{PATH}/details", params=query)

    found = DetailsDocument.model_validate_json(ask(service=name).content)
    assert (text(found.observed_at), found.state, len(found.times)) == (at(23), "scored", len(SNAPSHOTS))
    assert found.incidents[0].open
    caller = found.callers[0].service
    calls = DetailsDocument.model_validate_json(ask(service=name, source=caller, at=at(18)).content)
    assert (calls.source, text(calls.observed_at)) == (caller, at(18))
    other_service = next(one for one in snapshot.node_ids if one not in {name, *(c.service for c in found.callers)})
    for wrong in ({"service": "shop/nobody"}, {"service": name, "source": other_service}, {}, {"service": "nobody"}):
        problem(ask(**wrong), 422, "invalid-parameter")
    problem(ask(service=name, at="yesterday"), 422, "invalid-parameter")
    other = text(SNAPSHOTS[0].observed_at + timedelta(seconds=1))
    problem(ask(service=name, at=other), 404, "unknown-instant")
    problem(service.http.get("/v1/meshes/nowhere/details", params={"service": name}), 404, "unknown-mesh")


def test_a_report_is_one_page_that_may_not_run_scripts(service: Service, verdicts: list[dict[str, Any]]) -> None:
    worst = verdicts[-1]["incidents"][0]
    for wanted in ({}, {"incident": worst["id"]}):
        response = service.http.get(f"{PATH}/report", params=wanted)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/html")
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert worst["id"] in response.text
        assert failing(SPEC).split("/")[1] in response.text
    text = service.http.get(f"{PATH}/report", params={"format": "markdown"})
    assert text.headers["content-type"].startswith("text/markdown")
    assert text.text.startswith("# ")
    assert worst["id"] in text.text
    problem(service.http.get(f"{PATH}/report", params={"format": "pdf"}), 422, "invalid-parameter")
    problem(service.http.get(f"{PATH}/report", params={"incident": "nobody"}), 404, "unknown-incident")
    problem(service.http.get("/v1/meshes/nowhere/report"), 404, "unknown-mesh")


@pytest.mark.usefixtures("verdicts")
def test_the_source_of_snapshots(service: Service) -> None:
    nothing: dict[str, Any] = {"handed_on": None, "stale_seconds": 0.0, "masked": [], "incomplete": "", "problem": ""}
    assert service.http.get(PATH).json()["source"] == {"collected": False, "remarks": [], "replayed": None, **nothing}
    problem(service.http.get("/v1/meshes/Not%20A%20Name"), 400, "bad-mesh-name")


# files


def test_the_page_and_its_files_are_sent_with_a_policy(service: Service) -> None:
    response = service.http.get("/")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = response.headers["content-security-policy"]
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert response.headers["cache-control"] == "no-cache"
    digest, found = files()
    named = re.findall(r'(?:href|src)="([^"#]+)"', response.text)
    assert len(named) > 10
    named.remove("docs")  # a link
    for path in {*(f"/{name}" for name in named), *(f"/static/{digest}/{name}" for name in found)}:
        file = service.http.get(path)
        assert file.status_code == 200, path
        assert file.headers["content-encoding"] == "gzip"
        assert "immutable" in file.headers["cache-control"]
        assert file.headers["x-content-type-options"] == "nosniff"
        assert file.content == found[path.removeprefix(f"/static/{digest}/")].plain
    for path in (f"/static/{'0' * 16}/main.js", f"/static/{digest}/nothing.js", f"/static/{digest}/../files.py"):
        problem(service.http.get(path), 404, "not-found")
    for method in ("HEAD", "POST"):
        assert service.http.request(method, "/").status_code == 405


def test_a_client_without_gzip_gets_plain_bytes(service: Service) -> None:
    digest, found = files()
    for path, name in (("/", None), (f"/static/{digest}/main.js", "main.js")):
        response = service.http.get(path, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in response.headers
        assert response.headers["vary"] == "accept-encoding"
        assert name is None or response.content == found[name].plain
    packed = b"".join(raw(service, f"/static/{digest}/main.js"))
    assert gzip.decompress(packed) == found["main.js"].plain


def test_a_file_has_the_coding_that_the_client_accepts(service: Service) -> None:
    digest, found = files()
    path = f"/static/{digest}/main.js"
    for accepted, coding, content in (
        ("gzip, deflate, br, zstd", "br", found["main.js"].brotli),
        ("br;q=1.0, gzip;q=0.5", "br", found["main.js"].brotli),
        ("gzip, br;q=0", "gzip", found["main.js"].gzip),
        ("brotli, GZIP", "gzip", found["main.js"].gzip),
    ):
        with service.http.stream("GET", path, headers={"accept-encoding": accepted}) as response:
            assert response.headers["content-encoding"] == coding, accepted
            assert b"".join(response.iter_raw()) == content, accepted


def test_files_pass_the_same_checks_as_all_requests(service: Service) -> None:
    path = f"/static/{files()[0]}/main.js"
    problem(service.http.get(path, headers={"host": "evil.example"}), 421, "wrong-host")
    for method in ("HEAD", "POST"):  # the application has no files; the gate sends them
        assert service.http.request(method, path).status_code == 404
    assert service.http.get(path).headers["server-timing"].startswith("total;dur=")


def raw(service: Service, path: str) -> Iterator[bytes]:
    with service.http.stream("GET", path, headers={"accept-encoding": "gzip"}) as response:
        yield from response.iter_raw()


# the stream of verdicts


class Events:
    """A stream that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-accel-buffering"] == "no", "a proxy must not buffer events"
        self._lines = response.iter_lines()

    def next(self, kind: str = "verdict") -> tuple[str, dict[str, Any]]:
        """Return the id and the data of the next event of a kind."""
        event: dict[str, str] = {}
        for line in self._lines:
            name, _, value = line.partition(": ")
            if line and name in ("id", "event", "data"):
                event[name] = value
            elif not line and "data" in event:
                assert event["event"] in ("verdict", "changed")
                if event["event"] == kind:
                    return event.get("id", ""), json.loads(event["data"])
                event = {}
        raise AssertionError("the stream ended")


def is_soon(since: float, request_seconds: float) -> bool:
    """Whether less time has passed than to the next poll, or, on a slow machine, than a few such requests take."""
    return time.perf_counter() - since < max(0.8 * WAIT_SECONDS * TIME_FACTOR, 10 * request_seconds)


@contextmanager
def open_stream(service: Service, mesh: str, since: str | None = None, last: str | None = None) -> Iterator[Events]:
    headers = {} if last is None else {"last-event-id": last}
    query = {} if since is None else {"since": since}
    with (
        httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as client,
        client.stream("GET", STREAM.format(mesh), params=query, headers=headers) as response,
    ):
        yield Events(response)


def test_a_stream_begins_with_the_newest_verdict_and_continues_with_later_ones(service: Service) -> None:
    mesh = "streamed"
    pushed = [push(service, mesh, snapshot) for snapshot in SNAPSHOTS[:3]]
    with open_stream(service, mesh) as events, open_stream(service, mesh) as others:
        for stream in (events, others):
            assert stream.next() == (pushed[-1]["observed_at"], pushed[-1])
        for snapshot in SNAPSHOTS[3:6]:
            began = time.perf_counter()
            verdict = push(service, mesh, snapshot)
            answered = time.perf_counter()
            for stream in (events, others):
                assert stream.next() == (verdict["observed_at"], verdict)
            assert is_soon(answered, answered - began), "an event does not wait for a poll"


def test_a_stream_says_that_people_changed_something(service: Service) -> None:
    mesh = "changed"
    verdict = push(service, mesh, SNAPSHOTS[0])
    with open_stream(service, mesh) as events, open_stream(service, mesh, verdict["observed_at"]) as again:
        assert events.next() == (verdict["observed_at"], verdict)
        assert again.next("changed") == ("", {}), "something may have changed while there was no stream"
        end = (SNAPSHOTS[0].observed_at + timedelta(hours=1)).isoformat()
        began = time.perf_counter()
        service.http.post(f"/v1/meshes/{mesh}/mutes", json={"end": end, "reason": "repair"}).raise_for_status()
        answered = time.perf_counter()
        for stream in (events, again):
            assert stream.next("changed") == ("", {})
        assert is_soon(answered, answered - began), "it does not wait for a poll"
        verdict = push(service, mesh, SNAPSHOTS[1])
        assert events.next() == (verdict["observed_at"], verdict)


def test_a_reader_that_leaves_ends_no_other_stream(service: Service) -> None:
    """Streams share the calls to a session. The first reader makes the call that the second one waits for."""
    mesh = "left"
    with ExitStack() as readers:
        verdict = push(service, mesh, SNAPSHOTS[0])
        first = readers.enter_context(open_stream(service, mesh))
        assert first.next()[1] == verdict
        time.sleep(2 * TICK_SECONDS)  # the first stream waits
        with open_stream(service, mesh) as second:
            assert second.next()[1] == verdict
            time.sleep(2 * TICK_SECONDS)  # both wait
            readers.close()
            time.sleep(2 * TICK_SECONDS)
            verdict = push(service, mesh, SNAPSHOTS[1])
            assert second.next()[1] == verdict


def test_a_reconnected_stream_gets_missed_verdicts_once(service: Service) -> None:
    mesh = "missed"
    pushed = [push(service, mesh, snapshot) for snapshot in SNAPSHOTS[:5]]
    times = [verdict["observed_at"] for verdict in pushed]
    for how in ({"since": times[1]}, {"last": times[1]}, {"since": times[0], "last": times[1]}):
        with open_stream(service, mesh, **how) as events:
            assert [events.next() for _ in range(3)] == list(zip(times[2:], pushed[2:], strict=True)), how
    with open_stream(service, mesh, since=times[-1]) as events:
        verdict = push(service, mesh, SNAPSHOTS[5])
        assert events.next() == (verdict["observed_at"], verdict), "the stream repeats no known event"
    with open_stream(service, mesh, last="an id of another service") as events:
        assert events.next()[0] == verdict["observed_at"]


def test_a_stream_ends_when_its_mesh_is_deleted(service: Service) -> None:
    push(service, "soon-gone", SNAPSHOTS[0])
    with open_stream(service, "soon-gone") as events:
        events.next()
        began = time.perf_counter()
        assert service.http.delete("/v1/meshes/soon-gone").status_code == 204
        answered = time.perf_counter()
        with pytest.raises(AssertionError, match="ended"):
            events.next()
        assert is_soon(answered, answered - began), "the stream ends at once, not at the next poll"


def test_a_mesh_without_verdicts_has_no_stream(service: Service) -> None:
    for query in ({}, {"since": at(0)}):
        problem(service.http.get(STREAM.format("nowhere"), params=query), 404, "unknown-mesh")
    problem(service.http.get(STREAM.format("Not%20A%20Name")), 400, "bad-mesh-name")
    problem(service.http.get(STREAM.format("nowhere"), params={"since": "now"}), 422, "invalid-parameter")


def test_streams_are_limited_and_a_closed_stream_makes_room(service: Service) -> None:
    most = service.settings.serve.max_streams
    push(service, "crowded", SNAPSHOTS[0])
    path = STREAM.format("crowded")
    with httpx.Client(
        base_url=service.url, timeout=PATIENCE_SECONDS, limits=httpx.Limits(max_connections=4 * most)
    ) as client:

        def ask() -> httpx.Response:
            return client.send(client.build_request("GET", path), stream=True)

        with ThreadPoolExecutor(
            most + 6
        ) as threads:  # all at once: no stream exceeds the limit while another one is opened
            answers = list(threads.map(lambda _: ask(), range(most + 6)))
        opened = [one for one in answers if one.status_code == 200]
        assert len(opened) == most
        for refused in (one for one in answers if one.status_code != 200):
            refused.read()
            assert problem(refused, 429, "overloaded")["retry_after_seconds"] > 0
        assert push(service, "crowded", SNAPSHOTS[1])["sequence"] == 2, "pushes are still accepted"
        for one in opened:
            one.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (again := ask()).status_code == 429:
            again.close()
            assert time.monotonic() < deadline, "a closed stream still holds a place"
        assert again.status_code == 200
        again.close()


@pytest.mark.slow
def test_an_open_stream_delays_the_end_of_a_service_by_seconds_only(tmp_path: Path) -> None:
    with (
        start_service("--port", "0", "--set", f"store.path={tmp_path}", "--set", "scorer.device=cpu") as (process, url),
        httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http,
    ):
        started = [process, *process.children(recursive=True)]
        own = Service(url, Settings(), http)
        push(own, "ending", SNAPSHOTS[0])
        with open_stream(own, "ending") as events:
            events.next()
            began = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            _, alive = psutil.wait_procs(started, timeout=PATIENCE_SECONDS)
            took = time.perf_counter() - began
    assert not alive
    assert took < GRACE_SECONDS + 10 * TIME_FACTOR, "a session first waits for its verdict"


# without a service


def test_a_collected_mesh_has_the_state_of_its_collector() -> None:
    found = CollectorState("shop", handed_on=1.5, stale_seconds=3.0, masked=("cpu",), problem="no answer")
    document = source_document(found)
    assert document.collected
    assert (document.handed_on and document.handed_on.timestamp(), document.stale_seconds) == (1.5, 3.0)
    assert (list(document.masked), document.problem) == (["cpu"], "no answer")
    assert not source_document(None).collected


def test_outside_the_demo_there_are_no_controls(service: Service) -> None:
    problem(service.http.get("/demo/show"), 404, "not-found")
    problem(service.http.post("/demo/keys", json={"key": "error_burst"}), 404, "not-found")
    assert service.http.get("/demo/").status_code == 404
