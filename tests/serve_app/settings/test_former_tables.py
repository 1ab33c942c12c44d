"""The former tables of meshes work like the one that replaced them, and say so."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve_app.app import Arguments, build
from serve_app.cli import app
from serve_app.cli.configure import overrides
from serve_app.doctor.installation import check_installation
from serve_app.errors import BadSettings
from serve_app.settings import MeshSettings, ServiceSettings, Settings, former_tables, load, sources
from serve_app.settings.former import FIELDS
from serve_app.settings.toml import toml_value

OAUTH2 = {"token_url": "https://login.example/token", "client_id": "a", "client_secret_file": "/run/secrets/oauth2"}
QUERY = {"requests": {"promql": "sum(a)"}}
PROMETHEUS = {"prometheus": "http://p"}
# A value of each setting of the former tables that is not its default, and what it needs beside it.
VALUES: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {
    ("collector", "username"): ("me", PROMETHEUS),
    ("collector", "password_file"): ("/password", {**PROMETHEUS, "username": "me"}),
    ("collector", "bearer_token_file"): ("/token", PROMETHEUS),
    ("collector", "ca_file"): ("/ca.pem", PROMETHEUS),
    ("collector", "headers"): ({"X-Scope-OrgID": "east"}, PROMETHEUS),
    ("collector", "headers_file"): ("/headers", PROMETHEUS),
    ("collector", "certificate_file"): ("/client.pem", PROMETHEUS),
    ("collector", "key_file"): ("/client.key", {**PROMETHEUS, "certificate_file": "/client.pem"}),
    ("collector", "prometheus"): ("http://other:9090", {}),
    ("collector", "oauth2"): (OAUTH2, PROMETHEUS),
    ("collector", "google"): (True, PROMETHEUS),
    ("collector", "harmless_warnings"): (["archive-0"], PROMETHEUS),
    ("collector", "kubernetes"): ({"namespace": "shop"}, PROMETHEUS),
    ("collector", "source"): (["istio", "nginx-ingress"], PROMETHEUS),
    ("collector", "generic"): ({"services": QUERY, "calls": QUERY}, {**PROMETHEUS, "source": "generic"}),
    ("collector", "match"): ({"cluster": ["prod", "dev"]}, PROMETHEUS),
    ("collector", "cluster_label"): ("cluster", PROMETHEUS),
    ("collector", "queues"): ({"orders": "shop/bank"}, PROMETHEUS),
    ("collector", "queue_query"): ("sum by (queue) (depth)", PROMETHEUS),
    ("collector", "compressed"): (True, PROMETHEUS),
    ("model", "weights"): ("/shop.safetensors", {}),
    ("alert", "services"): ({"shop/cart": {"sensitivity": "low", "mute": "old"}}, {}),
    ("alert", "entry_points"): (["shop/web"], {}),
}
Way = Callable[[dict[str, Any]], Settings]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TAGAE_"):
            monkeypatch.delenv(name)


def former(group: str, settings: dict[str, Any], mesh: str = "shop") -> dict[str, Any]:
    return {group: {"meshes": {mesh: settings}}}


def write(folder: Path, *tables: tuple[str, dict[str, Any]]) -> Path:
    """Write a file of settings with the tables of these names."""
    path = folder / "tagae.toml"
    lines = [[f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in table.items())] for name, table in tables]
    path.write_text("\n".join(line for table in lines for line in table), encoding="utf-8")
    return path


@pytest.fixture(params=["file", "environment", "JSON in the environment", "--set", "constructor", "args of Ray"])
def through(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Way]:
    """Load the settings of a mesh in a former table, through one of the sources of settings."""

    def way_of(group: str) -> Way:
        def from_file(settings: dict[str, Any]) -> Settings:
            return load(write(tmp_path, (f"{group}.meshes.shop", settings)))

        def from_environment(settings: dict[str, Any]) -> Settings:
            for name, value in settings.items():
                text = value if isinstance(value, str) else json.dumps(value)
                monkeypatch.setenv(f"TAGAE_{group}__meshes__shop__{name}".upper(), text)
            return load()

        def from_json(settings: dict[str, Any]) -> Settings:
            monkeypatch.setenv(f"TAGAE_{group}".upper(), json.dumps({"meshes": {"shop": settings}}))
            return load()

        def from_assignments(settings: dict[str, Any]) -> Settings:
            given = [f"{group}.meshes.shop.{name}={toml_value(value)}" for name, value in settings.items()]
            return load(overrides=overrides(given))

        ways: dict[str, Way] = {
            "file": from_file,
            "environment": from_environment,
            "JSON in the environment": from_json,
            "--set": from_assignments,
            "constructor": lambda settings: Settings(**former(group, settings)),
            "args of Ray": lambda settings: Arguments(
                **{f"{group}.meshes.shop.{name}": value for name, value in settings.items()}
            ),
        }
        return ways[request.param]

    return way_of


def test_each_former_setting_has_a_value_here() -> None:
    assert set(VALUES) == {(group, name) for group, names in FIELDS.items() for name in names}


@pytest.mark.parametrize(("group", "name"), VALUES)
def test_a_former_setting_is_the_new_one(group: str, name: str, through: Callable[[str], Way]) -> None:
    value, beside = VALUES[group, name]
    settings = through(group)({**beside, name: value})
    wanted = MeshSettings.model_validate({**beside, name: value})
    assert settings.meshes == {"shop": wanted}
    assert getattr(wanted, name) != getattr(MeshSettings(), name), "the default would prove nothing"


def test_the_tables_of_a_mesh_become_one(tmp_path: Path) -> None:
    tables: list[tuple[str, dict[str, Any]]] = [
        ("meshes.shop", {"priority": "high"}),
        ("collector.meshes.shop", PROMETHEUS),
        ("model.meshes.shop", {"weights": "/shop.safetensors"}),
        ("alert.meshes.shop", {"entry_points": ["shop/web"]}),
        ("alert.meshes.pay", {"services": {"pay/*": {"mute": "old"}}}),
    ]
    settings = load(write(tmp_path, *tables))
    shop = settings.mesh("shop")
    assert (shop.priority, shop.prometheus, shop.entry_points) == ("high", "http://p", ("shop/web",))
    assert settings.weights_by_mesh == {"shop": Path("/shop.safetensors")}
    assert list(settings.collected) == ["shop"]
    assert settings.mesh("pay").policies[0].mute == "old"


def test_models_in_the_constructor_are_accepted() -> None:
    muted = {"shop/cart": ServiceSettings(mute="old")}
    settings = Settings(
        collector={"meshes": {"shop": MeshSettings(prometheus="http://p")}}, **former("alert", {"services": muted})
    )
    assert settings.mesh("shop") == MeshSettings(prometheus="http://p", services=muted)


def test_a_later_source_wins_by_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, ("meshes.shop", {"weights": "/file"}), ("model.meshes.pay", {"weights": "/file"}))
    monkeypatch.setenv("TAGAE_MODEL__MESHES__SHOP__WEIGHTS", "/environment")
    monkeypatch.setenv("TAGAE_MESHES__PAY__WEIGHTS", "/environment")
    assert set(load(file).weights_by_mesh.values()) == {Path("/environment")}
    given = former("model", {"weights": "/override"})
    assert load(file, given).weights_of("shop") == Path("/override")
    origins = {one.name: (str(one.value), one.origin) for one in sources(file, given)}
    assert origins["meshes.shop.weights"] == ("/override", "override")
    assert origins["meshes.pay.weights"] == ("/environment", "environment")
    assert not [name for name in origins if name.startswith(tuple(f"{group}.meshes" for group in FIELDS))]


def test_one_source_may_not_give_two_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, ("meshes.shop", {"weights": "/a"}), ("model.meshes.shop", {"weights": "/b"}))
    with pytest.raises(BadSettings, match=r"meshes\.shop\.weights and model\.meshes\.shop\.weights \(from file\)"):
        load(file)
    monkeypatch.setenv("TAGAE_MODEL__MESHES__SHOP__WEIGHTS", "/b")
    monkeypatch.setenv("TAGAE_MESHES__SHOP__WEIGHTS", "/a")
    with pytest.raises(BadSettings, match=r"model\.meshes\.shop\.weights \(from environment\).*keep meshes\.shop"):
        load()
    monkeypatch.setenv("TAGAE_MODEL__MESHES__SHOP__WEIGHTS", "/a")
    assert load().weights_of("shop") == Path("/a"), "the same value twice is no conflict"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (former("collector", PROMETHEUS, "My Shop"), ["collector.meshes.My Shop (from override)", "rename"]),
        (former("alert", {}, "Shop"), ["alert.meshes.Shop (from override)", "mesh name", "rename"]),
        (
            {**former("alert", {}, "Shop"), "meshes": {"Shop": {"priority": "low"}}},
            ["meshes.Shop (from override)"],
        ),
        (
            former("collector", {**PROMETHEUS, "headers": {"X Tenant": "a"}}),
            ["collector.meshes.shop.headers", "a name of a header"],
        ),
        (
            former("collector", {**PROMETHEUS, "key_file": "/key"}),
            ["collector.meshes.shop (from override)", "key_file: expected certificate_file too"],
        ),
        (
            {**former("collector", {**PROMETHEUS, "key_file": "/key"}), **former("alert", {"entry_points": ["a/b"]})},
            ["collector.meshes.shop (from override)", "key_file: expected certificate_file too"],
        ),
        (
            {"meshes": {"shop": {**PROMETHEUS, "key_file": "/key"}}, **former("alert", {"entry_points": ["a/b"]})},
            ["key_file: expected certificate_file too"],
        ),
        (former("collector", {"match": {"cluster": "prod"}}), ["collector.meshes.shop", "prometheus too with match"]),
        (
            former("collector", {**PROMETHEUS, "oauth2": {"token_url": "https://x"}}),
            ["collector.meshes.shop.oauth2.client_id (from override)", "Field required"],
        ),
        (
            former("alert", {"services": {"shop/cart": {"sensitivity": "loud"}}}),
            ["alert.meshes.shop.services.shop/cart.sensitivity (from override)", "'low', 'normal' or 'high'"],
        ),
        (
            former("alert", {"services": {"shop/cart": {"volume": 1}}}),
            ["alert.meshes.shop.services.shop/cart.volume", "no such setting; expected one of sensitivity, mute"],
        ),
        (
            former("model", {"weight": "/a"}),
            ["model.meshes.shop.weight (from override): no such setting; expected one of weights"],
        ),
        (former("collector", {"weights": "/a"}), ["collector.meshes.shop.weights (from override): no such setting"]),
        (former("model", 3), ["model.meshes.shop (from override)", "3"]),  # type: ignore[arg-type]
        ({"model": {"meshes": 3}}, ["model.meshes (from override): expected a table for each mesh, got 3"]),
        ({"meshes": 3}, ["meshes (from override): expected a table for each mesh, got 3"]),
    ],
)
def test_an_error_has_the_name_that_was_written(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadSettings) as caught:
        load(overrides=given)
    assert [word for word in words if word not in caught.value.message] == []
    if "meshes" in given:
        assert "alert.meshes" not in caught.value.message


def test_there_is_one_hint_for_each_former_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_MODEL__MESHES__SHOP__WEIGHTS", "/a")
    file = write(tmp_path, *((f"collector.meshes.{mesh}", PROMETHEUS) for mesh in ("a", '"b.c"', "d", "e", "f")))
    collector, model, alert = former_tables(file, former("alert", {"entry_points": ["shop/web"]}))
    assert (collector.name, model.name, alert.name) == ("collector.meshes", "model.meshes", "alert.meshes")
    assert collector.remedy == (
        'write [meshes.a] in place of [collector.meshes.a], [meshes."b.c"] in place of [collector.meshes."b.c"], '
        "[meshes.d] in place of [collector.meshes.d], and 2 more; all lines of a mesh go into one table"
    )
    assert model.remedy == "write TAGAE_MESHES__SHOP__* in place of TAGAE_MODEL__MESHES__SHOP__*"
    assert alert.remedy == "write meshes.shop.* in place of alert.meshes.shop.*"
    warnings = [one for one in check_installation(file) if one.subject == "former settings"]
    assert [(one.outcome, one.remedy) for one in warnings] == [("warning", collector.remedy), ("warning", model.remedy)]


def test_the_new_table_needs_no_hint(tmp_path: Path) -> None:
    file = write(tmp_path, ("meshes.shop", {**PROMETHEUS, "priority": "high", "weights": "/a"}))
    assert former_tables(file) == []
    assert Arguments(**{"meshes.shop.prometheus": "http://p"}).former_tables() == []


def test_the_args_of_ray_have_hints() -> None:
    (hint,) = Arguments(**{"model.meshes.shop.weights": "/a"}).former_tables()
    assert "meshes.shop.*" in str(hint)


@pytest.mark.parametrize("command", [["serve"], ["serve", "--single"]])
def test_the_log_has_the_hints_at_the_start(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BadSettings("not in this test")

    monkeypatch.setattr("serve_app.app.start", refuse)
    monkeypatch.setattr("serve_app.sidecar.single.run", refuse)
    file = write(tmp_path, ("collector.meshes.shop", PROMETHEUS))
    with caplog.at_level(logging.WARNING):
        CliRunner().invoke(app, [*command, "--config", str(file)])
    (message,) = [one.getMessage() for one in caplog.records if "former" in one.getMessage()]
    assert message == (
        "collector.meshes: a former name, which still works; write [meshes.shop] in place of [collector.meshes.shop]; "
        "all lines of a mesh go into one table"
    )


def test_the_log_has_the_hints_of_the_args_of_ray(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Settings) -> None:
        raise BadSettings("not in this test")

    monkeypatch.setattr("serve_app.app.logs.install", lambda: None)
    monkeypatch.setattr("serve_app.app.local.connect", refuse)
    with caplog.at_level(logging.WARNING), pytest.raises(BadSettings, match="not in this test"):
        build(
            Arguments(**{"collector.meshes.shop.prometheus": "http://p", "alert.meshes.pay.entry_points": ["pay/web"]})
        )
    assert [one.getMessage() for one in caplog.records if "former" in one.getMessage()] == [
        "collector.meshes: a former name, which still works; write meshes.shop.* in place of collector.meshes.shop.*",
        "alert.meshes: a former name, which still works; write meshes.pay.* in place of alert.meshes.pay.*",
    ]
