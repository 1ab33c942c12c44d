"""``tagae doctor`` and the OpenID provider."""

from pathlib import Path
from typing import Any

from serve_app.collect.base import Finding
from serve_app.doctor.connections import check_provider
from serve_app.settings import Settings
from tests.serve_app.access.oidc.provider_standin import CLIENT, SECRET, run_provider


def findings(tmp_path: Path, issuer: str, secret: str = SECRET, **notify: Any) -> list[Finding]:
    file = tmp_path / "secret"
    file.write_text(secret)
    oidc = {
        "issuer": issuer,
        "client_id": CLIENT,
        "client_secret_file": file,
        "groups": {"sre": {"scopes": ["read"]}},
    }
    return list(check_provider(Settings(serve={"oidc": oidc}, notify=notify)))


def test_the_addresses_to_register_are_named(tmp_path: Path) -> None:
    with run_provider() as provider:
        found, address = findings(tmp_path, provider.url, external_url="https://mesh.example/tagae")
    assert (found.outcome, address.outcome) == ("ok", "ok")
    assert "keys: 1" in found.found
    assert "https://mesh.example/tagae/login/callback" in address.found


def test_each_mistake_is_a_problem(tmp_path: Path) -> None:
    url = {"external_url": "https://mesh.example"}
    with run_provider() as provider:
        (missing,) = findings(tmp_path, provider.url)
        (short,) = findings(tmp_path, provider.url, secret="short", **url)
        (other,) = findings(tmp_path, provider.url + "/", **url)
    (gone,) = findings(tmp_path, provider.url, **url)
    assert {one.outcome for one in (missing, short, other, gone)} == {"problem"}
    assert "notify.external_url" in missing.found
    assert "at least 24" in short.found
    assert "expected the issuer" in other.found
    assert "unreachable" in gone.found


def test_without_a_provider_there_is_nothing_to_check() -> None:
    assert list(check_provider(Settings())) == []
