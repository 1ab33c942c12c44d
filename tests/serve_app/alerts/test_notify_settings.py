"""Settings of receivers: valid values, errors, and printing them for a file."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from serve_app.alerts.delivery import receivers
from serve_app.alerts.receivers.webhook import Webhook
from serve_app.cli import app
from serve_app.errors import BadSettings
from serve_app.settings import load, sources

TOML = """
[notify]
cluster = "eu-1"
external_url = "https://tagae.example/base/"
alertmanagers = [{url = "http://am-0:9093"}, {url = "https://am-1/prefix/", bearer_token_file = "/token"}]

[[notify.receivers]]
kind = "webhook"
options = { url = "https://hooks.example/a/b?c=d", secret_file = "/secret" }

[[notify.receivers]]
kind = "webhook"
options = { url = "https://hooks.slack.example/services/T0/B0/x", format = "slack" }
"""


def hook(**options: str) -> dict[str, Any]:
    return {"kind": "webhook", "options": {"url": "http://a", **options}}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TAGAE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tagae.toml"
    path.write_text(TOML)
    return path


def test_no_notification_by_default() -> None:
    to = receivers(load())
    assert (to.alertmanagers, to.events, to.links.cluster) == ((), (), "default")


def test_receivers_from_a_file(config: Path) -> None:
    to = receivers(load(config))
    assert [item.url for item in to.alertmanagers] == [
        "http://am-0:9093/api/v2/alerts",
        "https://am-1/prefix/api/v2/alerts",
    ]
    assert to.alertmanagers[1].bearer_token_file == Path("/token")
    hook, slack = (item.open(1.0) for item in to.events)
    assert isinstance(hook, Webhook)
    assert isinstance(slack, Webhook)
    assert (hook.sender.endpoint.url, hook.name, hook.secret_file, hook.format) == (
        "https://hooks.example/a/b?c=d",
        "https://hooks.example",
        Path("/secret"),
        "event",
    )
    assert (slack.sender.endpoint.url, slack.format) == ("https://hooks.slack.example/services/T0/B0/x", "slack")
    assert to.links.verdict_url("shop") == "https://tagae.example/base/v1/meshes/shop/verdict"


def test_receivers_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAGAE_NOTIFY__ALERTMANAGERS", '[{"url": "http://am:9093"}]')
    monkeypatch.setenv("TAGAE_NOTIFY__CLUSTER", "eu-2")
    notify = load().notify
    assert (notify.alertmanagers[0].url, notify.cluster) == ("http://am:9093", "eu-2")
    assert {o.name: o.origin for o in sources()}["notify.alertmanagers"] == "environment"


def test_printed_settings_are_a_file_with_the_same_settings(config: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["config", "show", "--config", str(config), "--set", "limits.max_ahead_seconds=inf"]
    )
    assert result.exit_code == 0, result.output
    again = tmp_path / "again.toml"
    again.write_text(result.output)
    assert tomllib.loads(result.output)["notify"]["alertmanagers"][0] == {
        "url": "http://am-0:9093",
        "username": "",
        "headers": {},
    }
    expected = load(config, {"limits": {"max_ahead_seconds": float("inf")}})
    assert load(again).model_dump(exclude={"config"}) == expected.model_dump(exclude={"config"})


@pytest.mark.parametrize(
    ("notify", "words"),
    [
        ({"alertmanagers": [{"url": "am:9093"}]}, ["notify.alertmanagers.0.url", "http://HOST[:PORT]", "'am:9093'"]),
        ({"alertmanagers": [{"url": "http://"}]}, ["notify.alertmanagers.0.url"]),
        ({"alertmanagers": [{"url": "http://a:99999"}]}, ["notify.alertmanagers.0.url"]),
        ({"alertmanagers": [{"url": "http://a b"}]}, ["notify.alertmanagers.0.url", "without spaces"]),
        ({"alertmanagers": [{"uri": "http://a"}]}, ["notify.alertmanagers.0.uri", "no such setting", "username, "]),
        ({"receivers": [hook(hmac="x")]}, ["notify.receivers.0.options", "hmac: no such option", "secret_file"]),
        ({"alertmanagers": [{"url": "http://a"}, {"url": "http://a/"}]}, ["alertmanagers", "each URL once"]),
        ({"receivers": [hook(), hook()]}, ["receivers", "the same webhook twice"]),
        ({"receivers": [hook(username="u", bearer_token_file="/t")]}, ["got both"]),
        ({"receivers": [hook(password_file="/t")]}, ["password_file: username is missing"]),
        ({"cluster": ""}, ["notify.cluster"]),
        ({"alertmanager": []}, ["notify.alertmanager", "no such setting", "alertmanagers, receivers"]),
    ],
)
def test_a_wrong_receiver_is_named(notify: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(BadSettings) as caught:
        load(overrides={"notify": notify})
    assert [word for word in words if word not in caught.value.message] == []


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadSettings, match="no password in the URL") as caught:
        load(overrides={"notify": {"receivers": [hook(url="https://me:s3cret@hooks.example/x")]}})
    assert "s3cret" not in caught.value.message


def test_webhooks_of_version_0_2_are_receivers(tmp_path: Path) -> None:
    file = tmp_path / "tagae.toml"
    file.write_text(
        """
        [notify]
        webhooks = [{ url = "http://127.0.0.1:9/hook" }]
        [[notify.receivers]]
        kind = "webhook"
        options = { url = "http://127.0.0.1:9/other" }
        """
    )
    assert [receiver.options["url"][-6:] for receiver in load(file).notify.receivers] == ["/other", "9/hook"]
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[notify]\nwebhooks = [{ address = 1 }]\n")
    with pytest.raises(BadSettings, match="address"):
        load(wrong)
