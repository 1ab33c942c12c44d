"""The command line: real recordings, exit codes, messages."""

import json
import re
import signal
import subprocess
import sys
import tomllib
from http.server import ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from lab.simulator.events.operations import REASONS
from model.checkpoint import SHIPPED, load
from serve_app.api.codec import verdict_line
from serve_app.cli.options import overrides
from serve_app.errors import BadSettings
from serve_app.pipeline import Mesh, advance, options
from serve_app.recordings.reader import RecordingReader
from serve_app.settings import Settings, sources
from serve_app.settings import load as load_settings
from serve_app.settings.toml import toml_value
from tests.http_server import QuietHandler, serve_in_thread
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import Service, list_meshes
from tests.timing import PATIENCE_SECONDS

SNAPSHOTS = 30
CONTRACT = {
    "observed_at", "status", "mesh_score", "threshold", "probability", "suspects", "incidents", "coverage",
}  # fmt: skip
COMMANDS = [
    (),
    ("demo",),
    ("serve",),
    ("score",),
    ("simulate",),
    ("train",),
    ("export",),
    ("evaluate",),
    ("report",),
    ("config",),
    ("config", "show"),
]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "shop"
    result = tagae(
        "simulate", folder, "--services", 24, "--calls-per-service", 3, "--snapshots", SNAPSHOTS, "--seed", 5
    )
    assert result.exit_code == 0, result.stderr
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_explains_the_commands(command: tuple[str, ...]) -> None:
    result = tagae(*command, "--help")
    assert result.exit_code == 0
    if command not in ((), ("config",)):
        assert "Example:" in result.stdout
        assert f"tagae {' '.join(command)}" in result.stdout


def test_version() -> None:
    result = tagae("--version")
    assert (result.exit_code, result.stdout) == (0, "tagae 0.2.0\n")


def test_a_wrong_command_line_is_exit_code_2() -> None:
    for args in (("nonsense",), ("score",), ("simulate", "x", "--snapshots", 0)):
        assert tagae(*args).exit_code == 2


# simulate


def test_simulate_writes_a_recording(recording: Path) -> None:
    reader = RecordingReader(recording)
    snapshots = list(reader.snapshots())
    assert len(snapshots) == SNAPSHOTS
    assert {snapshot.num_nodes for snapshot in snapshots} <= {23, 24, 25, 26}  # services come and go
    assert reader.interval_seconds == 15.0
    assert reader.meta["seed"] == 5


def test_simulate_is_the_same_for_the_same_seed(recording: Path, tmp_path: Path) -> None:
    for seed, same in ((5, True), (6, False)):
        folder = tmp_path / str(seed)
        tagae("simulate", folder, "--services", 24, "--calls-per-service", 3, "--snapshots", 3, "--seed", seed)
        pairs = zip(RecordingReader(folder).snapshots(), RecordingReader(recording).snapshots(), strict=False)
        assert all(a.digest == b.digest for a, b in pairs) == same


def test_simulate_labels_its_faults_and_changes(tmp_path: Path) -> None:
    result = tagae(
        "simulate", tmp_path / "storm", "--services", 20, "--calls-per-service", 2, "--snapshots", 120,
        "--first-fault", 5, "--fault", "error_burst", "--severity", "critical", "--churn-per-hour", 40,
    )  # fmt: skip
    assert result.exit_code == 0
    reader = RecordingReader(tmp_path / "storm")
    snapshots = {snapshot.observed_at: snapshot for snapshot in reader.snapshots()}
    labels = reader.incidents()
    assert labels
    assert {label.kind for label in labels} == {"error_burst"}
    for label in labels:
        culprit = f"{label.details['root_cause_namespace']}/{label.root_cause_service}"
        first = snapshots[label.start]
        row = first.node_ids.index(culprit)
        assert first.node_features[row, 1] > 0.1
        assert label.details["severity"] == "critical"
        assert label.details["effect_sigmas"] > 5
        assert culprit in label.details["candidates"]
        assert culprit in label.details["affected"]
        assert label.details["recovered"] >= label.end
    assert {change.kind for _, change in reader.changes()} <= set(REASONS)
    assert reader.changes()
    assert f"faults: {len(labels)}" in result.stderr


def test_simulate_lists_the_silences_in_meta_and_in_no_event(tmp_path: Path) -> None:
    result = tagae(
        "simulate", tmp_path / "silent", "--services", 20, "--calls-per-service", 2, "--snapshots", 100,
        "--no-faults", "--churn-per-hour", 0, "--silences-per-hour", 20,
    )  # fmt: skip
    assert result.exit_code == 0
    reader = RecordingReader(tmp_path / "silent")
    snapshots = list(reader.snapshots())
    silences = reader.meta["silences"]
    assert f"silences: {len(silences)}" in result.stderr
    assert reader.changes() == []
    assert len(silences) > 2
    for silence in silences:
        during = [s for s in snapshots if silence["start"] <= s.observed_at.isoformat() < silence["end"]]
        assert during
        for snapshot in during if silence["reporter"] != "calls" else ():
            rows = [i for i, name in enumerate(snapshot.node_ids) if name in silence["services"]]
            assert not snapshot.node_observed[rows].any()


