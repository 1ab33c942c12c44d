"""deploy/sidecar against the schema of pods, our settings, and the sidecar's use of them."""

import tomllib
from pathlib import Path

import pytest
import yaml

from serve_app.settings import PLAIN_NAMES, Settings, load
from tests.cluster.dockerfile import STAGES
from tests.cluster.schemas import check
from tests.cluster.test_pod_security import check_restricted

ROOT = Path(__file__).parent.parent
DOCUMENTS = {
    one["kind"]: one
    for one in yaml.safe_load_all((ROOT / "deploy" / "sidecar" / "sidecar.yaml").read_text(encoding="utf-8"))
}
TEMPLATE = DOCUMENTS["Deployment"]["spec"]["template"]
POD = TEMPLATE["spec"]
(SIDECAR,) = POD["initContainers"]
(WORKLOAD,) = POD["containers"]
FILE = DOCUMENTS["ConfigMap"]["data"]["tagae.toml"]
ENVIRONMENT = {one["name"]: one["value"] for one in SIDECAR["env"]}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    config = tmp_path / "tagae.toml"
    config.write_text(FILE)
    for name, value in (ENVIRONMENT | {"TAGAE_CONFIG": str(config)}).items():
        monkeypatch.setenv(name, value)
    return load()


def test_the_documents_fit_the_schemas_of_kubernetes() -> None:
    for document in DOCUMENTS.values():
        check(document)


def test_it_is_a_native_sidecar_that_does_not_delay_the_start() -> None:
    assert SIDECAR["restartPolicy"] == "Always"
    assert not {"startupProbe", "readinessProbe"} & SIDECAR.keys()
    assert SIDECAR["livenessProbe"]["grpc"].keys() == {"port"}  # the health service of the whole server


def test_ports_and_paths_match_the_settings(settings: Settings) -> None:
    chosen = settings.serve
    port, path = chosen.grpc
    host, _, number = port.partition(":")
    socket = Path(path.removeprefix("unix:"))
    ports = {one["name"]: one["containerPort"] for one in SIDECAR["ports"]}
    assert ports == {"verdicts": int(number), "tagae-metrics": chosen.port}
    assert SIDECAR["livenessProbe"]["grpc"]["port"] == int(number) == 9091
    annotations = TEMPLATE["metadata"]["annotations"]
    assert (annotations["prometheus.io/scrape"], annotations["prometheus.io/port"]) == (
        "true",
        str(chosen.port),
    )
    assert chosen.host == host == "0.0.0.0", "the kubelet probes the pod's address"
    mounts = {one["mountPath"]: one["name"] for one in SIDECAR["volumeMounts"]}
    assert path == f"unix:{socket}"
    socket_volume = mounts[str(socket.parent)]
    assert {"name": socket_volume, "mountPath": str(socket.parent)} in WORKLOAD["volumeMounts"]
    volumes = {one["name"]: one for one in POD["volumes"]}
    assert "emptyDir" in volumes[mounts[str(settings.store.path)]]
    assert "emptyDir" in volumes[socket_volume]
    assert set(mounts.values()) == volumes.keys()
    assert chosen.tokens_file is not None, "the ports are open to the pod's network"
    assert "secretName" in volumes[mounts[str(chosen.tokens_file.parent)]]["secret"]
    config = Path(ENVIRONMENT["TAGAE_CONFIG"])
    assert volumes[mounts[str(config.parent)]]["configMap"]["name"] == DOCUMENTS["ConfigMap"]["metadata"]["name"]
    assert config.name in DOCUMENTS["ConfigMap"]["data"]


def test_the_environment_variables_are_known(settings: Settings) -> None:
    assert ENVIRONMENT.keys() == {"TAGAE_CONFIG", *PLAIN_NAMES}
    assert (settings.model.window_size, settings.model.anomaly_percentile) == (120, 99.0)
    assert set(tomllib.loads(FILE)) <= Settings.model_fields.keys()
    assert len(settings.collected) == 1, "gRPC is about this one"


def test_its_pod_is_restricted_and_has_a_share_of_the_node() -> None:
    check_restricted(TEMPLATE)
    assert POD["automountServiceAccountToken"] is False
    assert {"cpu", "memory"} <= SIDECAR["resources"]["requests"].keys()


def test_it_uses_a_built_image() -> None:
    images = [one["image"].partition(":")[2] for one in (SIDECAR, WORKLOAD) if one["image"].startswith("tagae:")]
    assert images
    assert set(images) <= STAGES.keys()


def test_only_the_pod_reaches_the_verdicts_and_only_monitoring_the_metrics() -> None:
    policy = DOCUMENTS["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= TEMPLATE["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    assert all("ports" in rule for rule in policy["ingress"])
    let_in = {one["port"]: rule.get("from") for rule in policy["ingress"] for one in rule["ports"]}
    assert let_in.keys() == {*(port["name"] for port in WORKLOAD["ports"]), "tagae-metrics"}
    (peer,) = let_in["tagae-metrics"]
    assert peer == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
