"""``tagae doctor``."""

import json
import re
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kernels.gpu
import kernels.gpu_files
from serve_app.collect.base import Finding
from serve_app.doctor.connections import check_provider, check_tools
from serve_app.errors import BadSettings, CorruptState
from serve_app.settings import Settings, StoreSettings
from serve_app.stores.opening import open_store
from serve_app.stores.row_store import SERVICE, Change
from tests.live.redis import RedisProgram
from tests.serve_app.access.oidc.provider_standin import CLIENT, SECRET, run_provider
from tests.serve_app.cli.command import tagae
from tests.serve_app.collect.prometheus.standin import start_server
from tests.serve_app.collect.tools.recorded import LINES, SEARCH, loki, serve_answers
from tests.serve_app.fake_gpu import FakeGpu, gpu
from tests.serve_app.observability.trace_collector import run_trace_collector
from tests.serve_app.stores.content import append

__all__ = ["gpu"]  # the fixture


def doctor(*options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return exit code, and the findings by subject."""
    result = tagae("doctor", "--json", *options)
    return result.exit_code, {finding["subject"]: finding for finding in json.loads(result.stdout)}


def test_the_doctor_accepts_this_machine(tmp_path: Path) -> None:
    code, found = doctor("--set", f"store.path={tmp_path}", "--set", "serve.port=0")
    assert code == 0
    assert {f["outcome"] for f in found.values()} <= {"ok", "warning"}
    assert {"python", "torch", "ray", "package kernels", "weights", "device", "store", "port"} <= found.keys()
    assert found["settings"]["found"] == "serve.port from override, store.path from override"


def test_the_doctor_reports_who_can_reach_the_service_and_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    _, found = doctor("--set", "serve.port=0")
    assert (found["login"]["outcome"], found["ray ports"]["outcome"]) == ("ok", "ok")
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.7:6379")
    code, found = doctor("--set", "serve.port=0", "--set", "serve.host=0.0.0.0")
    assert (code, found["login"]["outcome"], found["ray ports"]["outcome"]) == (1, "problem", "warning")
    assert "192.0.2.7:6379" in found["ray ports"]["found"]
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    _, found = doctor("--set", "serve.port=0", "--set", "serve.host=0.0.0.0", "--set", "serve.allow_anonymous=true")
    assert (found["login"]["outcome"], found["ray ports"]["outcome"]) == ("warning", "ok")


@pytest.mark.parametrize(
    ("setting", "subject", "words"),
    [
        ("scorer.devise=cpu", "settings", "no such setting"),
        ("scorer.device=cuda", "device", "no CUDA device"),
        ("model.weights=/nowhere/weights.safetensors", "weights", "/nowhere"),
        ("meshes.shop.weights=/nowhere/shop.safetensors", "weights of shop", "/nowhere"),
        (f"store.path={__file__}/state", "store", "not writable"),
    ],
)
def test_a_problem_is_named_with_its_remedy(setting: str, subject: str, words: str) -> None:
    if subject == "device":
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
    code, found = doctor("--set", setting)
    assert code == 1
    assert found[subject]["outcome"] == "problem"
    assert words in found[subject]["found"]
    assert found[subject]["remedy"]


def test_the_doctor_says_why_a_gpu_is_not_used(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.check = "the check of the ops on the GPU failed: attend: got nan"
    for device, code, outcome in (("auto", 0, "warning"), ("cuda", 1, "problem"), ("cpu", 0, "ok")):
        exit_code, found = doctor("--set", f"scorer.device={device}", "--set", "serve.port=0")
        assert (exit_code, found["device"]["outcome"]) == (code, outcome)
        assert ("attend: got nan" in found["device"]["found"]) is (device != "cpu")
        assert bool(found["device"]["remedy"]) is (device != "cpu")
    gpu.build_without_cuda()
    _, found = doctor("--set", "serve.port=0")
    assert (found["device"]["outcome"], "built without CUDA" in found["device"]["found"]) == ("warning", True)
    monkeypatch.setattr(kernels.gpu_files, "is_here", lambda: False)
    _, found = doctor("--set", "serve.port=0")
    assert found["device"]["outcome"] == "ok", "a machine without a GPU is no reason to worry"


def test_the_doctor_names_a_gpu_that_works(gpu: FakeGpu) -> None:
    _, found = doctor("--set", "serve.port=0")
    assert (found["device"]["outcome"], found["device"]["found"]) == ("ok", "NVIDIA Fake; scorer.device is auto")
    assert found["kernels on the GPU"]["outcome"] == "ok"


def test_a_taken_port_and_a_broken_state_file_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"no database")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, found = doctor("--set", f"store.path={tmp_path}", "--set", f"serve.port={port}")
    assert code == 0
    assert found["port"]["outcome"] == found["state"]["outcome"] == "warning"
    assert "move it away" in found["state"]["remedy"]
    assert (tmp_path / "state.sqlite").read_bytes() == b"no database", "the doctor changes nothing"


def test_a_store_in_use_has_its_meshes_counted(tmp_path: Path) -> None:
    place = StoreSettings(path=tmp_path)
    with closing(open_store(place)) as store:
        for mesh in ("prod", "staging"):
            append(store, 1, mesh=mesh, revision=0)
        _, found = doctor("--set", f"store.path={tmp_path}", "--set", "serve.port=0")
    assert (found["state"]["outcome"], found["state"]["remedy"]) == ("ok", "")
    assert found["state"]["found"].startswith("2 meshes, ")


def test_a_store_of_another_layout_is_a_problem_as_at_the_start(tmp_path: Path) -> None:
    with closing(open_store(StoreSettings(path=tmp_path))) as store:
        append(store, 1)
        store.database.write(SERVICE, Change(puts=[("layout", b"99")]))
    code, found = doctor("--set", f"store.path={tmp_path}", "--set", "serve.port=0")
    assert (code, found["state"]["outcome"]) == (1, "problem")
    with closing(open_store(StoreSettings(path=tmp_path))) as store, pytest.raises(CorruptState) as refused:
        store.meshes()
    assert found["state"]["found"] == str(refused.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"status":"ok","version":"0.2.0","kernels":null}', "a running TAGAE, version 0.2.0"),
        (b'{"type":"urn:tagae:problem:no-capacity","status":503}', "a TAGAE that is starting"),
    ],
)
def test_a_running_service_on_the_port_is_no_warning(tmp_path: Path, answer: bytes, words: str) -> None:
    with start_server(lambda request: request.send(200, answer)) as server:
        port = server.server_address[1]
        _, found = doctor("--set", f"store.path={tmp_path}", "--set", f"serve.port={port}")
    assert (found["port"]["outcome"], found["port"]["remedy"]) == ("ok", "")
    assert words in found["port"]["found"]
    with start_server(lambda request: request.send(200, b'["another program"]')) as server:
        port = server.server_address[1]
        _, found = doctor("--set", f"store.path={tmp_path}", "--set", f"serve.port={port}")
    assert found["port"]["outcome"] == "warning"


def test_it_ends_with_a_verdict_and_the_one_thing_to_do_first(tmp_path: Path) -> None:
    def last_lines(*options: str) -> list[str]:
        result = tagae("doctor", *options, columns=300)
        assert "weights" in result.stdout
        assert "torch" in result.stdout
        return [line.strip() for line in result.stdout.splitlines()[-2:]]

    store = ("--set", f"store.path={tmp_path}", "--set", "serve.port=0")
    verdict, first = last_lines(*store, "--set", "model.threads=512")
    assert re.fullmatch(r"Verdict: the service can run here \(\d warnings?\)", verdict)
    assert first.startswith("First: cores: lower model.threads")
    verdict, first = last_lines(*store, "--set", "model.threads=512", "--set", "serve.host=0.0.0.0")
    assert re.match(r"Verdict: the service cannot run here with these settings \(1 problem, \d warning", verdict)
    assert first.startswith("First: login: set serve.tokens_file"), "a problem comes before warnings"


def test_a_missing_client_of_redis_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)  # as if it were not installed
    code, found = doctor("--set", "store.kind=redis", "--set", "store.url=redis://127.0.0.1/0")
    assert (code, found["store"]["outcome"]) == (1, "problem")
    assert "expected the Python client of Redis" in found["store"]["found"]
    assert found["store"]["remedy"] == "pip install 'tagae[redis]'"
    with pytest.raises(BadSettings, match=r"tagae\[redis\]"):
        open_store(StoreSettings(kind="redis", url="redis://127.0.0.1/0"))


def test_the_doctor_accepts_a_safe_redis(redis_program: RedisProgram) -> None:
    _, found = doctor("--set", "store.kind=redis", "--set", f"store.url={redis_program.url}", "--set", "serve.port=0")
    assert {found[subject]["outcome"] for subject in ("store", "persistence", "memory")} == {"ok"}
    assert found["persistence"]["found"].startswith("append-only file, appendfsync always")


def test_the_doctor_asks_the_collector_of_traces(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("x-api-key: s3cret", encoding="ascii")
    with run_trace_collector() as collector:
        chosen = ["--set", f"traces.endpoint={collector.url}", "--set", "serve.port=0"]
        code, found = doctor(*chosen, "--set", f"traces.headers_file={tmp_path}/headers")
        assert (code, found["traces"]["outcome"]) == (0, "ok")
        assert found["traces"]["found"].startswith(f"{collector.url}/v1/traces takes spans")
        assert collector.headers[-1]["x-api-key"] == "s3cret"
        collector.status = 401
        code, found = doctor(*chosen)
        assert (code, found["traces"]["outcome"]) == (0, "warning")
        assert "answers spans with 401" in found["traces"]["found"]
    code, found = doctor(*chosen)
    assert (code, found["traces"]["outcome"]) == (0, "warning")
    assert "does not answer" in found["traces"]["found"]
    code, found = doctor(*chosen, "--set", f"traces.headers_file={tmp_path}/none")
    assert (code, found["traces"]["outcome"]) == (1, "problem")


def find_provider(tmp_path: Path, issuer: str, secret: str = SECRET, **notify: Any) -> list[Finding]:
    file = tmp_path / "secret"
    file.write_text(secret)
    oidc = {
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret_file": file,
        "groups": {"sre": {"scopes": ["read"]}},
    }
    return list(check_provider(Settings(serve={"oidc": oidc}, notify=notify)))


def test_the_addresses_to_register_are_named(tmp_path: Path) -> None:
    with run_provider() as provider:
        found, address = find_provider(tmp_path, provider.url, external_url="https://mesh.example/tagae")
    assert (found.outcome, address.outcome) == ("ok", "ok")
    assert "keys: 1" in found.found
    assert "https://mesh.example/tagae/login/callback" in address.found


def test_each_mistake_is_a_problem(tmp_path: Path) -> None:
    url = {"external_url": "https://mesh.example"}
    with run_provider() as provider:
        (missing,) = find_provider(tmp_path, provider.url)
        (short,) = find_provider(tmp_path, provider.url, secret="short", **url)
        (other,) = find_provider(tmp_path, provider.url + "/", **url)
    (gone,) = find_provider(tmp_path, provider.url, **url)
    assert {one.outcome for one in (missing, short, other, gone)} == {"problem"}
    assert "notify.external_url" in missing.found
    assert "at least 24" in short.found
    assert "expected the issuer" in other.found
    assert "unreachable" in gone.found


def test_without_a_provider_there_is_nothing_to_check() -> None:
    assert list(check_provider(Settings())) == []


def test_logs_and_traces_are_asked_with_the_query_of_the_mesh() -> None:
    with serve_answers({LINES: loki(), SEARCH: 400}) as (url, asked):
        meshes = {"shop": {"logs": {"loki": url}, "traces": {"tempo": url}}, "other": {}}
        logs, traces = check_tools(Settings(meshes=meshes))
    host = url.removeprefix("http://")
    assert (logs.subject, logs.outcome, logs.found) == ("logs of shop", "ok", f"Loki at {host} takes the query")
    assert (traces.subject, traces.outcome) == ("traces of shop", "warning")
    assert f"Tempo at {host} refused the query (400)" in traces.found
    assert "<b>no</b>" in traces.found, "doctor quotes the server, unlike the page"
    assert len(asked) == 2
