"""A package adds a store, a source and a receiver by entry points alone: ``examples/tagae-files``."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.simulator.mesh.topology import MeshSpec
from serve_app.alerts.delivery import receivers
from serve_app.api.codec import encode_snapshot
from serve_app.errors import BadSettings
from serve_app.plugins import RECEIVERS, SOURCES, STORES, Plugin, PluginTable
from serve_app.settings import Settings, StoreSettings, load
from serve_app.stores.opening import open_store
from serve_app.stores.plugin import StorePlugin
from tests.serve_app.alerts.alerting import NOW, accept, eventually, incident, start_notifier, verdict
from tests.serve_app.cli.command import tagae
from tests.serve_app.running import eventually as comes_true
from tests.serve_app.running import record_simulation, start_service
from tests.serve_app.stores.content import contents
from tests.timing import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "tagae-files"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the installed package; a copy is installed, since a build writes into its source."""
    source, target = tmp_path_factory.mktemp("source") / "tagae-files", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", target, source], check=True)
    return target


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed in this process, and in those that it starts."""
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), str(ROOT)]))
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "tagae_files"]:
        del sys.modules[name]


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose plugins do not work: one has no module, the other is something else."""
    metadata = tmp_path / "site" / "tagae_broken-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tagae-broken\nVersion: 1.2\n")
    kinds = "absent = no_such_module:STORE\nwrong = pathlib:Path\n"
    (metadata / "entry_points.txt").write_text(
        "\n".join(f"[{table.group}]\n{kinds}" for table in (STORES, SOURCES, RECEIVERS))
    )
    monkeypatch.syspath_prepend(tmp_path / "site")


def settings_of(kind: str, folder: Path) -> dict[str, Any]:
    return {"store": {"kind": kind, "options": {"folder": str(folder)}}}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("installed")
