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
from tests.manifests import DOCKERFILE, copied_files, needs_crd, ray_services, strict

ROOT = Path(__file__).parent.parent
DOCUMENTS = list(yaml.safe_load_all((ROOT / "cluster.yaml").read_text(encoding="utf-8")))
(SERVICE,) = [d for d in DOCUMENTS if d["kind"] == "RayService"]
CONFIG = yaml.safe_load(SERVICE["spec"]["serveConfigV2"])
GROUPS = {group["groupName"]: group for group in SERVICE["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
TEMPLATES = {name: group["template"] for name, group in GROUPS.items()} | {
    "head": SERVICE["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]
}
LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POLICIES = [d for d in DOCUMENTS if d["kind"] == "NetworkPolicy"]
(RULES,) = [policy["spec"]["ingress"] for policy in POLICIES]
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
SIDECAR = list(yaml.safe_load_all((ROOT / "deploy" / "sidecar" / "sidecar.yaml").read_text(encoding="utf-8")))


def check(service: dict[str, Any]) -> None:
    schema = strict(ray_services()[service["apiVersion"].split("/")[1]])
    schema["properties"]["metadata"] = {"type": "object"}  # rules of the API server itself
    jsonschema.validate(json.loads(json.dumps(service)), schema)


@needs_crd
def test_the_manifest_fits_the_schema_of_kuberay() -> None:
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


def test_the_manifest_is_valid_for_serve_and_for_our_settings() -> None:
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


def test_sessions_run_on_the_node_with_their_volume() -> None:
    settings = Arguments(**CONFIG["applications"][0]["args"])
    state = GROUPS["state"]
    assert (state["minReplicas"], state["maxReplicas"]) == (1, 1)
    (resource,) = json.loads(json.loads(state["rayStartParams"]["resources"]))
    assert resource == settings.serve.session_resource
    others = [group for name, group in GROUPS.items() if name != "state"]
    assert not any(resource in json.dumps(group) for group in others), "only one node may have the resource"
    pod = state["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (claim,) = [d for d in DOCUMENTS if d["kind"] == "PersistentVolumeClaim"]
    claimed = volumes[mounts[str(settings.store.path)]]["persistentVolumeClaim"]["claimName"]
    assert claimed == claim["metadata"]["name"]


def test_the_policy_selects_every_pod_and_the_service_has_no_outside_address() -> None:
    assert SERVICE["spec"]["serveService"]["spec"]["type"] == "ClusterIP"
    (policy,) = POLICIES
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    for template in TEMPLATES.values():
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def allowed_ports(namespace: str, labels: dict[str, str]) -> set[int | None]:
    """Return the ports that the policy opens to a pod with these labels in a namespace; None: all ports."""
    ports: set[int | None] = set()
    for rule in RULES:
        for peer in rule["from"]:
            space = {"kubernetes.io/metadata.name": namespace}  # Kubernetes sets this label on every namespace
            if not peer.get("namespaceSelector", {}).get("matchLabels", {}).items() <= space.items():
                continue
            if peer.get("podSelector", {}).get("matchLabels", {}).items() <= labels.items():
                ports |= {port["port"] for port in rule["ports"]} if "ports" in rule else {None}
    return ports


@pytest.mark.parametrize(
    ("namespace", "labels", "ports"),
    [
        ("tagae", {"app.kubernetes.io/name": "tagae"}, {None}),
        ("tagae", {"tagae/client": "true"}, {8000}),
        ("kuberay-system", {"app.kubernetes.io/name": "kuberay-operator"}, {8000, 8265}),
        ("monitoring", {"app.kubernetes.io/name": "prometheus"}, {8000, 8080}),
        ("ingress-nginx", {"app.kubernetes.io/name": "ingress-nginx"}, {8000}),
    ],
)
def test_pods_that_need_access_get_it_from_their_namespace_only(
    namespace: str, labels: dict[str, str], ports: set[int | None]
) -> None:
    assert allowed_ports(namespace, labels) == ports
    assert allowed_ports("elsewhere", labels) == set()  # anyone may set labels on their own pods
    assert allowed_ports(namespace, {"app": "another"}) == set()


def test_every_rule_names_a_namespace_and_pods() -> None:
    for rule in RULES:
        for peer in rule["from"]:
            assert peer.keys() == {"namespaceSelector", "podSelector"}
            assert peer["namespaceSelector"]["matchLabels"].keys() == {"kubernetes.io/metadata.name"}
            assert peer["podSelector"]["matchLabels"]


def test_all_objects_are_in_a_namespace_for_restricted_pods_only() -> None:
    (namespace,) = [d["metadata"] for d in DOCUMENTS if d["kind"] == "Namespace"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {d["metadata"]["namespace"] for d in DOCUMENTS if d["kind"] != "Namespace"} == {namespace["name"]}


def test_rays_ports_need_a_token() -> None:
    cluster = SERVICE["spec"]["rayClusterConfig"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52, 0)  # the first version with tokens
    assert "1.5.1 or later" in (ROOT / "cluster.yaml").read_text(encoding="utf-8")  # the first version with authOptions


@needs_crd
def test_an_unknown_mode_of_authentication_is_refused() -> None:
    service = copy.deepcopy(SERVICE)
    service["spec"]["rayClusterConfig"]["authOptions"]["mode"] = "tokens"
    with pytest.raises(jsonschema.ValidationError, match="tokens"):
        check(service)


@pytest.mark.parametrize("name", TEMPLATES)
def test_pods_are_restricted_and_write_to_volumes_only(name: str) -> None:
    pod = TEMPLATES[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert container["securityContext"] == LOCKED
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        (ray,) = set(re.findall(r"RAY_TMPDIR=(\S+)", DOCKERFILE))
        (home,) = set(re.findall(r"\bHOME=(\S+)", DOCKERFILE))
        for place in (ray, home):
            assert volumes[mounts[place]["name"]]["emptyDir"]["sizeLimit"]
        tokens = mounts["/etc/tagae"]
        assert tokens["readOnly"] is True
        assert volumes[tokens["name"]]["secret"]["secretName"] == "tagae-tokens"


def test_the_autoscaler_beside_the_head_is_restricted_too() -> None:
    autoscaler = SERVICE["spec"]["rayClusterConfig"]["autoscalerOptions"]
    assert autoscaler["securityContext"] == LOCKED
    (mount,) = autoscaler["volumeMounts"]
    assert mount["name"] in {volume["name"] for volume in TEMPLATES["head"]["spec"]["volumes"]}


@pytest.mark.parametrize("name", TEMPLATES)
def test_replicas_run_at_the_usual_priority(name: str) -> None:
    (container,) = TEMPLATES[name]["spec"]["containers"]
    assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"]


def test_prometheus_may_reach_the_targets_of_its_jobs() -> None:
    ports = allowed_ports("monitoring", {"app.kubernetes.io/name": "prometheus"})
    front, ray = yaml.safe_load((ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    (service,) = SERVICE["spec"]["serveService"]["spec"]["ports"]
    address = f"{SERVICE['metadata']['name']}.{SERVICE['metadata']['namespace']}"
    assert front["static_configs"] == [{"targets": [f"{address}:{service['port']}"]}]
    assert ports == {service["port"], 8080}  # the port on which KubeRay lets Ray export
    labels = TEMPLATES["head"]["metadata"]["labels"]
    assert ray["relabel_configs"][0]["regex"] == f"{labels['app.kubernetes.io/name']};metrics"


def test_there_are_enough_gpus_for_the_scorers() -> None:
    settings = Arguments(**CONFIG["applications"][0]["args"])
    gpu = GROUPS["gpu"]
    each = int(gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    assert settings.scorer.max_replicas is not None
    assert gpu["maxReplicas"] * each >= settings.scorer.max_replicas * settings.scorer.num_gpus


def test_ray_has_the_version_of_the_images() -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert SERVICE["spec"]["rayClusterConfig"]["rayVersion"] == pinned


def without_cuda(stage: str) -> str:
    """A stage without the compiler for GPUs that it borrows from another image."""
    return re.sub(r"^RUN --mount=type=bind,from=cuda,\S+ NVCC=\S+ \\\n\s+", "RUN ", stage, flags=re.MULTILINE)


def test_the_images_copy_existing_files() -> None:
    assert {"cpu", "gpu"} <= STAGES.keys()
    for stage in ("{}-build", "{}"):
        built = {
            without_cuda(STAGES[stage.format(target)].split("COPY", 1)[1]).replace(target, "").strip()
            for target in ("cpu", "gpu")
        }
        assert len(built) == 1, "the images differ only in torch and in the compiler for GPUs"
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in copied_files():
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern) for pattern in allowed), f".dockerignore leaves out {name}"


def test_the_images_run_as_a_user_by_number_and_carry_no_build_tools() -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ray", DOCKERFILE)
    for target in ("cpu", "gpu"):
        # By number, because the kubelet cannot decide from a name whether the user is root.
        assert STAGES[target].strip().splitlines()[-1] == f"USER {uid}:{uid}"
        assert "pip uninstall --yes pip" in STAGES[f"{target}-build"]
    assert "pip uninstall --yes pip setuptools wheel" in STAGES["runtime"]
    assert not re.search(r"\b(gcc|g\+\+|build-essential|git|curl)\b", STAGES["runtime"])
    bases = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert {name for base, name in bases if base == "runtime"} == {"cpu", "gpu"}


def test_the_images_install_what_the_lock_file_allows() -> None:
    assert "pip install --require-hashes --no-deps -r requirements.lock" in STAGES["libraries"]
    later = [line for stage in ("cpu-build", "gpu-build") for line in re.findall(r"pip install (.*)", STAGES[stage])]
    assert len(later) == 4
    assert all(line.startswith(("-c constraints.txt torch", "--no-deps --no-build-isolation .")) for line in later)


def test_a_release_names_images_by_digest() -> None:
    """The digest of the base image is an argument. `make images` looks it up and names its images by digest."""
    assert re.search(r"^ARG BASE=python:3\.1[12]-slim$", DOCKERFILE, re.MULTILINE)
    outside = {base for base, _ in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)} - STAGES.keys()
    assert outside == {"${BASE}", "${CUDA}"}
    script = (ROOT / "deploy" / "images.sh").read_text(encoding="utf-8")
    ((cuda, version),) = re.findall(r"^ARG CUDA=(nvidia/cuda:(\d+\.\d+)\.\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"cuda=${{CUDA:-{cuda}}}" in script
    assert f"NVCC=/usr/local/cuda-{version}/bin/nvcc" in STAGES["gpu-build"]
    (pattern,) = re.findall(r'sed -i "s\|(.*)\|image: \$image@\$digest\|"', script)
    for manifest in ("cluster.yaml", "deploy/sidecar/sidecar.yaml"):
        text = (ROOT / manifest).read_text(encoding="utf-8")
        for target in ("cpu", "gpu"):
            found = pattern.replace("$target", target).replace("\\$", "$")
            text = re.sub(found, "image: IMAGE@sha256:0", text, flags=re.MULTILINE)
        assert "image: IMAGE@sha256:0" in text
        assert "image: tagae:" not in text


def pods(documents: Any) -> Iterator[dict[str, Any]]:
    """Return the specifications of all pods in these documents."""
    if isinstance(documents, dict):
        if "containers" in documents:
            yield documents
        documents = list(documents.values())
    if isinstance(documents, list):
        for one in documents:
            yield from pods(one)


def test_pods_use_built_images_and_their_user() -> None:
    (uid,) = re.findall(r"useradd .*--uid (\d+) ray", DOCKERFILE)
    found = list(pods([SERVICE, SIDECAR]))
    assert len(found) == 5
    for pod in found:
        containers = [*pod.get("initContainers", ()), *pod["containers"]]
        ours = [one["image"].partition(":")[2] for one in containers if one["image"].startswith("tagae:")]
        assert ours
        assert set(ours) <= STAGES.keys()
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(uid)


def test_images_and_pods_run_existing_commands() -> None:
    (port,) = set(re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE))
    (folder,) = set(re.findall(r"install -d -o ray -g ray (\S+)", DOCKERFILE))
    commands = [json.loads(command) for command in re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)]
    assert len(commands) == 1
    assert "ENTRYPOINT" not in DOCKERFILE, "the sidecar's args are its whole command"
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
