"""The application over HTTP, on a real Ray Serve: it gives the pipeline's verdicts, and survives failures."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lab.simulator.mesh.topology import MeshSpec
from model.checkpoint import load
from model.snapshot import MeshSnapshot
from serve_app.api.codec import snapshot_document
from serve_app.errors import NoCapacity
from serve_app.settings import ModelSettings, NotifySettings, Settings
from tests.serve_app.running import (
    Service,
    assert_same,
    eventually,
    expected,
    problem,
    push,
    record_simulation,
)
from tests.timing import PATIENCE_SECONDS, TIME_FACTOR

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

SMALL = MeshSpec(services=30, seed=3)
CUT = MeshSpec(services=120, namespaces=6, seed=5)


def scored_parts() -> Counter[str]:
    """Return scored parts by the replica that scored them, from Ray's metrics page, which is some seconds late."""
    import ray

    (port,) = (node["MetricsExportPort"] for node in ray.nodes() if node["Alive"])
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS).text
    parts: Counter[str] = Counter()
    for labels, count in re.findall(r"^ray_tagae_parts_scored_total\{(.*)\} (\S+)$", text, re.M):
        parts[re.findall(r'scorer="([^"]+)"', labels)[0]] += int(float(count))
    return parts


@contextmanager
def beside(service: Service, name: str, **changed: dict[str, Any]) -> Iterator[Service]:
    """Run the application once more, with new processes, the same store and changed settings."""
    from ray import serve

    from serve_app.app import application
    from serve_app.runtime.local import QUIET

    groups = {group: getattr(service.settings, group).model_copy(update=values) for group, values in changed.items()}
    settings = service.settings.model_copy(update=groups)
    serve.run(application(settings), name=name, route_prefix=f"/{name}", logging_config=QUIET)
    with httpx.Client(base_url=f"{service.url}/{name}", timeout=PATIENCE_SECONDS) as http:
        yield Service(f"{service.url}/{name}", settings, http)
    serve.delete(name)


def deployments_of(settings: Settings) -> set[str]:
    """Return the names of the deployments that an application consists of."""
    from ray.serve import Application

    from serve_app.app import application

    waiting, names = [application(settings)], set()
    while waiting:
        deployment = waiting.pop()._bound_deployment
        names.add(deployment.name)
        waiting += [one for one in deployment.init_args if isinstance(one, Application)]
    return names


@pytest.fixture(scope="module")
def replicas(service: Service) -> Iterator[Service]:
    with beside(service, "replicas", scorer={"place": "replicas", "num_cpus": 0.1}) as running:
        yield running


@pytest.fixture(params=["session", "replicas"])
def in_either_place(service: Service, request: pytest.FixtureRequest) -> Service:
    """The application with each place where it can score."""
    found: Service = service if request.param == "session" else request.getfixturevalue("replicas")
    return found


@pytest.mark.parametrize(("name", "spec", "parts"), [("small", SMALL, 1), ("cut", CUT, 3)])
def test_the_service_gives_the_verdicts_of_the_pipeline(
    in_either_place: Service, name: str, spec: MeshSpec, parts: int
) -> None:
    service, name = in_either_place, f"{name}-{in_either_place.settings.scorer.place}"
    snapshots = record_simulation(spec, 26, fault_from=18)
    before = scored_parts()
    verdicts = [push(service, name, snapshot) for snapshot in snapshots]
    for came, wanted in zip(verdicts, expected(service, snapshots), strict=True):
        assert_same(came, wanted)
    assert {v["status"] for v in verdicts} >= {"warming_up", "normal", "anomalous"}
    assert verdicts[-1]["incidents"]
    assert eventually(lambda: scored_parts().total() - before.total() >= parts * len(snapshots))
    if parts > 1 and service.settings.scorer.place == "replicas":
        # of any mesh: after a burst, Serve may not use a replica for seconds
        assert eventually(lambda: len(scored_parts()) >= service.settings.scorer.num_replicas)