def test_the_package_fulfils_the_contracts(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_package_needs_nothing_but_the_protocols(installed: Path) -> None:
    """No file of ours names it, and its metadata have an entry point for each protocol."""
    ours = [path for folder in ("serve_app", "model", "lab") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in ours if "import tagae_files" in path.read_text("utf-8")] == []
    found = {table.group: [e.name for e in entry_points(group=table.group)] for table in (STORES, SOURCES, RECEIVERS)}
    assert found == {"tagae.stores": ["files"], "tagae.sources": ["files"], "tagae.receivers": ["file"]}


@pytest.mark.usefixtures("installed")
def test_the_settings_of_its_page_are_valid(tmp_path: Path) -> None:
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (tmp_path / "tagae.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    settings = load(tmp_path / "tagae.toml")
    assert (settings.store.kind, list(settings.collected), settings.notify.has_receivers) == ("files", ["shop"], True)


@pytest.mark.usefixtures("installed")
def test_a_store_is_chosen_by_its_kind(tmp_path: Path) -> None:
    settings = load(overrides=settings_of("files", tmp_path / "state"))
    with closing(open_store(settings.store)) as store:
        store.replace("shop", b"state", revision=0)
    assert (tmp_path / "state" / "shop.mesh").exists()


@pytest.mark.usefixtures("installed")
def test_meshes_are_copied_to_another_kind_of_store(tmp_path: Path) -> None:
    with closing(open_store(StoreSettings(path=tmp_path / "local"))) as store:
        store.replace("shop", b"state", revision=0)
    folder = f"store.options.folder={tmp_path / 'state'}"
    there = tagae("store", "copy", "--from", tmp_path / "local", "--to", "files", "--set", folder)
    assert there.exit_code == 0, there.stderr
    back = tagae("store", "copy", "--from", "files", "--to", tmp_path / "back", "--set", folder)
    assert back.exit_code == 0, back.stderr
    with (
        closing(open_store(StoreSettings(path=tmp_path / "local"))) as first,
        closing(open_store(StoreSettings(path=tmp_path / "back"))) as last,
    ):
        assert contents(last, "shop") == contents(first, "shop")


@pytest.mark.usefixtures("installed")
async def test_a_receiver_is_chosen_by_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    settings = Settings.model_validate({"notify": {"receivers": [{"kind": "file", "options": {"path": str(file)}}]}})
    assert settings.notify.has_receivers
    async with start_notifier(receivers(settings), tmp_path / "notify") as (notifier, _):
        accept(notifier, "shop", verdict(incident()), NOW)
        await eventually(file.exists)
        await eventually(lambda: notifier.count_waiting()["file"] == 0)
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["event"] == "opened"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"store": {"kind": "file"}}, ["store.kind", "expected 'local', 'redis' or 'files'", "'file'"]),
        ({"store": {"kind": "files"}}, ["store.options", "folder: Field required"]),
        (
            {"store": {"kind": "files", "options": {"folder": "/x", "key": "s3cret"}}},
            ["store.options", "key: no such option"],
        ),
        ({"store": {"options": {"folder": "/x"}}}, ["store.options", "expected none with kind local"]),
        ({"meshes": {"shop": {"source": "file"}}}, ["meshes.shop.source", "kong, generic, files", "'file'"]),
        ({"meshes": {"shop": {"source": "files"}}}, ["meshes.shop.source_options", "folder: Field required"]),
        (
            {"meshes": {"shop": {"prometheus": "http://p", "source_options": {"folder": "/x"}}}},
            ["meshes.shop.source_options", "another package"],
        ),
        (
            {"meshes": {"shop": {"prometheus": "http://p", "source": "files", "source_options": {"folder": "/x"}}}},
            ["meshes.shop", "expected files alone", "got prometheus too"],
        ),
        (
            {"meshes": {"shop": {"source": ["files", "istio"], "source_options": {}}}},
            ["meshes.shop", "source"],
        ),
        (
            {"notify": {"receivers": [{"kind": "files"}]}},
            ["notify.receivers.0.kind", "'webhook', 'grafana', 'pagerduty', 'slack' or 'file'"],
        ),
        ({"notify": {"receivers": [{"kind": "webhook"}]}}, ["notify.receivers.0.options", "url: Field required"]),
        ({"notify": {"receivers": [{"kind": "file"}]}}, ["notify.receivers.0.options", "path: Field required"]),
    ],
)
def test_a_wrong_choice_is_named_with_what_is_allowed(overrides: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadSettings) as caught:
        load(overrides=overrides)
    assert [word for word in words if word not in caught.value.message] == []
    assert "s3cret" not in caught.value.message


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("kind", ["absent", "wrong"])
@pytest.mark.parametrize(
    ("setting", "choose"),
    [
        ("store.kind", lambda kind: {"store": {"kind": kind}}),
        ("meshes.shop.source", lambda kind: {"meshes": {"shop": {"source": kind}}}),
        ("notify.receivers.0.kind", lambda kind: {"notify": {"receivers": [{"kind": kind}]}}),
    ],
)
def test_a_broken_package_is_one_clear_error(setting: str, choose: Any, kind: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load(overrides=choose(kind))
    message = caught.value.message
    assert message.startswith(
        f"{setting} (from override): expected the plugin {kind!r} of the package tagae-broken 1.2"
    )
    assert ("No module named 'no_such_module'" in message) == (kind == "absent")
    assert "uninstall that package" in message
    assert "\n" not in message


def test_a_plugin_that_two_packages_have_is_refused(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "tagae_other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: tagae-other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[tagae.stores]\nfiles = tagae_files.store:FILES\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadSettings, match=r"tagae-files 0\.1\.0 and tagae-other 2\.0; uninstall one"):
        STORES.load("files", StorePlugin)


@pytest.mark.parametrize("table", [STORES, SOURCES, RECEIVERS], ids=lambda table: table.group)
def test_each_of_our_plugins_is_one_line_of_its_table(table: PluginTable) -> None:
    for name in table.own:
        plugin = table.load_own(name)
        assert isinstance(plugin, Plugin) if table is not SOURCES else plugin().name == name


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_service_runs_with_all_three(tmp_path: Path) -> None:
    files, state, config = tmp_path / "snapshots", tmp_path / "state", tmp_path / "tagae.toml"
    files.mkdir()
    (snapshot,) = record_simulation(MeshSpec(services=20, calls_per_service=2), 1)
    now = int(time.time())
    for at in range(now - 10, now + 600):
        (files / f"{at}.json").write_bytes(encode_snapshot(snapshot))
    config.write_text(
        f"""
        [store]
        kind = "files"
        path = "{tmp_path / "path"}"
        options = {{ folder = "{state}" }}

        [collector]
        interval_seconds = 1
        behind_seconds = 0

        [meshes.shop]
        source = "files"
        source_options = {{ folder = "{files}" }}

        [[notify.receivers]]
        kind = "file"
        options = {{ path = "{tmp_path / "events.jsonl"}" }}
        """
    )
    with start_service("--config", str(config), "--set", "serve.port=0") as (_, url):

        def verdicts() -> int:
            response = httpx.get(f"{url}/v1/meshes/shop/verdict", timeout=PATIENCE_SECONDS)
            return response.status_code == 200 and response.json()["status"] == "warming_up"

        assert comes_true(verdicts)
        assert (state / "shop.mesh").exists()
        assert comes_true(lambda: b"document/notifications" in (state / "STORE.mesh").read_bytes()), "the notifier runs"