def test_simulate_can_run_without_faults(tmp_path: Path) -> None:
    assert tagae("simulate", tmp_path / "calm", "--services", 20, "--calls-per-service", 2, "--snapshots", 3,
                 "--no-faults", "--churn-per-hour", 0).exit_code == 0  # fmt: skip
    reader = RecordingReader(tmp_path / "calm")
    assert (reader.incidents(), reader.changes()) == ([], [])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--fault", "flood"), "latency_injection, error_burst"),
        (("--services", 5), "expected at least 8, got 5"),
        (("--interval", 0), "expected a time above 0"),
    ],
)
def test_simulate_refuses_the_impossible(args: tuple[object, ...], words: str, tmp_path: Path) -> None:
    result = tagae("simulate", tmp_path / "x", *args)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert not (tmp_path / "x").exists()


def test_simulate_reports_why_there_is_no_fault(tmp_path: Path) -> None:
    mesh = ("--services", 24, "--calls-per-service", 3)
    arguments = (*mesh, "--first-fault", 2, "--fault", "error_burst")
    short = tagae("simulate", tmp_path / "short", *arguments, "--snapshots", 17)
    assert short.exit_code == 0
    assert "no fault in this recording" in short.stderr
    assert "the recording has 17; use --snapshots 82" in short.stderr
    assert not RecordingReader(tmp_path / "short").incidents()
    for seed in range(3):
        longer = tagae("simulate", tmp_path / f"long-{seed}", *arguments, "--snapshots", 82, "--seed", seed)
        assert "no fault" not in longer.stderr
    level = ("--fault", "disappearance", "--severity", "minor")  # it has one level, critical
    none = tagae("simulate", tmp_path / "none", *mesh, "--snapshots", 82, "--first-fault", 2, *level)
    assert "none of these kinds and levels is possible in this mesh" in none.stderr
    calm = tagae("simulate", tmp_path / "still", *mesh, "--snapshots", 5, "--no-faults")
    assert calm.exit_code == none.exit_code == 0
    assert "no fault" not in calm.stderr


def test_simulate_keeps_existing_files(recording: Path) -> None:
    result = tagae("simulate", recording)
    assert result.exit_code == 1
    assert "choose another" in result.stderr
    assert len(list(RecordingReader(recording).snapshots())) == SNAPSHOTS


# score


def test_score_writes_only_the_verdicts_of_the_pipeline(recording: Path) -> None:
    result = tagae("score", recording)
    assert result.exit_code == 0
    checkpoint, mesh, verdicts = load(SHIPPED), Mesh(), []
    for snapshot in RecordingReader(recording).snapshots():
        verdict, mesh = advance(checkpoint, mesh, snapshot, options(Settings()))
        verdicts.append(verdict_line(verdict))
    assert result.stdout.splitlines() == verdicts
    assert f"{SNAPSHOTS} snapshots: " in result.stderr


def test_lines_meet_the_contract_of_scorers(recording: Path, tmp_path: Path) -> None:
    result = tagae("score", recording, "--output", tmp_path / "verdicts.jsonl")
    assert (result.exit_code, result.stdout) == (0, "")
    lines = [json.loads(text) for text in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert len(lines) == SNAPSHOTS
    for line in lines:
        assert set(line) >= CONTRACT
        scores = [suspect["score"] for suspect in line["suspects"]]
        assert scores == sorted(scores, reverse=True)
        assert line["status"] in ("normal", "anomalous", "warming_up", "partial")


def test_a_warm_up_replaces_warming_up(recording: Path) -> None:
    cold = [json.loads(text)["status"] for text in tagae("score", recording).stdout.splitlines()]
    warm = tagae("score", recording, "--warmup", recording)
    lines = [json.loads(text) for text in warm.stdout.splitlines()]
    assert cold[0] == "warming_up"
    assert "warming_up" not in {line["status"] for line in lines}
    assert [line["sequence"] for line in lines] == list(range(1, SNAPSHOTS + 1))


def test_weights_can_be_given(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.safetensors").write_bytes(SHIPPED.read_bytes())
    assert (
        tagae("score", recording, "--weights", tmp_path / "mine.safetensors").stdout == tagae("score", recording).stdout
    )
    (tmp_path / "bad.safetensors").write_bytes(b"no weights at all")
    result = tagae("score", recording, "--weights", tmp_path / "bad.safetensors")
    assert result.exit_code == 1
    assert "expected a checkpoint of this version" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("nowhere",), 1, "it is not a recording"),
        (("RECORDING", "--warmup", "nowhere"), 1, "it is not a recording"),
        (("RECORDING", "--weights", "nowhere.safetensors"), 1, "found none"),
        (("RECORDING", "--output", "no/such/folder/v.jsonl"), 1, "No such file or directory"),
        (("RECORDING", "--config", "nowhere.toml"), 1, "expected a readable TOML file"),
        (("RECORDING", "--set", "model.windw_size=3"), 1, "no such setting"),
        (("RECORDING", "--set", "model.window_size"), 1, "expected NAME=VALUE"),
        (("RECORDING", "--mesh", "prod"), 2, "expected with --url or --from only"),
        (("RECORDING", "--url", "http://127.0.0.1:9", "--weights", "w"), 2, "uses the service's settings"),
        (("RECORDING", "--url", "http://127.0.0.1:9"), 1, "start it with `tagae serve`"),
        (("RECORDING", "--url", "localhost"), 1, "expected http://HOST:PORT"),
    ],
)
def test_score_fails_with_one_paragraph(args: tuple[str, ...], code: int, words: str, recording: Path) -> None:
    result = tagae("score", *(str(recording) if arg == "RECORDING" else arg for arg in args))
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.startswith("tagae: ")
        assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback() -> None:
    result = tagae("--debug", "score", "nowhere")
    assert type(result.exception).__name__ == "BadRecording"


