"""Every rendering against the schemas of Kubernetes, KubeRay and Serve, against our settings, and in itself."""

import copy
import importlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.serve._private.constants import PROXY_MIN_DRAINING_PERIOD_S
from ray.serve.schema import ServeDeploySchema

from serve_app.access.routes import OPEN
from serve_app.app import LIGHT_CPUS, Arguments
from serve_app.runtime.environment import RAY_ENVIRONMENT
from serve_app.settings import Settings, load
from tests.cluster.pods import ray_resources
from tests.cluster.rendering import CLUSTER, ONE_POD, Manifests
from tests.cluster.schemas import ROOT, check, checkable, needs_crd, pods
from tests.http_server import QuietHandler, serve_in_thread
from tests.live.programs import free_ports

SCRAPE = yaml.safe_load((ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text(encoding="utf-8"))


def mounts(container: dict[str, Any]) -> dict[str, str]:
    """The names of volumes by mounted path."""
    return {one["mountPath"]: one["name"] for one in container["volumeMounts"]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


def settings_of(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings that the service has there: of its environment and, with Serve, of the arguments."""
    (container,) = next(iter(manifests.templates.values()))["spec"]["containers"]
    for name, value in environment(container).items():
        if name.startswith("TAGAE_"):
            monkeypatch.setenv(name, value)
    if not manifests.is_ray_service:
        return load()
    (application,) = manifests.serve_config["applications"]
    return Arguments(**application["args"])


def test_documents_fit_the_schemas(manifests: Manifests) -> None:
    for document in checkable(manifests.documents):
        check(document)


@needs_crd
@pytest.mark.parametrize(
    "path",
    [
        ("spec", "serveConfigV3"),
        ("spec", "rayClusterConfig", "workerGroupSpec"),
        ("spec", "rayClusterConfig", "gcsFaultToleranceOptions", "redisAdress"),
        ("spec", "serveService", "kin"),
    ],
)
def test_a_misspelt_key_of_a_ray_service_is_refused(path: tuple[str, ...]) -> None:
    service = copy.deepcopy(CLUSTER.one("RayService"))
    *parents, last = path
    place = service
    for step in parents:
        place = place[step]
    place[last] = {}
    with pytest.raises(jsonschema.ValidationError, match=last):
        check(service)


def test_a_misspelt_key_of_another_document_is_refused() -> None:
    deployment = copy.deepcopy(ONE_POD.one("Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="livenesProbe"):
        check(deployment)


# Fields outside of pods that a server with KubeRay 1.5.1 accepted strictly. Another one may be of a later version.
FIELDS_OF_1_5 = {
    "deploymentUnhealthySecondThreshold",
    "rayClusterConfig.authOptions.mode",
    "rayClusterConfig.autoscalerOptions.idleTimeoutSeconds",
    "rayClusterConfig.autoscalerOptions.resources",
    "rayClusterConfig.autoscalerOptions.securityContext",
    "rayClusterConfig.autoscalerOptions.volumeMounts",
    "rayClusterConfig.enableInTreeAutoscaling",
    "rayClusterConfig.gcsFaultToleranceOptions.redisAddress",
    "rayClusterConfig.gcsFaultToleranceOptions.redisPassword",
    "rayClusterConfig.headGroupSpec.rayStartParams",
    "rayClusterConfig.headGroupSpec.template",
    "rayClusterConfig.rayVersion",
    "rayClusterConfig.workerGroupSpecs.groupName",
    "rayClusterConfig.workerGroupSpecs.maxReplicas",
    "rayClusterConfig.workerGroupSpecs.minReplicas",
    "rayClusterConfig.workerGroupSpecs.rayStartParams",
    "rayClusterConfig.workerGroupSpecs.replicas",
    "rayClusterConfig.workerGroupSpecs.template",
    "rayClusterDeletionDelaySeconds",
    "serveConfigV2",
    "serveService",
    "serviceUnhealthySecondThreshold",
    "upgradeStrategy.type",
}


def fields(value: Any, name: str = "") -> Iterator[str]:
    """The fields of a RayService, down to fields of Kubernetes and to free text."""
    if name in FIELDS_OF_1_5 or not isinstance(value, dict | list):
        yield name
    elif isinstance(value, list):
        for one in value:
            yield from fields(one, name)
    else:
        for key, one in value.items():
            yield from fields(one, f"{name}.{key}".lstrip("."))


def test_a_ray_service_has_only_fields_that_kuberay_1_5_knows(ray_service: Manifests) -> None:
    assert set(fields(ray_service.one("RayService")["spec"])) <= FIELDS_OF_1_5


@needs_crd
def test_an_unknown_mode_of_authentication_is_refused() -> None:
    service = copy.deepcopy(CLUSTER.one("RayService"))
    service["spec"]["rayClusterConfig"]["authOptions"]["mode"] = "tokens"
    with pytest.raises(jsonschema.ValidationError, match="tokens"):
        check(service)


def test_settings_and_the_serve_config_are_valid(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(manifests, monkeypatch)
    assert settings.serve.host == "0.0.0.0"
    assert settings.serve.tokens_file is not None
    if not manifests.is_ray_service:
        assert settings.scorer.device == "cpu"
        return
    (application,) = ServeDeploySchema.model_validate(manifests.serve_config).applications
    module, _, name = application.import_path.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert settings.store.kind == "redis"
    claims = {one.name for one in application.deployments}
    of_scoring = {"MetaModel", "Scorer"} if settings.scorer.place == "replicas" else set()
    assert claims == {"Collector", "Ingress", "MeshSession"} | of_scoring
    front, scorer = settings.serve, settings.scorer
    limits = [
        (front.ingress_replicas, front.max_ingress_replicas),
        (front.session_replicas, front.max_session_replicas),
    ]
    if scorer.place == "replicas":
        limits += [(scorer.num_replicas, scorer.max_replicas), (scorer.meta_replicas, scorer.max_meta_replicas)]
    assert all(most is not None and fewest <= most for fewest, most in limits), "every deployment may scale"
    assert settings.collector.replicas in (1, 2)


def test_gates_have_the_settings_that_they_read(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, gate = settings_of(manifests, monkeypatch), load()  # a proxy has the environment alone
    for group in ("limits", "logs", "traces"):
        assert getattr(gate, group) == getattr(whole, group), group
    assert gate.serve.allowed_hosts == whole.serve.allowed_hosts


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="devise"):
        Arguments(scorer={"devise": "cuda"})


def test_all_pods_of_the_service_have_the_same_environment_and_secrets(manifests: Manifests) -> None:
    """Any worker may run the collector, the notifier or the ingress, and any node has a proxy."""
    containers = [one["spec"]["containers"][0] for one in manifests.templates.values()]
    assert all(one["env"] == containers[0]["env"] for one in containers)
    secrets = [
        {volume["name"]: volume["secret"] for volume in one["spec"]["volumes"] if "secret" in volume}
        for one in manifests.templates.values()
    ]
    assert all(one == secrets[0] for one in secrets)
    for container in containers:
        assert {"/etc/tagae", "/run/secrets/tagae"} <= mounts(container).keys()
    accounts = {one["spec"].get("serviceAccountName") for name, one in manifests.templates.items() if name != "head"}
    assert len(accounts) == 1


def test_files_in_the_settings_are_mounted(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(manifests, monkeypatch)
    named = [settings.serve.tokens_file, settings.store.password_file, settings.store.ca_file]
    for name, template in manifests.templates.items():
        folders = mounts(template["spec"]["containers"][0])
        weights = [settings.model.weights, *settings.weights_by_mesh.values()]
        ours = [*named, *(weights if name != "head" else [])]
        for file in (one for one in ours if one is not None):
            assert str(file.parent) in folders, file
        if settings.store.kind == "local":
            (claim,) = manifests.all("PersistentVolumeClaim")
            volumes = {one["name"]: one for one in template["spec"]["volumes"]}
            used = volumes[folders[str(settings.store.path)]]["persistentVolumeClaim"]["claimName"]
            assert used == claim["metadata"]["name"]


def test_volumes_and_mounts_belong_together(manifests: Manifests) -> None:
    for template in pods(manifests.documents):
        spec = template["spec"]
        claimed = {"data"} if "redis.conf" in json.dumps(spec) else set()  # by the StatefulSet
        names = [one["name"] for one in spec["volumes"]] + sorted(claimed)
        used = {
            mount["name"]
            for container in (*spec.get("initContainers", ()), *spec["containers"])
            for mount in container["volumeMounts"]
        }
        assert len(set(names)) == len(names)
        assert set(names) == used
    if manifests.is_ray_service:
        options = manifests.cluster["autoscalerOptions"]
        head = {one["name"] for one in manifests.templates["head"]["spec"]["volumes"]}
        assert {one["name"] for one in options["volumeMounts"]} <= head


def test_environment_variables_of_ray_are_those_that_tests_run_with(manifests: Manifests) -> None:
    """tests/live runs several nodes with these values."""
    for template in manifests.templates.values():
        for name, value in environment(template["spec"]["containers"][0]).items():
            if not name.startswith("TAGAE_"):
                assert RAY_ENVIRONMENT[name] == value, name


def test_services_select_pods_and_their_ports(manifests: Manifests) -> None:
    templates = list(pods(manifests.documents))
    for service in manifests.all("Service"):
        selector = service["spec"]["selector"].items()
        (pod,) = [one for one in templates if selector <= one["metadata"]["labels"].items()]
        ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for owner in (*manifests.all("Deployment"), *manifests.all("StatefulSet")):
        labels = owner["spec"]["template"]["metadata"]["labels"]
        assert owner["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_hosts_of_the_services_are_allowed(manifests: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(manifests, monkeypatch)
    ours = [one["metadata"] for one in manifests.all("Service") if "redis" not in one["metadata"]["name"]]
    if manifests.is_ray_service:
        service = manifests.one("RayService")
        ours = [{**service["spec"]["serveService"]["metadata"], "namespace": service["metadata"]["namespace"]}]
    (about,) = ours
    name = f"{about['name']}.{about['namespace']}"
    assert {about["name"], name, f"{name}.svc", f"{name}.svc.cluster.local"} <= set(settings.serve.allowed_hosts)
    front = SCRAPE["scrape_configs"][0]
    assert front["static_configs"] == [{"targets": [f"{name}:8000"]}]


def test_disruption_budgets_let_nodes_be_drained(manifests: Manifests) -> None:
    """Pods of KubeRay have no controller that knows their number, so a budget must be an integer of pods that stay."""
    least = (
        {g["groupName"]: g["minReplicas"] for g in manifests.cluster["workerGroupSpecs"]}
        if manifests.is_ray_service
        else {}
    )
    budgets = {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]
        for one in manifests.all("PodDisruptionBudget")
    }
    assert budgets.keys() == {name for name, count in least.items() if count > 1}
    for name, spec in budgets.items():
        assert isinstance(spec["minAvailable"], int)
        assert spec["minAvailable"] < least[name]
        assert spec["selector"]["matchLabels"].items() <= manifests.templates[name]["metadata"]["labels"].items()


def test_groups_are_spread_over_nodes_within_each_cluster(manifests: Manifests) -> None:
    for name, template in manifests.templates.items():
        spread = template["spec"].get("topologySpreadConstraints", [])
        if name in ("head", "service"):
            assert spread == []
            continue
        assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        for one in spread:
            assert one["labelSelector"]["matchLabels"] == template["metadata"]["labels"]
            assert one["matchLabelKeys"] == ["ray.io/cluster"]


@pytest.mark.parametrize("bound", ["min", "max"])
def test_the_claims_of_all_replicas_fit_the_pods(
    ray_service: Manifests, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(ray_service, monkeypatch)
    (application,) = ray_service.serve_config["applications"]
    front, scorer = settings.serve, settings.scorer
    replicas = {
        "Ingress": {"min": front.ingress_replicas, "max": front.max_ingress_replicas or 0},
        "MeshSession": {"min": front.session_replicas, "max": front.max_session_replicas or 0},
        "MetaModel": {"min": scorer.meta_replicas, "max": scorer.max_meta_replicas or 0},
        "Scorer": {"min": scorer.num_replicas, "max": scorer.max_replicas or 0},
        "Collector": dict.fromkeys(("min", "max"), settings.collector.replicas),
    }
    claims = {"CPU": LIGHT_CPUS * (settings.collector.replicas + 1), "GPU": 0.0}  # 1: the notifier
    groups = {group["groupName"]: group for group in ray_service.cluster["workerGroupSpecs"]}
    for one in application["deployments"]:
        count, options = replicas[one["name"]][bound], one.get("ray_actor_options", {})
        claims["CPU"] += count * options.get("num_cpus", 0)
        claims["GPU"] += count * options.get("num_gpus", 0)
        pods_of_group = groups["gpu" if one["name"] == "Scorer" else "cpu"][f"{bound}Replicas"]
        assert count <= one["max_replicas_per_node"] * pods_of_group
    assert ray_service.cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    if settings.scorer.place == "replicas":
        (of_scorer,) = [one["ray_actor_options"] for one in application["deployments"] if one["name"] == "Scorer"]
        assert of_scorer == {"num_cpus": scorer.num_cpus, "num_gpus": scorer.num_gpus}
    for resource, claim in claims.items():
        assert claim <= sum(group[f"{bound}Replicas"] * ray_resources(group)[resource] for group in groups.values())


def test_pods_of_ray_have_probes_that_bear_a_slow_answer(ray_service: Manifests) -> None:
    for name, template in ray_service.templates.items():
        (container,) = template["spec"]["containers"]
        probe = container["readinessProbe"]
        assert (probe["timeoutSeconds"], probe["failureThreshold"]) == (5, 3)
        command = probe["exec"]["command"][-1]
        assert command.count("wget") == (1 if name == "head" else 2)
        assert sum(map(int, re.findall(r"-T (\d+)", command))) < probe["timeoutSeconds"], "the last question is asked"
        assert probe["periodSeconds"] * probe["failureThreshold"] < PROXY_MIN_DRAINING_PERIOD_S


@pytest.mark.skipif(shutil.which("wget") is None, reason="wget is not here; the images have it")
@pytest.mark.parametrize(
    ("raylet", "proxy", "is_ready"),
    [(200, 200, True), (503, 200, False), (200, 503, False), (200, None, False), (None, 200, False)],
)
def test_a_worker_is_ready_while_its_raylet_and_its_proxy_are_well(
    raylet: int | None, proxy: int | None, is_ready: bool
) -> None:
    """The command of the probe against servers that answer a status, or against none."""
    (container,) = CLUSTER.templates["cpu"]["spec"]["containers"]
    *shell, command = container["readinessProbe"]["exec"]["command"]
    with ExitStack() as stack:
        for port, status in ((52365, raylet), (8000, proxy)):
            url = stack.enter_context(_answering(status)) if status else f"http://127.0.0.1:{free_ports(1)[0]}"
            command = command.replace(f"http://localhost:{port}", url)
        done = subprocess.run([*shell, command], capture_output=True, check=False, env={"PATH": os.environ["PATH"]})
    assert (done.returncode == 0) is is_ready


@contextmanager
def _answering(status: int) -> Iterator[str]:
    """The URL of a server that gives this status after 1.06 s, as slow as a raylet without its head."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            threading.Event().wait(1.06)
            self.send(status)

    with serve_in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


def test_the_head_can_be_lost(ray_service: Manifests) -> None:
    fault_tolerance = ray_service.cluster["gcsFaultToleranceOptions"]
    assert re.fullmatch(r"[^/:]+:\d+", fault_tolerance["redisAddress"])
    secret = fault_tolerance["redisPassword"]["valueFrom"]["secretKeyRef"]
    for template in ray_service.templates.values():
        (volume,) = [one["secret"] for one in template["spec"]["volumes"] if one["name"] == "redis"]
        assert (volume["secretName"], volume["items"]) == (secret["name"], [{"key": secret["key"], "path": "password"}])


def test_state_and_ray_share_a_redis_and_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(CLUSTER, monkeypatch)
    (service,) = [one for one in CLUSTER.all("Service") if one["metadata"]["name"] == "tagae-redis"]
    (port,) = service["spec"]["ports"]
    address = f"{service['metadata']['name']}:{port['port']}"
    assert CLUSTER.cluster["gcsFaultToleranceOptions"]["redisAddress"] == address
    assert settings.store.url == f"redis://{address}/1", "Ray's GCS is in database 0"


def test_an_upgrade_starts_a_second_cluster() -> None:
    spec = CLUSTER.one("RayService")["spec"]
    assert spec["upgradeStrategy"] == {"type": "NewCluster"}
    assert spec["rayClusterDeletionDelaySeconds"] >= 60, "longer than the patience of the client"


def test_rays_ports_need_a_token(ray_service: Manifests) -> None:
    assert ray_service.cluster["authOptions"] == {"mode": "token"}
    assert tuple(map(int, ray_service.cluster["rayVersion"].split("."))) >= (2, 52, 0)  # the first version with tokens


def test_ray_has_the_version_of_the_images(ray_service: Manifests) -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert ray_service.cluster["rayVersion"] == pinned


def test_probes_ask_routes_that_need_no_token() -> None:
    (container,) = ONE_POD.templates["service"]["spec"]["containers"]
    (port,) = container["ports"]
    paths = {}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[kind]["httpGet"]
        assert asked["port"] == port["name"]
        paths[kind] = asked["path"]
    assert paths == {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    assert set(paths.values()) <= OPEN.keys()


def test_one_pod_replaces_another_as_its_store_allows(one_pod: Manifests, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = one_pod.one("Deployment")["spec"]
    assert spec["replicas"] == 1
    kind = settings_of(one_pod, monkeypatch).store.kind
    assert spec["strategy"]["type"] == {"local": "Recreate", "redis": "RollingUpdate"}[kind]


def test_events_are_read_with_the_rights_of_the_shipped_file(manifests: Manifests) -> None:
    shipped = Path(ROOT / "deploy" / "kubernetes" / "events.yaml").read_text(encoding="utf-8")
    (rules,) = [one["rules"] for one in yaml.safe_load_all(shipped) if one["kind"] == "ClusterRole"]
    if not manifests.all("ClusterRole"):
        assert not manifests.all("ServiceAccount")
        workers = [one["spec"] for name, one in manifests.templates.items() if name != "head"]
        assert all(one["automountServiceAccountToken"] is False for one in workers)
        return
    assert manifests.one("ClusterRole")["rules"] == rules
    binding, account = manifests.one("ClusterRoleBinding"), manifests.one("ServiceAccount")["metadata"]
    assert binding["roleRef"]["name"] == manifests.one("ClusterRole")["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    for name, template in manifests.templates.items():
        if name != "head":
            assert template["spec"]["serviceAccountName"] == account["name"]
