"""cluster.yaml against KubeRay's schema, Serve's schema and our own settings; the images against the tree."""

import copy
import fnmatch
import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from typer.main import get_command

from serve_app.app import Arguments
from serve_app.cli import app
from serve_app.cli.configure import overrides
from serve_app.settings import load

ROOT = Path(__file__).parent.parent
CRD = ROOT.parent / "shared" / "kuberay" / "ray.io_rayservices.yaml"
DOCUMENTS = list(yaml.safe_load_all((ROOT / "cluster.yaml").read_text(encoding="utf-8")))
(SERVICE,) = [d for d in DOCUMENTS if d["kind"] == "RayService"]
CONFIG = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
GROUPS = {group["groupName"]: group for group in SERVICE["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
SIDECAR = list(yaml.safe_load_all((ROOT / "deploy" / "sidecar" / "sidecar.yaml").read_text(encoding="utf-8")))
needs_crd = pytest.mark.skipif(not CRD.exists(), reason="KubeRay's definitions are not here (../shared/kuberay)")


def strict(schema: Any) -> Any:
    """Kubernetes' structural schema as JSON schema: its own formats told, unknown keys refused instead of pruned."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    told = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if "properties" in told and not schema.get("x-kubernetes-preserve-unknown-fields"):
        told.setdefault("additionalProperties", False)
    return told


def check(service: dict[str, Any]) -> None:
    definition = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    (version,) = [v for v in definition["spec"]["versions"] if v["name"] == service["apiVersion"].split("/")[1]]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # the API server's own
    jsonschema.validate(json.loads(json.dumps(service)), schema)


@needs_crd
def test_kuberay_takes_it() -> None:
    check(SERVICE)


@needs_crd
@pytest.mark.parametrize(
    "path",
    [("spec", "serveConfigV3"), ("spec", "rayClusterConfig", "workerGroupSpec"), ("spec", "serveService", "kin")],
)
def test_a_misspelt_key_is_refused(path: tuple[str, ...]) -> None:
    service = copy.deepcopy(SERVICE)
    *parents, last = path
    place = service
    for step in parents:
        place = place[step]
    place[last] = {}
    with pytest.raises(jsonschema.ValidationError, match=last):
        check(service)


def test_serve_takes_it_and_so_do_our_settings() -> None:
    deploy = ServeDeploySchema.model_validate(CONFIG)
    (application,) = deploy.applications
    module, _, name = application.import_path.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    settings = Arguments(**application.args)
    assert settings.scorer.device == "cuda"
    assert settings.scorer.max_replicas
    assert settings.scorer.max_replicas > settings.scorer.num_replicas
    assert settings.serve.session_replicas == 1
    with pytest.raises(ValueError, match="devise"):
        Arguments(scorer={"devise": "cuda"})


def test_sessions_are_where_their_volume_is() -> None:
    settings = Arguments(**CONFIG["applications"][0]["args"])
    state = GROUPS["state"]
    assert (state["minReplicas"], state["maxReplicas"]) == (1, 1)
    (resource,) = json.loads(json.loads(state["rayStartParams"]["resources"]))
    assert resource == settings.serve.session_resource
    others = [group for name, group in GROUPS.items() if name != "state"]
    assert not any(resource in json.dumps(group) for group in others), "only one node may have it"
    pod = state["template"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == str(settings.store.path)
    (claim,) = [d for d in DOCUMENTS if d["kind"] == "PersistentVolumeClaim"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_nobody_outside_reaches_it() -> None:
    assert SERVICE["spec"]["serveService"]["spec"]["type"] == "ClusterIP"
    assert "NO AUTHENTICATION" in (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    pods = [SERVICE["spec"]["rayClusterConfig"]["headGroupSpec"], *GROUPS.values()]
    (policy,) = [d for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
    for pod in pods:
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["template"]["metadata"]["labels"].items()
        assert pod["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


def test_prometheus_may_scrape_what_its_jobs_ask_for() -> None:
    (policy,) = [d for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
    (ports,) = [
        {port["port"] for port in rule["ports"]}
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
        if peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}
    ]
    front, ray = yaml.safe_load((ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    (service,) = SERVICE["spec"]["serveService"]["spec"]["ports"]
    assert front["static_configs"] == [{"targets": [f"{SERVICE['metadata']['name']}:{service['port']}"]}]
    assert ports == {service["port"], 8080}  # where KubeRay has Ray export
    labels = SERVICE["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["metadata"]["labels"]
    assert ray["relabel_configs"][0]["regex"] == f"{labels['app.kubernetes.io/name']};metrics"


def test_gpus_are_enough_for_the_scorers() -> None:
    settings = Arguments(**CONFIG["applications"][0]["args"])
    gpu = GROUPS["gpu"]
    each = int(gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    assert settings.scorer.max_replicas is not None
    assert gpu["maxReplicas"] * each >= settings.scorer.max_replicas * settings.scorer.num_gpus


def test_ray_is_the_version_of_the_images() -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert SERVICE["spec"]["rayClusterConfig"]["rayVersion"] == pinned


def copied() -> set[str]:
    """Files and folders of the tree that are in the images."""
    return {word for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]}


def test_the_images_have_what_they_copy() -> None:
    assert {"cpu", "gpu"} <= STAGES.keys()
    assert all("USER ray" in STAGES[target] for target in ("cpu", "gpu"))
    last = {STAGES[target].split("COPY", 1)[1].strip() for target in ("cpu", "gpu")}
    assert len(last) == 1, "they differ in torch alone"
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern) for pattern in let_in), f"{name} is kept out by .dockerignore"


def pods(documents: Any) -> Iterator[dict[str, Any]]:
    """What a pod is made from, wherever it stands in these documents."""
    if isinstance(documents, dict):
        if "containers" in documents:
            yield documents
        documents = list(documents.values())
    if isinstance(documents, list):
        for one in documents:
            yield from pods(one)


def test_pods_take_images_that_are_built_as_the_user_that_these_have() -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ray", DOCKERFILE)
    found = list(pods([SERVICE, SIDECAR]))
    assert len(found) == 5
    for pod in found:
        containers = [*pod.get("initContainers", ()), *pod["containers"]]
        ours = [one["image"].partition(":")[2] for one in containers if one["image"].startswith("tagae:")]
        assert ours
        assert set(ours) <= STAGES.keys()
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(uid)


def test_images_and_pods_run_commands_that_there_are() -> None:
    (port,) = set(re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE))
    (folder,) = set(re.findall(r"install -d -o ray -g ray (\S+)", DOCKERFILE))
    commands = [json.loads(command) for command in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)]
    assert len(commands) == 2
    assert "ENTRYPOINT" not in DOCKERFILE, "the sidecar's args are all of its command"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    for pod in pods(SIDECAR):
        commands += [one["args"] for one in pod["initContainers"]]
    for program, *words in commands:
        assert program in scripts
        command = get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        given = command.make_context(program, words).params
        if changed := given["settings"]:
            settings = load(overrides=overrides(changed))
            assert (settings.serve.host, settings.serve.port) == ("0.0.0.0", int(port))
            assert str(settings.store.path) == folder == CONFIG["applications"][0]["args"]["store"]["path"]