def test_a_mesh_is_scored_with_its_own_weights(in_either_place: Service, other_weights: Path) -> None:
    service, digest = in_either_place, load(other_weights).digest
    name = "own-replicas" if service.settings.scorer.place == "replicas" else "own-session"
    snapshots = record_simulation(CUT, 14)
    settings = service.settings.model_copy(update={"model": ModelSettings(weights=other_weights)})
    wanted = expected(Service(service.url, settings, service.http), snapshots)
    for snapshot, verdict in zip(snapshots, wanted, strict=True):
        came = push(service, name, snapshot)
        assert_same(came, verdict)
        assert (came["model"], came["missing_parts"]) == (digest, [])
    model = service.http.get("/v1/model").json()
    assert model["meshes"] == {"own-session": digest, "own-replicas": digest}
    assert model["digest"] != digest
    assert push(service, f"plain-{name}", snapshots[0])["model"] == model["digest"]


def test_scoring_replicas_run_only_where_they_are_used(service: Service, replicas: Service) -> None:
    from ray import serve

    found = serve.status().applications
    assert {"Scorer", "MetaModel"} & found["tagae"].deployments.keys() == set()
    assert sum(found["replicas"].deployments["Scorer"].replica_states.values()) > 0


def test_what_cannot_start_ends_a_first_start(service: Service) -> None:
    """Serve itself starts it again without end, so that a running service returns whenever the cause has passed."""
    from ray import serve

    from serve_app import app
    from serve_app.runtime.environment import MAX_FAILED_STARTS
    from serve_app.runtime.local import FIRST_STARTS, QUIET, run_applications

    class Broken:
        def __init__(self) -> None:
            raise NoCapacity("this place is too small")

    broken = serve.deployment(Broken, max_constructor_retry_count=MAX_FAILED_STARTS).bind()
    try:
        with pytest.raises(RuntimeError, match=r"^Broken: A replica failed to start") as caught:
            run_applications([serve.RunTarget(broken, "broken", "/broken", QUIET)])
        (left,) = re.findall(r"Retrying (\d+) more", str(caught.value))
        assert int(left) <= MAX_FAILED_STARTS - FIRST_STARTS  # a busy machine may see the third start fail only
        assert "this place is too small" in app._explain_failed_start()
    finally:
        serve.delete("broken")


@pytest.mark.parametrize(
    "notify",
    [
        {"alertmanagers": [{"url": "http://127.0.0.1:9"}]},
        {"receivers": [{"kind": "webhook", "options": {"url": "http://127.0.0.1:9"}}]},
    ],
    ids=lambda notify: next(iter(notify)),
)
def test_each_receiver_alone_has_a_notifier(service: Service, notify: dict[str, Any]) -> None:
    settings = service.settings.model_copy(update={"notify": NotifySettings(**notify)})
    assert "Notifier" in deployments_of(settings) - deployments_of(service.settings)


def test_the_newest_verdict_can_be_read_again(service: Service) -> None:
    verdicts = [push(service, "read", snapshot) for snapshot in record_simulation(SMALL, 3)]
    assert service.http.get("/v1/meshes/read/verdict").json() == verdicts[-1]
    incidents = service.http.get("/v1/meshes/read/incidents").json()
    assert incidents == {
        "observed_at": verdicts[-1]["observed_at"],
        "incidents": verdicts[-1]["incidents"],
        "next": None,
    }
    row = next(m for m in service.http.get("/v1/meshes").json() if m["mesh"] == "read")
    assert row.pop("age_seconds") >= 0
    assert row.pop("alert_budget_per_day") > 0
    assert row == {
        "mesh": "read",
        "services": 30,
        "sequence": 3,
        "observed_at": verdicts[-1]["observed_at"],
        "status": "warming_up",
        "interval_seconds": 15.0,
        "warm_up_snapshots": 10,
        "problem": "",
        "mesh_score": verdicts[-1]["mesh_score"],
        "threshold": verdicts[-1]["threshold"],
        "coverage": 1.0,
        "teams": [],
        **dict.fromkeys(("incidents", "recovering", "unseen", "notices", "silent", "hidden"), 0),
    }
    text = service.http.get("/metrics").text
    assert 'tagae_mesh_sequence{mesh="read"} 3.0' in text
    assert 'tagae_mesh_status{mesh="read",status="warming_up"} 1.0' in text


