"""The service in one process without Ray: requests over HTTP, gRPC and a socket, stop, kill, restart."""

import json
import queue
import re
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import torch
from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from model.snapshot import MeshSnapshot
from serve_app.alerts.storage import AlertStorage
from serve_app.api.codec import encode_verdict, snapshot_document
from serve_app.cli import app
from serve_app.models.registry import Registry
from serve_app.models.rollout import promote
from serve_app.pipeline import Mesh, advance, options
from serve_app.runtime import replica
from serve_app.settings import Settings
from serve_app.sidecar.generated.verdicts_pb2 import LatestRequest, Service, Snapshot, Verdict, WatchRequest
from serve_app.sidecar.generated.verdicts_pb2_grpc import VerdictsStub
from serve_app.sidecar.service import SERVICE, verdict_message
from tests.builders import add_model
from tests.serve_app.collect.prometheus import standin
from tests.serve_app.collect.prometheus.istio_standin import IstioMesh
from tests.serve_app.collect.prometheus.standin import Request
from tests.serve_app.running import Alertmanager, assert_same, record_simulation
from tests.serve_app.runtime.test_closed_ports import assert_closed
from tests.serve_app.sidecar.beside import FAST, SECONDS, Sidecar, message, open_client, start_sidecar
from tests.serve_app.stores.local import local_store
from tests.timing import TIME_FACTOR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
SPEC = MeshSpec(services=20, calls_per_service=3.0, seed=4)
SNAPSHOTS = record_simulation(SPEC, 40)
POLLED = "meshes.mesh.prometheus"


@dataclass(frozen=True, slots=True)
class Pushed:
    """A sidecar that gets snapshots pushed."""

    sidecar: Sidecar
    socket: Path
    state: Path
    ask: VerdictsStub
    verdicts: list[Verdict]  # of the first twenty snapshots


