"""The paths of CONTRIBUTING.md, proved: each names exactly the files that a real change touches.

A change is made in a copy of the tree. With all files of the table it passes the tests; without any one of them it does
not.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = "examples/tagae-files"
STORE_CHECK = """
import sys
from contextlib import closing
from pathlib import Path
from serve_app.settings import StoreSettings
from serve_app.stores.opening import open_store

with closing(open_store(StoreSettings(kind="files", options={"folder": sys.argv[1]}))) as store:
    store.replace("shop", b"state", revision=0)
"""
DIALECT = "smi"  # a mesh that TAGAE does not know
DIALECT_FILE = f"serve_app/collect/prometheus/dialects/{DIALECT}.py"
DIALECT_CHANGE = {  # the change that adds it: what is inserted before a line, by file
    "serve_app/settings/plugins.py": (
        r'        "traefik": ',
        f'        "{DIALECT}": f"{{_DIALECTS}}.{DIALECT}:{DIALECT}",\n',
    ),
    "tests/live/test_dialects.py": (r"def test_", f'MESH = "{DIALECT}"\n\n\n'),
    "README.md": (r"(?<=## Your own mesh in five minutes\n)", f"\nAlso {DIALECT}.\n"),
    "docs/sources.md": (r"\Z", f'\n`{DIALECT}`:\n\n```toml\n[meshes.shop]\nsource = "{DIALECT}"\n```\n'),
    "docs/live-mesh.md": (r"\Z", f"\n`{DIALECT}` is a mesh.\n"),
}
# Runs in the copy: prints which checks fail with the whole change, and with each file as it was before.
DIALECT_CHECK = """
import json, sys
from pathlib import Path
import tests.test_docs as docs, tests.test_paths as paths
from serve_app.collect.prometheus.dialects.known import KNOWN
from tests.serve_app.collect.prometheus import test_match, test_recording_rules

def fails(check, *given):
    try:
        check(*given)
    except AssertionError:
        return True
    return False

def failing():
    checks = (docs.test_each_source_has_an_example, docs.test_readme_and_the_page_on_live_meshes_name_each_source,
              paths.test_each_dialect_has_a_live_test)
    return [check.__name__ for check in checks if fails(check)]

name, before = sys.argv[1], json.loads(Path("before.json").read_text())
result = {"": failing()}
assert KNOWN[name].name == name
test_recording_rules.test_rules_of_every_other_kind_fit_alone(name)
for path, text in before.items():
    now = Path(path).read_text("utf-8")
    Path(path).write_text(text, "utf-8")
    result[path] = failing()
    Path(path).write_text(now, "utf-8")
print(json.dumps(result))
"""


def files_of(heading: str) -> set[str]:
    """The files and folders that the table under a heading of CONTRIBUTING.md lists."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition(f"**{heading}**")[2].partition("\n\n**")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {file for row in rows for file in re.findall(r"`([^`]+)`", row)}


def copy_tree(target: Path) -> None:
    """Copy the tracked files, and the compiled ops."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in [*listed.stdout.decode().split("\0"), *map(str, (ROOT / "kernels").glob("*.so"))]:
        source = ROOT / name
        if name and source.is_file():
            place = target / source.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)


def python(folder: Path, path: list[Path], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": ":".join(map(str, path)), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_each_dialect_has_a_live_test() -> None:
    from serve_app.collect.prometheus.dialects.known import KNOWN

    texts = [path.read_text("utf-8") for path in Path("tests/live").glob("*.py")]
    assert [name for name in KNOWN if not any(f'"{name}"' in text for text in texts)] == []


@pytest.mark.slow
def test_a_dialect_touches_these_files(tmp_path: Path) -> None:
    folder, file = DIALECT_FILE.rpartition("/")[::2]
    assert files_of("A mesh dialect: another kind of mesh in Prometheus") == {f"{folder}/", *DIALECT_CHANGE}
    copy_tree(tmp_path)
    kuma = (tmp_path / folder / "kuma.py").read_text("utf-8")
    (tmp_path / folder / file).write_text(kuma.replace("kuma", DIALECT), "utf-8")
    before = {}
    for name, (place, text) in DIALECT_CHANGE.items():
        path = tmp_path / name
        before[name] = path.read_text("utf-8")
        changed = re.sub(place, lambda found, text=text: text + found[0], before[name], count=1)  # type: ignore[misc]
        assert changed != before[name], f"{name}: the place of the change is gone"
        path.write_text(changed, "utf-8")
    without_line = before.pop("serve_app/settings/plugins.py")
    (tmp_path / "before.json").write_text(json.dumps(before))
    done = python(tmp_path, [tmp_path], DIALECT_CHECK, DIALECT)
    assert done.returncode == 0, done.stderr[-3000:]
    failing = json.loads(done.stdout.splitlines()[-1])
    assert failing.pop("") == [], "the change is whole"
    assert [name for name, checks in failing.items() if not checks] == [], "no test needs these files"
    (tmp_path / "serve_app/settings/plugins.py").write_text(without_line, "utf-8")
    assert f"KeyError: '{DIALECT}'" in python(tmp_path, [tmp_path], DIALECT_CHECK, DIALECT).stderr


@pytest.mark.slow
def test_a_store_touches_these_files(tmp_path: Path) -> None:
    listed = files_of("A store, in a package of its own")
    for name in listed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", target, tmp_path / EXAMPLE], check=True)

    def opens() -> subprocess.CompletedProcess[str]:
        return python(tmp_path, [target, ROOT], STORE_CHECK, str(tmp_path / "state"))

    done = opens()
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "state" / "shop.mesh").exists()
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "TestStore and appended", "."]
    contract = subprocess.run(
        tests, cwd=tmp_path / EXAMPLE / "tests", capture_output=True, text=True, check=False,
        env={"PYTHONPATH": f"{target}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert "1 passed" in contract.stdout, contract.stdout[-3000:]
    (target / "tagae_files" / "store.py").unlink()
    assert "expected the plugin 'files' of the package tagae-files" in opens().stderr
    shutil.rmtree(next(target.glob("*.dist-info")))
    assert "expected 'local' or 'redis'" in opens().stderr