def test_a_verdict_has_its_duration(in_either_place: Service) -> None:
    body = json.dumps(snapshot_document(record_simulation(SMALL, 1)[0]))
    path = f"/v1/meshes/timed-{in_either_place.settings.scorer.place}/snapshots"
    header = in_either_place.http.post(path, content=body).headers["server-timing"]
    stages = dict(re.findall(r"(\w+);dur=([\d.]+)", header))
    assert stages.keys() == {"decode", "prepare", "score", "inference", "gather", "decide", "store", "total"}
    assert sum(float(v) for k, v in stages.items() if k not in ("total", "inference")) <= float(stages["total"])
    counted = in_either_place.http.get("/metrics").text
    for stage in ("decode", "total"):  # the others are counted where they run
        assert re.search(rf'^tagae_stage_seconds_count\{{.*stage="{stage}".*\}} [1-9]', counted, re.M)
    assert 'stage="score"' not in counted


def test_a_baseline_sets_the_past_and_not_the_clock(service: Service) -> None:
    snapshots = record_simulation(SMALL, 15)
    for snapshot in snapshots[:12]:
        response = service.http.post("/v1/meshes/based/baseline", json=snapshot_document(snapshot))
        assert (response.status_code, response.content) == (204, b"")
    problem(service.http.get("/v1/meshes/based/verdict"), 404, "unknown-mesh")
    row = next(m for m in service.http.get("/v1/meshes").json() if m["mesh"] == "based")
    assert (row["sequence"], row["status"], row["observed_at"]) == (0, "warming_up", None)
    assert row["age_seconds"] is None
    verdicts = [push(service, "based", snapshot) for snapshot in snapshots[12:]]
    assert verdicts[0]["sequence"] == 1
    assert verdicts[0]["status"] != "warming_up"
    row = next(m for m in service.http.get("/v1/meshes").json() if m["mesh"] == "based")
    assert row["age_seconds"] >= 0, "by the service's clock; the snapshots are of another year"
    for came, wanted in zip(verdicts, expected(service, snapshots, warmup=12), strict=True):
        assert_same(came, wanted)


def _push_all(service: Service, mesh: str, snapshots: Sequence[MeshSnapshot]) -> list[dict[str, Any]]:
    return [push(service, mesh, snapshot) for snapshot in snapshots]


def test_meshes_do_not_touch_each_other(service: Service) -> None:
    recordings = {f"beside-{seed}": record_simulation(MeshSpec(services=30, seed=seed), 6) for seed in (11, 12)}
    with ThreadPoolExecutor(2) as threads:
        runs = {name: threads.submit(_push_all, service, name, recordings[name]) for name in recordings}
    for name, run in runs.items():
        for came, wanted in zip(run.result(), expected(service, recordings[name]), strict=True):
            assert_same(came, wanted)


def test_a_deleted_mesh_starts_again(service: Service) -> None:
    first, second = record_simulation(SMALL, 2)
    push(service, "gone", first)
    assert service.http.delete("/v1/meshes/gone").status_code == 204
    problem(service.http.get("/v1/meshes/gone/verdict"), 404, "unknown-mesh")
    assert push(service, "gone", second)["sequence"] == 1


def test_probes_report_which_parts_work(in_either_place: Service) -> None:
    for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
        body = in_either_place.http.get(path).json()
        assert (body["status"], body["device"]) == (status, "cpu")
        assert body["kernels"] in ("reference", "cpu-avx512", "cpu-avx2")
        assert body["model"] == load(in_either_place.weights).digest


def kill(deployment: str, application: str) -> None:
    """Kill one replica of a deployment, as if its node failed."""
    import ray

    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(f"SERVE_REPLICA::{application}#{deployment}#"):
            ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]), no_restart=True)
            return
    raise AssertionError(f"no replica of {deployment}")


