"""The order of the layers, the names of settings, and the errors of wrong ones."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.errors import BadSettings
from serve_app.pipeline import options
from serve_app.settings import MeshSettings, Settings, load, sources


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("TAGAE_") or name == "USE_GPU":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tagae.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _origins(**arguments: Any) -> dict[str, tuple[Any, str]]:
    return {setting.name: (setting.value, setting.origin) for setting in sources(**arguments)}


def test_the_defaults_of_settings(tmp_path: Path) -> None:
    settings = load()
    assert (settings.model.window_size, settings.model.anomaly_percentile) == (120, 99.0)
    assert settings.partition.max_services == 2000
    assert settings.store.path == tmp_path / "state" / "tagae"
    assert {origin for _, origin in _origins().values()} == {"default"}


def test_each_layer_overrides_the_previous_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = _toml(tmp_path, "[serve]\nport = 1\ndeadline_seconds = 1.5\nhost = '0.0.0.0'\n[model]\nwindow_size = 60\n")
    monkeypatch.setenv("TAGAE_SERVE__PORT", "2")
    monkeypatch.setenv("TAGAE_SERVE__HOST", "::")
    origins = _origins(config=config, overrides={"serve": {"port": 3}})
    assert origins["serve.port"] == (3, "override")
    assert origins["serve.host"] == ("::", "environment")
    assert origins["serve.deadline_seconds"] == (1.5, "file")
    assert origins["model.window_size"] == (60, "file")
    assert origins["serve.session_replicas"] == (2, "default")


def test_the_file_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_CONFIG", str(_toml(tmp_path, "[model]\nwindow_size = 60\n")))
    assert load().model.window_size == 60
    second = tmp_path / "other.toml"
    second.write_text("[model]\nwindow_size = 30\n", encoding="utf-8")
    assert load(second).model.window_size == 30


@pytest.mark.parametrize(
    ("name", "value", "subject", "field", "expected"),
    [
        ("TAGAE_WINDOW_SIZE", "60", "model", "window_size", 60),
        ("TAGAE_ANOMALY_PERCENTILE", "97.5", "model", "anomaly_percentile", 97.5),
        ("USE_GPU", "false", "scorer", "device", "cpu"),
        ("USE_GPU", "True", "scorer", "device", "cuda"),
    ],
)
def test_plain_names(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, subject: str, field: str, expected: Any
) -> None:
    monkeypatch.setenv(name, value)
    assert _origins()[f"{subject}.{field}"] == (expected, "environment")


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ("cart = {mute = 'x'}", "expected namespace/name, or namespace/*"),
        ("'shop/cart' = {sensitivity = 'loud'}", "'low', 'normal' or 'high'"),
        ("'shop/cart' = {mute = true}", "valid string"),
        ("'shop/cart' = {volume = 1}", "no such setting; expected one of sensitivity, mute"),
    ],
)
def test_invalid_policies_of_services_are_refused(tmp_path: Path, services: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words.replace("*", r"\*")) as error:
        load(_toml(tmp_path, f"[meshes.shop.services]\n{services}\n"))
    assert "meshes.shop.services" in str(error.value)
    assert "(from file)" in str(error.value)


def test_settings_take_ids_and_original_names(tmp_path: Path) -> None:
    services = "'shop/bank gateway' = {mute = 'old'}\n'shop/a~20~b' = {mute = 'x'}\n'my shop/*' = {mute = 'y'}"
    queues = "prometheus = 'http://prometheus'\nqueues = {orders = 'shop/bank gateway'}\n"
    table = f"[meshes.shop]\n{queues}entry_points = ['shop/订单 服务']\n[meshes.shop.services]\n{services}\n"
    settings = load(_toml(tmp_path, table))
    assert set(settings.meshes["shop"].services) == {"shop/bank~20~gateway", "shop/a~20~b", "my~20~shop/*"}
    assert settings.meshes["shop"].entry_points == ("shop/订单~20~服务",)
    assert settings.meshes["shop"].queues == {"orders": "shop/bank~20~gateway"}


def test_a_nested_name_overrides_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_WINDOW_SIZE", "60")
    monkeypatch.setenv("TAGAE_MODEL__WINDOW_SIZE", "30")
    assert load().model.window_size == 30


def test_variables_that_kubernetes_sets_for_a_service_of_this_name_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_PORT", "tcp://10.0.0.1:8000")
    monkeypatch.setenv("TAGAE_SERVICE_HOST", "10.0.0.1")
    assert load().serve.port == 8000


def test_validation_by_ray_has_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_SERVE__PORT", "2")
    monkeypatch.setenv("TAGAE_SERVE__HOST", "::")
    settings = Settings.model_validate({"serve": {"port": 3}})
    assert (settings.serve.port, settings.serve.host) == (3, "::")
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load().model.window_size = 5  # type: ignore[misc]


OAUTH2 = {"token_url": "https://login.example/token", "client_id": "a", "client_secret_file": "/run/secrets/oauth2"}


def mesh(access: dict[str, Any]) -> dict[str, Any]:
    return {"meshes": {"shop": {"prometheus": "http://p", **access}}}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"scorer": {"device": "tpu"}}, ["scorer.device", "override", "'auto', 'cpu' or 'cuda'", "'tpu'"]),
        ({"model": {"windowsize": 60}}, ["model.windowsize", "no such setting", "window_size"]),
        ({"modle": {}}, ["modle", "no such setting", "model, alert, partition"]),
        ({"model": {"window_size": 3}}, ["model.window_size", "greater than or equal to 10", "3"]),
        ({"alert": {"confirm_snapshots": 9}}, ["alert", "override", "the limit is window_snapshots (4)", "9"]),
        ({"meshes": {"My Shop": {"prometheus": "http://p"}}}, ["meshes.My Shop", "rename"]),
        ({"meshes": {"Shop": {}}}, ["meshes.Shop", "mesh name", "rename"]),
        ({"store": {"kind": "etcd"}}, ["store.kind", "'local' or 'redis'", "'etcd'"]),
        ({"store": {"kind": "redis"}}, ["store", "url is missing, which kind redis needs"]),
        ({"store": {"url": "http://127.0.0.1"}}, ["store.url", "expected redis://", "http://127.0.0.1"]),
        ({"store": {"url": "redis://me:secret@here"}}, ["store.url", "store.password_file", "redis://...@here"]),
        ({"store": {"username": "me"}}, ["store", "username: password_file is missing"]),
        ({"serve": {"port": 70000}, "limits": {"max_services": -1}}, ["serve.port", "limits.max_services"]),
        (mesh({"headers": {"X Tenant": "a"}}), ["meshes.shop.headers", "a header name"]),
        (mesh({"headers": {"Authorization": "Bearer hidden"}}), ["shop.headers", "name it in headers_file"]),
        (mesh({"key_file": "/key"}), ["meshes.shop", "key_file: certificate_file is missing"]),
        (mesh({"oauth2": OAUTH2, "username": "me"}), ["shop", "expected one of", "got username and oauth2"]),
        (mesh({"oauth2": OAUTH2, "google": True}), ["shop", "expected one of", "got oauth2 and google"]),
        (mesh({"oauth2": {**OAUTH2, "token_url": "https://me:hidden@x"}}), ["shop.oauth2.token_url", "no password"]),
        (mesh({"oauth2": {"token_url": "https://x"}}), ["oauth2.client_id", "oauth2.client_secret_file"]),
        (
            {"meshes": {"shop": {"match": {"a": "b"}, "google": True}}},
            ["meshes.shop", "prometheus is missing, which google, match need"],
        ),
        (
            mesh({"volume": 1}),
            [
                "meshes.shop.volume",
                "no such setting",
                "weights, entry_points, services, owners, objectives, links",
            ],
        ),
        (mesh({"harmless_warnings": [""]}), ["shop.harmless_warnings", "at least 1 character"]),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(overrides: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadSettings) as error:
        load(overrides=overrides)
    assert [word for word in words if word not in error.value.message] == []
    assert "hidden" not in error.value.message


def test_access_to_a_prometheus_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tagae.toml"
    file.write_text(
        """
        [meshes.shop]
        prometheus = "https://mimir.example/prometheus?dedup=true"
        headers = { X-Scope-OrgID = "east|west" }
        headers_file = "/run/secrets/headers"
        certificate_file = "/run/secrets/client.pem"
        harmless_warnings = ["archive-0"]
        kubernetes = { bearer_token_file = "/k.token", ca_file = "/k.pem" }

        [meshes.shop.oauth2]
        token_url = "https://login.example/token"
        client_id = "a"
        client_secret_file = "/run/secrets/oauth2"
        parameters = { scope = "r" }
        """
    )
    mesh = load(file).meshes["shop"]
    endpoint = mesh.endpoint(mesh.prometheus_url)
    assert (endpoint.url, endpoint.origin) == (mesh.prometheus, "https://mimir.example")
    assert (endpoint.headers, endpoint.headers_file) == (
        (("X-Scope-OrgID", "east|west"),),
        Path("/run/secrets/headers"),
    )
    assert (endpoint.certificate_file, endpoint.key_file) == (Path("/run/secrets/client.pem"), None)
    assert mesh.oauth2 is not None
    assert mesh.oauth2.parameters == {"scope": "r"}
    assert mesh.kubernetes is not None
    api = mesh.kubernetes.endpoint
    assert (api.bearer_token_file, api.ca_file) == (Path("/k.token"), Path("/k.pem"))


def test_a_pushed_mesh_has_no_prometheus() -> None:
    settings = load(overrides={"meshes": {"shop": {"entry_points": ["shop/web"]}, "pay": {"prometheus": "http://p"}}})
    assert list(settings.collected) == ["pay"]
    assert settings.collected["pay"].prometheus_url == "http://p"
    with pytest.raises(ValueError, match="prometheus: expected a URL of a mesh that is collected, got none"):
        _ = settings.mesh("shop").prometheus_url
    assert settings.mesh("unknown") == MeshSettings()


def test_wrong_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_MODEL__WINDOW_SIZE", "many")
    with pytest.raises(BadSettings, match=r"model\.window_size \(from environment\).*'many'"):
        load()
    monkeypatch.delenv("TAGAE_MODEL__WINDOW_SIZE")
    monkeypatch.setenv("TAGAE_MODLE__WINDOW_SIZE", "60")
    with pytest.raises(BadSettings, match="TAGAE_MODLE__WINDOW_SIZE: no such group of settings: 'modle'"):
        load()
    monkeypatch.delenv("TAGAE_MODLE__WINDOW_SIZE")
    monkeypatch.setenv("USE_GPU", "maybe")
    with pytest.raises(BadSettings, match=r"USE_GPU: expected one of true.*'maybe'"):
        load()
    monkeypatch.delenv("USE_GPU")
    monkeypatch.setenv("TAGAE_MODEL", "not json")
    with pytest.raises(BadSettings, match='"model"'):
        load()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"absent\.toml: expected a readable TOML file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(BadSettings, match=r"tagae\.toml: expected a readable TOML file"):
        load(_toml(tmp_path, "[model\n"))
    with pytest.raises(BadSettings, match=r"model\.windowsize \(from file\): no such setting"):
        load(_toml(tmp_path, "[model]\nwindowsize = 5\n"))


@pytest.mark.parametrize(("services", "pages"), [(1, 1.0), (50, 1.0), (300, 6.0), (5000, 100.0)])
def test_the_alert_budget_grows_with_the_mesh(services: int, pages: float) -> None:
    assert load().alert.budget(services) == pytest.approx(pages)
    assert load(overrides={"alert": {"false_pages_per_day": 0.5}}).alert.budget(services) == 0.5


def test_notices_have_the_budget_of_alerts_or_their_own() -> None:
    assert options(load()).policy.false_notices_per_day is None
    assert options(load(overrides={"alert": {"false_notices_per_day": 6.0}})).policy.false_notices_per_day == 6.0


def test_a_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(overrides={"store": {"path": "~/meshes"}}).store.path == tmp_path / "meshes"
