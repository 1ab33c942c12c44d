"""Lock files against constraints.txt and pyproject.toml, and the supply chain's targets with failing tools."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "requirements-test.lock", "requirements-supply.lock", "requirements-docs.lock")
# Wheels that differ between indexes: see pyproject.toml.
WITHOUT_HASH = {"torch"}
# Extras that only developers install, with versions: CONTRIBUTING.md.
EXTRAS_WITHOUT_LOCK = {"live", "page"}


def normalize(name: str) -> str:
    """Return a package's name, normalized as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pinned_versions(text: str) -> dict[str, str]:
    return {normalize(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def hashes(text: str) -> dict[str, list[str]]:
    """Return hashes by ``name==version`` of a lock file, in which a backslash continues a line."""
    joined = text.replace("\\\n", " ").splitlines()
    requirements = [line for line in joined if line.strip() and not line.startswith("#")]
    return {line.split()[0]: re.findall(r"--hash=(\S+)", line) for line in requirements}


CONSTRAINTS = pinned_versions(read("constraints.txt"))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_has_a_version_and_hashes(lock: str) -> None:
    found = hashes(read(lock))
    assert len(found) > 20
    for requirement, digests in found.items():
        assert re.fullmatch(r"[\w.-]+==\S+", requirement), requirement
        assert digests, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index(lock: str) -> None:
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", read(lock))


@pytest.mark.parametrize("lock", LOCKS[:2])
def test_a_lock_and_the_constraints_name_the_same_versions(lock: str) -> None:
    """After a change of either, run `make lock`."""
    locked = pinned_versions(read(lock))
    assert {name: version for name, version in locked.items() if CONSTRAINTS.get(name) != version} == {}
    assert not WITHOUT_HASH & locked.keys()


def names(requirements: list[str]) -> set[str]:
    return {normalize(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in requirements}


def test_the_locks_hold_all_dependencies() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    running = names(project["dependencies"])
    assert running - pinned_versions(read("requirements.lock")).keys() == WITHOUT_HASH
    testing = running | names([r for extra in ("test", "pyg") for r in extras[extra]]) - {"tagae"}
    assert testing - pinned_versions(read("requirements-test.lock")).keys() == WITHOUT_HASH
    unlocked = CONSTRAINTS.keys() - pinned_versions(read("requirements-test.lock")).keys() - WITHOUT_HASH
    direct = {name for extra in EXTRAS_WITHOUT_LOCK for name in names(extras[extra])}
    assert unlocked & direct == direct - pinned_versions(read("requirements-test.lock")).keys()


def test_the_lock_has_the_requirements_of_torch() -> None:
    """torch is not in the lock, so its requirements are listed for uv. The versions must agree."""
    (metadata,) = tomllib.loads(read("pyproject.toml"))["tool"]["uv"]["dependency-metadata"]
    assert (metadata["name"], metadata["version"]) == ("torch", CONSTRAINTS["torch"])
    assert names(metadata["requires-dist"]) <= pinned_versions(read("requirements.lock")).keys()


def make(target: str, tools: Path) -> subprocess.CompletedProcess[str]:
    """Run a target of the Makefile with the tools in a folder. Its environment counts as up to date."""
    program = shutil.which("make")
    if program is None:
        pytest.skip("no make here")
    command = [program, "-o", ".venv-supply/.stamp", target, f"SUPPLY={tools}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(("status", "passes"), [(0, True), (1, False), (2, False), (137, False)])
def test_an_audit_that_did_not_succeed_fails(tmp_path: Path, status: int, passes: bool) -> None:
    """pip-audit exits with 1 for a vulnerability and for an unreachable service. Neither may look clean."""
    (tmp_path / "pip-audit").write_text(f"#!/bin/sh\nexit {status}\n")
    (tmp_path / "pip-audit").chmod(0o755)
    done = make("audit", tmp_path)
    assert (done.returncode == 0) is passes
    assert ("this is not a clean result" in done.stderr) is not passes


def test_an_audit_covers_every_pinned_version(tmp_path: Path) -> None:
    (tmp_path / "pip-audit").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pip-audit").chmod(0o755)
    words = make("audit", tmp_path).stdout.split()
    assert words[words.index("-r") + 1] == "constraints.txt"
    assert "--strict" in words  # a package that cannot be audited is a failure
    assert CONSTRAINTS.keys() >= pinned_versions(read("requirements-test.lock")).keys()