def find_process(role: str) -> psutil.Process:
    """Return the only process of Ray with this role, such as ``ServeReplica:tagae:Notifier``."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        found.clear()
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if role in " ".join(one.cmdline()):  # also while it says which method it runs
                    found.append(one)
        return len(found) == 1

    assert eventually(is_there), found  # a process that changes its title has none for a moment
    return found[0]


@contextmanager
def suspend(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@pytest.mark.parametrize(
    ("application", "deployment"), [("tagae", "MeshSession"), ("replicas", "MeshSession"), ("replicas", "Scorer")]
)
def test_a_lost_replica_loses_no_snapshot(
    service: Service, replicas: Service, application: str, deployment: str
) -> None:
    name, running = f"lost-{application}-{deployment}".lower(), replicas if application == "replicas" else service
    snapshots = record_simulation(CUT, 6)
    push(running, name, snapshots[0])
    kill(deployment, application)
    verdicts = [push(running, name, snapshot) for snapshot in snapshots[1:]]
    assert [v["sequence"] for v in verdicts] == [2, 3, 4, 5, 6]
    assert {v["coverage"] for v in verdicts} == {1.0}


@pytest.fixture(scope="module")
def second(service: Service) -> Iterator[Service]:
    """The application after a restart: new processes with the same store, shortest queues and one replica of each."""
    scorer = {"place": "replicas", "num_replicas": 1, "num_cpus": 0.1}
    shortest = {
        "session_replicas": 1,
        "max_ongoing_requests": 1,
        "deadline_seconds": 4.0 * TIME_FACTOR,
    }
    with beside(service, "second", scorer=scorer, serve=shortest) as running:
        yield running


def test_a_restarted_service_resumes(service: Service, second: Service) -> None:
    snapshots = record_simulation(CUT, 14, fault_from=11)
    wanted = expected(service, snapshots)
    # Alternate between two sets of processes, each with old state of the other: the store decides.
    for i, snapshot in enumerate(snapshots):
        assert_same(push(service if i < 6 or i == 9 else second, "restarted", snapshot), wanted[i], f"snapshot {i}")
    assert wanted[9]["status"] == "normal"


def test_feedback_outlives_its_session_and_a_restart(service: Service, second: Service) -> None:
    path = "/v1/meshes/feedback/feedback"
    *known, last = record_simulation(SMALL, 4)
    for snapshot in known:
        push(service, "feedback", snapshot)
    missed = {
        "services": list(last.node_ids[:2]),
        "since": known[1].observed_at.isoformat(),
        "note": "reported by a user",
    }
    answer = service.http.post(path, json=missed)
    assert answer.status_code == 200, answer.text
    kill("MeshSession", "tagae")
    for one in (service, second):
        assert one.http.get(path).json() == {"feedback": [answer.json()]}
    push(service, "feedback", last)
    assert second.http.delete(f"{path}/{answer.json()['incident']}").status_code == 204
    assert service.http.get(path).json() == {"feedback": []}, "the store decides"
    again = service.http.post(path, json=missed).json()
    assert again == answer.json() | {"given_at": again["given_at"]}
    assert again["given_at"] > answer.json()["given_at"]


def test_too_many_pushes_at_once_are_refused_and_no_snapshot_is_lost(second: Service) -> None:
    body = json.dumps(snapshot_document(record_simulation(SMALL, 1)[0]))
    meshes = [f"flood-{i}" for i in range(24)]
    with ThreadPoolExecutor(len(meshes)) as threads, suspend(find_process("ServeReplica:second:MeshSession")):
        pushes = [threads.submit(second.http.post, f"/v1/meshes/{mesh}/snapshots", content=body) for mesh in meshes]
        wait(pushes, return_when=FIRST_COMPLETED)  # one that was refused, since nothing is scored
    responses = [one.result() for one in pushes]
    statuses = dict(zip(meshes, (one.status_code for one in responses), strict=True))
    assert {200, 429} <= set(statuses.values()) <= {200, 429, 504}  # 504: waited too long, as the session was suspended
    for response in responses:
        if response.status_code == 429:
            assert problem(response, 429, "overloaded")["retry_after_seconds"] > 0
            assert int(response.headers["retry-after"]) >= 1
    kept = {m["mesh"] for m in second.http.get("/v1/meshes").json() if m["mesh"] in statuses}
    assert {mesh for mesh, status in statuses.items() if status == 200} <= kept
    assert not {mesh for mesh, status in statuses.items() if status == 429} & kept


def test_without_scorers_the_verdict_is_partial_and_in_time(second: Service) -> None:
    *known, last = record_simulation(SMALL, 12)
    for snapshot in known:
        push(second, "unscored", snapshot)
    scorer = find_process("ServeReplica:second:Scorer")
    with suspend(find_process("ServeController")):  # so that nothing replaces the scorer
        scorer.kill()
        scorer.wait(PATIENCE_SECONDS)
        started = time.monotonic()
        verdict = push(second, "unscored", last)
    assert time.monotonic() - started < 2 * TIME_FACTOR * second.settings.serve.deadline_seconds
    assert (verdict["sequence"], verdict["status"]) == (12, "partial")
    assert (verdict["coverage"], verdict["missing_parts"]) == (0.0, [0])
