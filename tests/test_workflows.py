"""Workflows, the compose file, the citation and the version numbers of a release."""

import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.release import main, notes, versions
from serve_app.settings import load

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
COMPOSE = ROOT / "deploy/compose/compose.yaml"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        *((path, "github-workflows") for path in WORKFLOWS),
        (COMPOSE, "compose-spec"),
        (ROOT / "CITATION.cff", "citation-file-format"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_file_follows_the_schema_of_who_reads_it(path: Path, schema: str) -> None:
    read = document(path)
    if True in read:  # YAML 1.1 reads the key `on` as true
        read["on"] = read.pop(True)
    rules = json.loads((ROOT / f"tests/schemas/{schema}.json").read_text(encoding="utf-8"))
    jsonschema.validators.validator_for(rules)(rules).validate(read)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_steps_run_targets_of_the_makefile(path: Path) -> None:
    commands = [step["run"] for step in steps(document(path)) if "run" in step]
    called = [target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)]
    assert called
    assert set(called) <= TARGETS


def test_both_supported_versions_of_python_run_what_make_check_runs() -> None:
    job = document(ROOT / ".github/workflows/check.yml")["jobs"]["check"]
    lowest, above = re.findall(
        r"3\.(\d+)", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    )
    assert job["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in range(int(lowest), int(above))]


def test_a_release_waits_for_all_checks_and_for_a_person() -> None:
    jobs = document(ROOT / ".github/workflows/release.yml")["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["check"]["uses"] == "./.github/workflows/check.yml"
    assert jobs["publish"]["environment"] == "release"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_only_read_unless_a_job_says_more(path: Path) -> None:
    assert document(path)["permissions"] == {"contents": "read"}


def test_owners_name_paths_that_exist() -> None:
    lines = [line.split() for line in (ROOT / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in "#"]
    assert [path for path, *_ in lines if path != "*" and not (ROOT / path.strip("/")).exists()] == []
    assert all(owner.startswith("@") for _, *owners in lines for owner in owners)


def test_the_compose_file_starts_the_service_with_settings_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    services = document(COMPOSE)["services"]
    command = services["tagae"]["command"].split()
    given = dict(pair.split("=", 1) for option, pair in itertools.pairwise(command) if option == "--set")
    overrides: dict[str, Any] = {}
    for name, value in given.items():
        group, setting = name.split(".")
        overrides.setdefault(group, {})[setting] = value
    settings = load(COMPOSE.parent / "tagae.toml", overrides)
    assert settings.serve.allow_anonymous
    assert settings.serve.host == "0.0.0.0"
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"])
    mounted = [volume.split(":")[0] for service in services.values() for volume in service["volumes"]]
    assert all((COMPOSE.parent / path).is_file() for path in mounted if path.startswith("./"))
    assert services["tagae"]["build"]["target"] in re.findall(r"FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text())


def test_all_files_name_one_version() -> None:
    assert len(set(versions().values())) == 1, versions()


def test_a_release_needs_its_section_in_the_changelog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.2.0] - 2026-01-01\n\n- this\n\n## [1.1.0]\n\n- that\n"
    )
    assert notes("1.2.0", tmp_path) == "- this\n"
    with pytest.raises(ValueError, match=r"expected a section \[1\.3\.0\], got none"):
        notes("1.3.0", tmp_path)
    assert main("check", "v99.0.0") == 1
    said = capsys.readouterr().err
    assert "pyproject.toml: expected 99.0.0, got" in said
    assert "CHANGELOG.md" in said