@pytest.fixture(scope="module")
def pushed_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    folder = tmp_path_factory.mktemp("sidecar")
    socket, state = folder / "verdicts.sock", folder / "state"
    settings = {"store.path": str(state), "serve.max_streams": "2"}
    with start_sidecar(socket=socket, settings=settings) as sidecar, open_client(f"unix:{socket}") as ask:
        yield Pushed(sidecar, socket, state, ask, [push(ask, snapshot) for snapshot in SNAPSHOTS[:20]])


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    document: dict[str, Any] = json_format.MessageToDict(
        verdict, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return document


def pipeline_verdicts(snapshots: list[MeshSnapshot], settings: Settings) -> list[dict[str, Any]]:
    checkpoint, chosen, mesh, documents = load(), options(settings), Mesh(), []
    for snapshot in snapshots:
        verdict, mesh = advance(checkpoint, mesh, snapshot, chosen)
        documents.append(json.loads(encode_verdict(verdict).model_dump_json(exclude_none=True)))
    return documents


def refusal_of(call: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def latest(ask: VerdictsStub) -> Verdict:
    return ask.Latest(LatestRequest(), timeout=SECONDS)


def push(ask: VerdictsStub, snapshot: MeshSnapshot | Snapshot) -> Verdict:
    return ask.Push(message(snapshot) if isinstance(snapshot, MeshSnapshot) else snapshot, timeout=SECONDS)


def count_snapshots(state: Path, mesh: str = "mesh") -> tuple[int, int]:
    """Return the number of counted snapshots and of stored ones."""
    with closing(local_store(state)) as store:
        stored = store.load(mesh)
        return (stored.sequence if stored else 0), len(list(store.window(mesh)))


def test_pushed_snapshots_have_the_verdicts_of_the_pipeline(pushed_mesh: Pushed) -> None:
    came = pushed_mesh.verdicts
    assert_same([verdict_json(one) for one in came], pipeline_verdicts(SNAPSHOTS[:20], Settings()))
    assert {one.status for one in came} >= {"warming_up", "normal"}
    assert push(pushed_mesh.ask, SNAPSHOTS[19]) == came[-1]  # a repeated push has the same verdict and counts once
    with open_client(pushed_mesh.sidecar.address) as over_port:
        assert latest(over_port) == latest(pushed_mesh.ask) == came[-1]
    assert count_snapshots(pushed_mesh.state) == (20, 20)


def test_it_follows_the_registry_which_all_sidecars_share(tmp_path: Path, other_weights: Path) -> None:
    registry = Registry(str(tmp_path / "models"))
    pin = add_model(registry, other_weights)
    registry.write_rollout(promote(registry.rollout(), pin))
    settings = {"store.path": str(tmp_path / "state"), "models.registry": registry.place}
    with start_sidecar(settings=settings) as sidecar, open_client(sidecar.address) as ask:
        assert push(ask, SNAPSHOTS[0]).model == pin.version
        shown = httpx.get(f"{sidecar.url}/metrics").text
    assert f'tagae_predictions_total{{model_version="{pin.version}"' in shown


@pytest.mark.parametrize(
    ("bad", "code", "problem", "pointer", "words"),
    [
        (Snapshot(), "INVALID_ARGUMENT", "invalid-document", "/observed_at", "'observed_at' is required"),
        (
            Snapshot(observed_at=Timestamp(seconds=2_000_000_000), services=[Service(namespace="a b", name="")]),
            "INVALID_ARGUMENT",
            "invalid-document",
            "/services/0/name",
            "got",
        ),
        (
            Snapshot(observed_at=Timestamp(seconds=4_000_000_000), services=[Service(namespace="a", name="b")]),
            "INVALID_ARGUMENT",
            "ahead-of-clock",
            "/observed_at",
            "correct the clock",
        ),
        (
            Snapshot(observed_at=Timestamp(seconds=1), services=[Service(namespace="a", name="b")]),
            "FAILED_PRECONDITION",
            "stale-snapshot",
            "/observed_at",
            "send snapshots in order",
        ),
    ],
)
def test_a_bad_snapshot_is_refused_and_changes_nothing(
    pushed_mesh: Pushed, bad: Snapshot, code: str, problem: str, pointer: str, words: str
) -> None:
    before = latest(pushed_mesh.ask), count_snapshots(pushed_mesh.state)
    error = refusal_of(lambda: push(pushed_mesh.ask, bad))
    assert error.code().name == code
    assert words in error.details()
    metadata = dict(error.trailing_metadata())
    assert (metadata["tagae-problem"], metadata["tagae-pointer"]) == (f"urn:tagae:problem:{problem}", pointer)
    assert (latest(pushed_mesh.ask), count_snapshots(pushed_mesh.state)) == before


def test_http_has_the_same_verdict_and_the_page(pushed_mesh: Pushed) -> None:
    with httpx.Client(base_url=pushed_mesh.sidecar.url, trust_env=False, timeout=SECONDS) as http:
        answered = http.get("/v1/meshes/mesh/verdict").raise_for_status()
        assert verdict_message(answered.content) == latest(pushed_mesh.ask)
        assert http.post("/v1/meshes/mesh/snapshots", json=snapshot_document(SNAPSHOTS[19])).json() == answered.json()
        assert http.get("/readyz").status_code == http.get("/v1/meshes/mesh/graph").status_code == 200
        page = http.get("/").raise_for_status()
        files = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
        assert files
        assert {http.get(f"/{file}").status_code for file in files} == {200}


def test_the_metadata_of_a_call_may_name_another_mesh(pushed_mesh: Pushed) -> None:
    mesh = (("tagae-mesh", "other"),)
    snapshot = message(SNAPSHOTS[0])
    assert pushed_mesh.ask.Push(snapshot, timeout=SECONDS, metadata=mesh).sequence == 1
    assert pushed_mesh.ask.Latest(LatestRequest(), timeout=SECONDS, metadata=mesh).sequence == 1
    for name, expected in (("none", grpc.StatusCode.NOT_FOUND), ("no/mesh", grpc.StatusCode.INVALID_ARGUMENT)):
        metadata = (("tagae-mesh", name),)
        error = refusal_of(partial(pushed_mesh.ask.Latest, LatestRequest(), metadata=metadata))
        assert (error.code(), "mesh" in error.details()) == (expected, True)


def test_the_client_of_the_readme_works(pushed_mesh: Pushed) -> None:
    page = (ROOT / "serve_app" / "sidecar" / "README.md").read_text(encoding="utf-8")
    (client,) = re.findall(r"^    import grpc\n(?:    .*\n)+", page, re.MULTILINE)
    typed = textwrap.dedent(client).replace("127.0.0.1:9091", pushed_mesh.sidecar.address)
    with subprocess.Popen([sys.executable, "-c", typed], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            observed_at, status, probability = process.stdout.readline().split()
        finally:
            process.kill()
    newest = latest(pushed_mesh.ask)
    assert (observed_at, status) == (newest.observed_at.ToJsonString(), newest.status)
    assert float(probability) == round(newest.probability, 2)


def test_kubernetes_finds_it_healthy_on_both_listeners(pushed_mesh: Pushed) -> None:
    for address in (pushed_mesh.sidecar.address, f"unix:{pushed_mesh.socket}"):
        with grpc.insecure_channel(address) as channel:
            ask = health_pb2_grpc.HealthStub(channel)
            for service in ("", SERVICE):
                answer = ask.Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_the_socket_is_for_its_owner_and_their_group(pushed_mesh: Pushed) -> None:
    mode = pushed_mesh.socket.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660


def test_ray_is_not_in_the_process(pushed_mesh: Pushed) -> None:
    files = {one.path for one in pushed_mesh.sidecar.process.memory_maps()}
    assert [path for path in files if "/torch/" in path]
    assert [path for path in files if "/ray/" in path] == []


def test_watchers_are_limited_and_a_slow_one_does_not_delay_others(pushed_mesh: Pushed) -> None:
    """The slow watcher reads one verdict and then stops, until the buffers are full. Then it reads up to the newest."""
    narrow = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(pushed_mesh.sidecar.address, options=narrow) as channel:
        slow = VerdictsStub(channel).Watch(WatchRequest(), timeout=SECONDS)
        first = next(slow)
        other = pushed_mesh.ask.Watch(WatchRequest(), timeout=SECONDS)
        next(other)
        third = refusal_of(lambda: next(pushed_mesh.ask.Watch(WatchRequest(), timeout=SECONDS)))
        assert (third.code(), "max_streams" in third.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        for snapshot in SNAPSHOTS[20:]:
            assert push(pushed_mesh.ask, snapshot).sequence == next(other).sequence
        newest = latest(pushed_mesh.ask).sequence
        read = [first.sequence]
        while read[-1] < newest:
            read.append(next(slow).sequence)
        assert read == sorted(set(read))
        assert len(read) < newest - first.sequence, "no verdict was skipped: the test did not fill the buffers"
        slow.cancel()
        other.cancel()
    until = time.monotonic() + SECONDS
    while (sequence := watched_once(pushed_mesh.ask)) is None and time.monotonic() < until:
        time.sleep(0.05)  # a place is free as soon as the server knows that a watcher left
    assert sequence == newest


def watched_once(ask: VerdictsStub) -> int | None:
    """Return the first sequence that a watcher receives; None: there is no free place."""
    watched = ask.Watch(WatchRequest(), timeout=SECONDS)
    try:
        return next(watched).sequence
    except grpc.RpcError:
        assert watched.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return None
    finally:
        watched.cancel()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            *(["--set", "scorer.device=cuda"], "no working GPU"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
        (["--set", 'serve.grpc=["unix:{file}"]'], "remove it"),
        (["--set", 'serve.grpc=["unix:{socket}"]'], "another process answers"),
        (["--set", 'serve.grpc=["unix:{folder}/none/verdicts.sock"]'], "a folder that may not be written"),
        (["--set", 'serve.grpc=["unix:/tmp/' + "long" * 40 + '"]'], "limit is 107 bytes"),
        (["--set", 'serve.grpc=["9091"]'], "expected HOST:PORT or unix:PATH"),
        (["--set", 'serve.grpc=["{address}"]'], "serve.grpc: expected an address to listen on"),
        (["--set", 'serve.grpc=["0.0.0.0:0"]'], "tagae token create"),
        (["--port", "{port}"], "in use"),
        (["--host", "192.0.2.1", "--set", "serve.allow_anonymous=true"], "not of this machine"),
        (["--host", "0.0.0.0"], "tagae token create"),
    ],
)
def test_a_start_that_fails_has_a_short_error(
    pushed_mesh: Pushed, tmp_path: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    places = {"file": tmp_path / "file", "folder": tmp_path, "socket": pushed_mesh.socket}
    sidecar = pushed_mesh.sidecar
    words_of = {**places, "port": sidecar.url.rpartition(":")[2], "address": sidecar.address}
    given = [one.format(**words_of) for one in arguments]
    free = [] if "--port" in given else ["--port", "0"]
    free += [] if any("serve.grpc" in one for one in given) else ["--set", "serve.grpc=[]"]
    monkeypatch.setattr(replica, "_single", None)  # a start that fails leaves this process as it was
    result = CliRunner().invoke(app, ["serve", "--single", *free, "--set", f"store.path={tmp_path / 'state'}", *given])
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
    assert latest(pushed_mesh.ask) is not None  # the running sidecar still works


def test_the_environment_sets_window_and_percentile(tmp_path: Path) -> None:
    environment = {"TAGAE_WINDOW_SIZE": "10", "TAGAE_ANOMALY_PERCENTILE": "60"}
    with (
        start_sidecar(settings={"store.path": str(tmp_path)}, environment=environment) as sidecar,
        open_client(sidecar.address) as ask,
    ):
        came = [verdict_json(push(ask, snapshot)) for snapshot in SNAPSHOTS[:20]]
    assert count_snapshots(tmp_path) == (20, 10)
    assert_same(came, pipeline_verdicts(SNAPSHOTS[:20], Settings(model={"window_size": 10, "anomaly_percentile": 60})))


@dataclass
class Prometheus:
    """The mesh's Prometheus. If ``away`` it answers 503; if ``hanging`` it does not answer until it is let go."""

    away: bool = False
    hanging: bool = False
    hung: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    began: list[float] = field(default_factory=list)

    def __call__(self, request: Request) -> None:
        if self.hanging:
            self.hung.set()
            self.let_go.wait(SECONDS)
        if self.away:
            standin.fails(503, "overloaded")(request)
        else:
            IstioMesh(self.at)(request)

    def at(self, instant: float) -> MeshSnapshot:
        self.began.append(instant)
        return SNAPSHOTS[min(int(instant - self.began[0]), len(SNAPSHOTS) - 1)]


def read_verdicts(address: str, count: int) -> list[Verdict]:
    """Return the newest verdict and the next ones."""
    with open_client(address) as ask:
        watched = ask.Watch(WatchRequest(), timeout=2 * SECONDS)
        came = [next(watched) for _ in range(count)]
        watched.cancel()
    return came


def read_metrics(url: str) -> dict[str, float]:
    """Return the metrics of a service, by all labels except ``mesh`` and ``le``."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", trust_env=False, timeout=SECONDS).text)
    return {
        ",".join([one.name, *(value for name, value in one.labels.items() if name != "mesh")]): one.value
        for family in families
        for one in family.samples
        if "le" not in one.labels
    }


def test_metrics_count_each_snapshot_once(pushed_mesh: Pushed, tmp_path: Path) -> None:
    assert len(assert_closed(pushed_mesh.sidecar.process)) == 2  # HTTP and gRPC
    prometheus, settings = Prometheus(), {**FAST, "store.path": str(tmp_path)}
    with (
        standin.start_server(prometheus) as server,
        start_sidecar(settings={**settings, POLLED: standin.url_of(server)}) as sidecar,
        open_client(sidecar.address) as ask,
    ):
        assert read_metrics(sidecar.url)["tagae_parts_missing_total"] == 0  # also before the first verdict
        newest = read_verdicts(sidecar.address, 3)[-1]
        prometheus.away = True
        refusal_of(lambda: push(ask, Snapshot()))
        while "tagae_collector_query_failures_total,overloaded" not in (metrics := read_metrics(sidecar.url)):
            time.sleep(0.1)
        counted = metrics["tagae_mesh_sequence"]
        assert 3 <= newest.sequence <= counted <= latest(ask).sequence
    assert metrics["tagae_mesh_services"] == SPEC.services
    made = {
        name: value for name, value in metrics.items() if name.startswith(f"tagae_predictions_total,{newest.model}")
    }
    # A snapshot is first stored and then counted. A scrape may come in between.
    assert sum(made.values()) == pytest.approx(counted, abs=1)
    assert metrics["tagae_stage_seconds_count,score"] == pytest.approx(counted, abs=1)
    assert 0 < metrics["tagae_stage_seconds_sum,score"] < counted * SECONDS
    assert metrics["tagae_collector_polls_total,taken"] == pytest.approx(counted, abs=1)
    assert metrics["tagae_refusals_total,invalid-document"] == 1


def test_after_a_kill_and_a_restart_it_resumes_and_catches_up_to_a_limit(tmp_path: Path) -> None:
    """The socket that is left after the kill is used again."""
    state, socket = tmp_path / "state", tmp_path / "verdicts.sock"
    prometheus, settings = Prometheus(), {**FAST, "collector.catch_up_snapshots": "3", "store.path": str(state)}
    with standin.start_server(prometheus) as server:
        settings[POLLED] = standin.url_of(server)
        with start_sidecar(socket=socket, settings=settings) as sidecar:
            before = read_verdicts(f"unix:{socket}", 3)
            sidecar.process.kill()
            sidecar.process.wait(SECONDS)
        assert socket.exists()
        counted = count_snapshots(state)[0]
        assert counted >= before[-1].sequence >= 3
        prometheus.away = True
        with start_sidecar(socket=socket, settings=settings) as sidecar, open_client(f"unix:{socket}") as ask:
            resumed = latest(ask)  # at once, although Prometheus is down
            assert (resumed.sequence, resumed.model) == (counted, before[-1].model)
            back = resumed.observed_at.ToDatetime(UTC) + timedelta(seconds=8)
            while datetime.now(UTC) < back:  # an outage longer than the limit of catching up
                assert latest(ask) == resumed
                time.sleep(0.2)
            prometheus.away = False
            came = read_verdicts(sidecar.address, 5)
    assert [one.sequence for one in came] == [counted + i for i in range(5)]
    times = [one.observed_at.ToDatetime(UTC) for one in came]
    assert times[1] >= back - timedelta(seconds=4)  # the three newest instants, not all eight
    steps = [(after - earlier).total_seconds() for earlier, after in pairwise(times[1:])]
    assert steps[:2] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_sigterm_ends_it_while_prometheus_hangs(tmp_path: Path) -> None:
    prometheus, socket = Prometheus(), tmp_path / "verdicts.sock"
    settings = {**FAST, "store.path": str(tmp_path / "state")}
    with standin.start_server(prometheus) as server:
        settings[POLLED] = standin.url_of(server)
        with start_sidecar(socket=socket, settings=settings) as sidecar:
            with open_client(f"unix:{socket}") as ask:
                watched = ask.Watch(WatchRequest(), timeout=SECONDS)
                received = [next(watched) for _ in range(2)]
                prometheus.hanging = True
                assert prometheus.hung.wait(SECONDS)
                began = time.monotonic()
                sidecar.process.send_signal(signal.SIGTERM)
                ended = refusal_of(lambda: received.extend(watched))
                assert ended.code() is grpc.StatusCode.UNAVAILABLE
                assert "is shutting down" in ended.details()
            assert sidecar.process.wait(SECONDS) == 0
            took = time.monotonic() - began
            assert not socket.exists()
        prometheus.let_go.set()
    assert took < 20 * TIME_FACTOR, "it waited for its queries"
    assert count_snapshots(tmp_path / "state")[0] == received[-1].sequence


def test_a_fault_is_an_alert_for_each_receiver(tmp_path: Path) -> None:
    faulty, manager, posted = record_simulation(SPEC, 45, fault_from=25), Alertmanager(), queue.Queue[str]()

    def receive(request: Request) -> None:
        if request.command == "POST":
            posted.put(request.path)
        request.send(200, b"[]" if request.command == "GET" else b'{"id": 1}')

    with standin.start_server(manager) as alerts, standin.start_server(receive) as others:
        config = tmp_path / "tagae.toml"
        config.write_text(
            f"""
            store.path = "{tmp_path / "state"}"
            [[notify.alertmanagers]]
            url = "{standin.url_of(alerts)}"
            [[notify.receivers]]
            kind = "webhook"
            options.url = "{standin.url_of(others)}"
            [[notify.receivers]]
            kind = "grafana"
            options.url = "{standin.url_of(others)}"
            """
        )
        with start_sidecar("--config", str(config)) as sidecar, open_client(sidecar.address) as ask:
            for snapshot in faulty:
                verdict = push(ask, snapshot)
            alert = manager.until(lambda one: one["labels"]["mesh"] == "mesh", within=SECONDS)
            paths = {posted.get(timeout=SECONDS)}
            while len(paths) < 2:
                paths.add(posted.get(timeout=SECONDS))
            sidecar.process.send_signal(signal.SIGTERM)
            assert sidecar.process.wait(SECONDS) == 0
    assert alert["labels"]["incident"] in {one.id for one in verdict.incidents}
    assert paths == {"/", "/api/annotations"}, "a webhook and Grafana"
    with closing(local_store(tmp_path / "state")) as store:
        assert AlertStorage(store).read().meshes["mesh"].open