# train


@pytest.mark.slow
def test_train_makes_weights_that_score(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "mine.safetensors"
    result = tagae("train", out, "--meshes", 6, "--snapshots", 200, "--steps", 10, "--meta-steps", 10, "--jobs", 2)
    assert result.exit_code == 0, result.stderr
    assert "false alerts per day" in result.stderr
    assert load(out).provenance["simulated"] == "6 meshes of 200 snapshots"
    assert len(tagae("score", recording, "--weights", out).stdout.splitlines()) == SNAPSHOTS


def test_train_refuses_labelled_recordings(tmp_path: Path) -> None:
    tagae("simulate", tmp_path / "faulty", "--services", 20, "--calls-per-service", 2, "--snapshots", 100,
          "--first-fault", 0)  # fmt: skip
    assert RecordingReader(tmp_path / "faulty").incidents()
    result = tagae("train", tmp_path / "w.safetensors", "--recording", tmp_path / "faulty")
    assert result.exit_code == 2
    assert "expected a recording without incidents" in " ".join(result.stderr.replace("│", " ").split())


# config


def test_config_show_is_a_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_WINDOW_SIZE", "60")
    result = tagae("config", "show", "--set", "scorer.device=cpu")
    assert result.exit_code == 0
    assert "window_size = 60  # environment" in result.stdout
    assert 'device = "cpu"  # override' in result.stdout
    monkeypatch.delenv("TAGAE_WINDOW_SIZE")
    (tmp_path / "tagae.toml").write_text(result.stdout)
    read = {origin.name: origin.value for origin in sources(tmp_path / "tagae.toml") if origin.name != "config"}
    settings = sources(None, {"scorer": {"device": "cpu"}, "model": {"window_size": 60}})
    assert read == {origin.name: origin.value for origin in settings if origin.name != "config"}
    assert tomllib.loads(result.stdout)["serve"]["port"] == 8000


def test_config_show_of_a_whole_mesh_is_a_configuration_file(tmp_path: Path) -> None:
    mesh = {
        "prometheus": "http://p",
        "kubernetes": {"namespace": "shop"},
        "oauth2": {"token_url": "https://x", "client_id": "a", "client_secret_file": "/s", "parameters": {"a b": "c"}},
        "match": {"cluster": ["prod", "dev"]},
        "queues": {"orders.v1": "shop/bank"},
        "weights": "/shop.safetensors",
        "entry_points": ["shop/web"],
        "services": {"prod.shop/cart": {"mute": 'a "quoted" reason'}, "shop/*": {"sensitivity": "low"}},
        "links": {"logs": "https://logs/{service}"},
    }
    settings = {"meshes": {"shop": mesh, "shop.eu": {"entry_points": ["shop/web"]}}}
    (tmp_path / "given.toml").write_text(f"meshes = {toml_value(settings['meshes'])}", encoding="utf-8")
    result = tagae("config", "show", "--config", tmp_path / "given.toml")
    (tmp_path / "again.toml").write_text(result.stdout, encoding="utf-8")
    assert result.stdout.count("[meshes.shop]\n") == 1
    assert load_settings(tmp_path / "again.toml").meshes == load_settings(overrides=settings).meshes


def test_config_show_names_the_wrong_setting() -> None:
    result = tagae("config", "show", "--set", "model.window_size=3")
    assert result.exit_code == 1
    assert "model.window_size (from override)" in result.stderr


def test_assignments_are_read_as_toml() -> None:
    tree = overrides(
        ["model.window_size=60", "scorer.device=cpu", "alert.false_pages_per_day = 0.5"],
        {"serve.port": 0, "serve.host": None},
    )
    assert tree == {
        "model": {"window_size": 60},
        "scorer": {"device": "cpu"},
        "alert": {"false_pages_per_day": 0.5},
        "serve": {"port": 0},
    }
    with pytest.raises(BadSettings, match="expected NAME=VALUE"):
        overrides(["=3"])


# a running service


@pytest.mark.ray
def test_score_through_a_service_gives_the_same_verdicts(recording: Path, service: Service) -> None:
    here = [json.loads(text) for text in tagae("score", recording, "--warmup", recording).stdout.splitlines()]
    before = list_meshes(service)
    result = tagae("score", recording, "--warmup", recording, "--url", service.url)
    assert result.exit_code == 0, result.stderr
    there = [json.loads(text) for text in result.stdout.splitlines()]
    assert len(there) == SNAPSHOTS
    for a, b in zip(here, there, strict=True):
        assert (a["observed_at"], a["sequence"], a["status"]) == (b["observed_at"], b["sequence"], b["status"])
        assert [incident["id"] for incident in a["incidents"]] == [incident["id"] for incident in b["incidents"]]
        assert a["mesh_score"] == pytest.approx(b["mesh_score"], abs=1e-5)
    assert list_meshes(service) == before


class LosesAnswers(QuietHandler):
    """A proxy that answers 504 to the first attempt of each request, after the service processed it."""

    service: ClassVar[httpx.Client]
    seen: ClassVar[set[tuple[str, bytes]]] = set()

    def do_GET(self) -> None:
        body = self.body()
        headers = {"content-type": self.headers.get("content-type", "")}
        answer = self.service.request(self.command, self.path, content=body, headers=headers)
        is_first = (self.path, body) not in self.seen
        self.seen.add((self.path, body))
        self.send(504 if is_first else answer.status_code, b"" if is_first else answer.content, retry_after="0")

    do_POST = do_DELETE = do_GET  # the library chose the names


@pytest.mark.ray
def test_score_continues_if_answers_are_lost(recording: Path, service: Service) -> None:
    LosesAnswers.service = service.http
    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), LosesAnswers)) as url:
        result = tagae("score", recording, "--url", url, "--mesh", "late")
    assert result.exit_code == 0, result.stderr
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == list(range(1, SNAPSHOTS + 1))
    assert result.stderr.count("504 Gateway Timeout; trying again for up to ") == SNAPSHOTS + 1
    assert service.http.delete("/v1/meshes/late").is_success


@pytest.mark.ray
def test_score_keeps_a_mesh_that_has_a_name(recording: Path, service: Service) -> None:
    first = tagae("score", recording, "--url", service.url, "--mesh", "kept")
    assert first.exit_code == 0, first.stderr
    assert service.http.get("/v1/meshes/kept/verdict").json() == json.loads(first.stdout.splitlines()[-1])
    again = tagae("score", recording, "--url", service.url, "--mesh", "kept")
    assert again.stdout == first.stdout, "the stored verdicts, counted once"
    assert service.http.delete("/v1/meshes/kept").is_success


@pytest.mark.ray
def test_a_failed_run_leaves_no_mesh(recording: Path, service: Service, tmp_path: Path) -> None:
    before = list_meshes(service)
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("nodes.parquet", "meta.json"):
        (folder / name).write_bytes((recording / name).read_bytes())
    (folder / "edges.parquet").write_bytes((recording / "edges.parquet").read_bytes()[:-100])
    for warmup in ((), ("--warmup", recording)):
        result = tagae("score", folder, "--url", service.url, *warmup)
        assert result.exit_code == 1
        assert "expected a whole Parquet file" in result.stderr
    assert list_meshes(service) == before


@pytest.mark.ray
@pytest.mark.slow
def test_serve_starts_and_ends(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("tagae")), "serve", "--port", "0", "--set", f"store.path={tmp_path}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        lines = [line.strip() for line in takewhile(lambda line: "Stop with Ctrl-C" not in line, process.stderr)]
        steps = [match[1] for line in lines if (match := re.fullmatch(r"\d+ s (.*)", line))]
        assert steps[:3] == ["loading the program", "reading the settings and the weights", "starting Ray"]
        assert steps[-1] == "starting the replicas"
        assert re.fullmatch(r"ready after \d+ s", lines[-3])
        page, api = (line.split()[1] for line in lines[-2:])
        with httpx.Client(base_url=page) as http:
            assert http.get("/readyz").json()["status"] == "ready"
            assert http.get(api).headers["content-type"].startswith("text/html")
            assert "/v1/meshes" in http.get("/openapi.json").json()["paths"]
    finally:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert output == ""
