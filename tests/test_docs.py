"""Commands and examples in README, docs/ and the packages' pages work as written."""

import ast
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from benchmarks.figures import insert_table, tables
from serve_app.cli import app
from serve_app.collect.prometheus.dialects.shipped import KNOWN
from serve_app.settings import load
from tests.site_pages import site_pages
from tests.timing import PATIENCE_SECONDS

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING, SECURITY = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
OUTSIDE = {".venv", ".venv-docs", ".venv-supply", "build", "node_modules", "out"}
PAGES = sorted(path for path in ROOT.rglob("README.md") if not OUTSIDE & set(path.relative_to(ROOT).parts))
PACKAGES = ("serve_app", "model", "partitioning", "kernels", "lab")
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
EXAMPLES_PAGE = ROOT / "examples" / "README.md"
API = ROOT / "docs" / "api.md"
OTHERS = [page for page in site_pages() if page.parent == ROOT / "docs" and page != API]
READ = (README, API, *OTHERS, EXAMPLES_PAGE)  # commands run in this order: the API's continue README's
PORT = 8000
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"""(?<=\]\()[^)]+|(?<=src=")[^"]+|(?<=srcset=")[^"]+""")

# Blocks that are not run, by a word in them: why, and what tests them instead. Targets, options and files exist.
NOT_RUN = {
    "make demo": "this suite is `make test`; test_demo.py",
    "make setup": "runs this suite; its second line runs below",
    "pip install tagae": "the public index; test_wheel.py installs the wheel, and a test below the versions of torch",
    "tagae doctor --config": "a Prometheus; tests/live, and test_living_service.py",
    "tagae serve --config": "a second Ray; test_serve_starts_and_ends",
    "make mesh": "Envoys; tests/live/test_tutorial.py",
    "out/mesh/tagae.toml": "the mesh of `make mesh`; tests/live/test_tutorial.py",
    "/faults": "the mesh of `make mesh`; tests/live/test_tutorial.py",
    "shop/report": "an incident of that mesh; tests/live/test_tutorial.py",
    "docker build": "no Docker here; tests/cluster/test_images.py",
    "make images": "no Docker here; tests/cluster/test_images.py",
    "docker compose": "no Docker here; test_workflows.py",
    "helm ": "tests/cluster/test_page.py",
    "kubectl ": "no cluster here; tests/cluster/test_page.py runs what needs none",
    "make test-kubernetes": "no cluster here; tests/kubernetes runs where KUBECONFIG names one",
    "systemctl": "no systemd that runs here; test_systemd.py",
    "tagae serve --single": "a Prometheus; tests/serve_app/sidecar",
    "ls out/recordings": "recordings of one's own; tests/serve_app/cli runs the command on one",
    "tagae score --prometheus": "a Prometheus with a past; tests/live/test_replayed_incident.py",
    "--since 24h": "a Prometheus with a past; tests/live/test_day_zero.py",
    "tagae store copy": "a Redis; tests/serve_app/stores/test_store_copy.py",
    "tagae embeddings export": "a service with a mesh; tests/serve_app/test_embeddings_service.py",
    "tagae notify test": "receivers; tests/serve_app/alerts/test_receivers_of_a_service.py",
    "tagae doctor --bench": "a store with meshes; tests/serve_app/doctor/test_speed.py",
    "promtool query": "a Prometheus with sidecars; tests/serve_app/sidecar",
    "tagae models": "a registry and a service with one; tests/serve_app/models",
    "tagae incidents show": "an incident; tests/serve_app/cli/test_incidents_command.py",
    "--objectives": "a file of settings; tests/serve_app/test_objectives.py, tests/live/test_objective_rules.py",
    "npm install": "npm; tests/examples/test_score_onnx.py runs the program where the package is",
    "jupyter": "Jupyter; tests/examples/test_notebook.py runs the cells",
    "make train": "half an hour, and would replace the weights; test_train_makes_weights_that_score",
    "tagae train": "half an hour; test_train_makes_weights_that_score, and a test below with fewer steps",
}
# A command that is ended after this output.
ENDLESS = {"/verdicts/stream": "event: verdict", "webhook_receiver.py": "ready at", "serve_onnx.py": "http://"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


BLOCKS = [Block(page, *found) for page in READ for found in FENCE.findall(page.read_text("utf-8"))]
TYPED = [block for block in BLOCKS if block.language == "bash"]
COMMANDS = [
    line for block in TYPED for line in block.text.replace("\\\n", " ").splitlines() if re.match(r"\S*tagae ", line)
]
EXAMPLES = [
    pytest.param(text, id=f"{page.parent.relative_to(ROOT).as_posix()}-{i}")
    for page in PAGES
    if page not in READ
    for i, (language, text) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if language == "python"
]


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let commands see the packages that an installation has, and nothing else of this checkout."""
    folder = tmp_path_factory.mktemp("site-packages")
    for package in PACKAGES:
        (folder / package).symlink_to(ROOT / package)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield


def typed(word: str) -> str:
    return next(block.text for block in TYPED if word in block.text)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = "".join(page.read_text("utf-8") for page in (*READ, CONTRIBUTING, SECURITY))
    mentioned = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"setup", "demo", "bench", "test", "check", "train"} <= mentioned
    assert [target for target in mentioned if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_pip_installs_the_torch_that_tagae_needs() -> None:
    """The CPU build is installed first. It needs the versions of ``pyproject.toml``, or pip replaces it."""
    (versions,) = re.findall(r'^    "torch([^"]+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    first, second = [line for line in typed("pip install tagae").splitlines() if "pip install" in line]
    assert first == f"pip install 'torch{versions}' --index-url \"$TORCH_INDEX_URL\""
    assert second == "pip install tagae"


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_and_their_options_exist(line: str) -> None:
    command = get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "commands") and words and not words[0].startswith("-"):  # a group has options too
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert [word for word in words if word.startswith("-") and word != "-" and word not in known] == []


def test_images_and_manifests_exist() -> None:
    text = "".join(page.read_text("utf-8") for page in READ)
    stages = set(re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE))
    targets, manifests = (
        re.findall(r"docker build --target (\S+)", text),
        re.findall(r"kubectl apply -f ([^\s`]+)", text),
    )
    assert {"cpu", "gpu"} == set(targets) <= stages
    assert len(manifests) >= 2
    assert [name for name in manifests if not (ROOT / name).exists()] == []


def test_links_and_their_anchors_exist() -> None:
    missing, found = [], 0
    for page in {*PAGES, *READ, *DECISIONS, *REFERENCE, CONTRIBUTING, SECURITY}:
        for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            place = page.parent / name if name else page
            found += 1
            if not place.exists() or (anchor and anchor not in anchors(place)):
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert found >= 50
    assert missing == []


def test_files_named_for_contributors_exist() -> None:
    """The lists of files in CONTRIBUTING.md are only useful if they are complete and correct."""
    top = "|".join((*PACKAGES, "benchmarks", "deploy", "docs", "tests"))
    pages = (CONTRIBUTING, *DECISIONS, ROOT / "docs" / "glossary.md", ROOT / "docs" / "releasing.md")
    texts = {page: FENCE.sub("", page.read_text("utf-8")) for page in pages}
    named = {(page.name, path) for page, text in texts.items() for path in re.findall(rf"`((?:{top})/[\w./-]+)`", text)}
    assert len(named) > 80
    assert sorted(f"{page}: {path}" for page, path in named if not (ROOT / path).exists()) == []
    alone = re.findall(r"`(\w+\.(?:py|yaml|toml))`", texts[CONTRIBUTING])  # next to a file of the same row
    known = {path.name for path in ROOT.rglob("*.*") if not OUTSIDE & set(path.relative_to(ROOT).parts)}
    assert sorted(set(alone) - known) == []


def test_the_index_lists_every_decision() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\((.+?)\) \| (.+) \|$", index, re.MULTILINE)
    assert [name for _, name, _ in listed] == [page.name for page in DECISIONS]
    for number, name, title in listed:
        text = (ROOT / "docs" / "decisions" / name).read_text("utf-8")
        assert text.startswith(f"# {number}: {title}\n")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Status", "Context", "Decision", "Consequences", "Alternatives"], name


def test_hooks_before_a_commit_run_what_check_runs_without_the_tests() -> None:
    (recipe,) = re.findall(r"^check:.*\n\t(.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    checked = {tuple(command.split()[:3]) for command in recipe.split("&&") if "pytest" not in command}
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert local["repo"] == "local"
    hooks = {tuple(hook["entry"].replace(".venv/bin", "$(BIN)").split()[:3]) for hook in local["hooks"]}
    assert {words[:2] for words in hooks} == {words[:2] for words in checked}
    assert all(hook["language"] == "system" for hook in local["hooks"])


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of headings."""
    known: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{known[name]}" if known[name] else name)
        known[name] += 1
    return names


@pytest.mark.parametrize("text", EXAMPLES)
def test_python_examples_run(text: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", text], tmp_path)


SETTINGS = [
    pytest.param(text, id=f"{page.relative_to(ROOT).as_posix()}-{i}")
    for page in dict.fromkeys((*READ, *PAGES, CONTRIBUTING, SECURITY))
    if page.parent.name != "tagae-files"  # its settings need the package; tests/test_other_packages.py reads them
    for i, (language, text) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if language == "toml"
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_of_examples_are_valid(text: str, tmp_path: Path) -> None:
    config = tmp_path / "tagae.toml"
    config.write_text(text, encoding="utf-8")
    assert load(config).model_copy(update={"config": None}) != load()


def test_each_source_has_an_example() -> None:
    page = ROOT / "docs" / "sources.md"
    examples = "".join(text for language, text in FENCE.findall(page.read_text("utf-8")) if language == "toml")
    beside = {"istio-ambient", *(name for name, dialect in KNOWN.items() if dialect.front_door)}
    assert [name for name in KNOWN if f'"{name}"' not in examples and name not in beside] == []
    assert [name for name in KNOWN if f"`{name}`" not in page.read_text("utf-8")] == []


def test_readme_and_the_page_on_live_meshes_name_each_source() -> None:
    names = {  # as people call them
        "istio-ambient": "ambient",
        "opentelemetry": "service graph",
        "opentelemetry-http": "HTTP metrics of OpenTelemetry",
        "span-metrics": "span metrics",
        "nginx-ingress": "ingress-nginx",
        "envoy-gateway": "Envoy Gateway",
        "haproxy-ingress": "HAProxy",
    }
    section = README.read_text("utf-8").partition("## Your own mesh in five minutes")[2].partition("\n## ")[0].lower()
    assert [name for name in KNOWN if names.get(name, name).lower() not in section] == []
    live = (ROOT / "docs" / "live-mesh.md").read_text("utf-8")
    assert [name for name in KNOWN if f"`{name}`" not in live] == []


def test_each_source_has_a_live_test() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests" / "live").rglob("*.py")]
    assert [name for name in KNOWN if not any(f'"{name}"' in text for text in texts)] == []


def test_tables_match_the_results() -> None:
    assert [
        path for path, name, text in tables() if insert_table(path.read_text("utf-8"), name, text) != path.read_text()
    ] == []


def test_messages_in_troubleshooting_exist_in_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \|", (ROOT / "docs" / "troubleshooting.md").read_text("utf-8"), re.MULTILINE)
    quotes = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    texts = product_texts()
    assert len(rows) >= 20
    unknown = [quote for quote in quotes if any(part.strip() not in texts for part in quote.split("…"))]
    assert unknown == []


def product_texts() -> str:
    """Return all texts of the product: in its code, its page, its alerts, its Makefile."""
    code = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    texts = [
        node.value
        for path in code
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    static = ROOT / "serve_app" / "web" / "static"
    others = [*static.glob("*.js"), *static.glob("*.html"), *(ROOT / "deploy").rglob("*.yaml"), ROOT / "Makefile"]
    return "\n".join([*texts, *(path.read_text("utf-8") for path in others)])


def test_tables_of_contributing_name_existing_code() -> None:
    """Code in the second column of a row is in a file of the first column, or in a test or document of the row."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    unknown = [target for line in re.findall(r"\bmake ([a-z -]+?)[`\"]", text) for target in line.split()]
    unknown = [target for target in unknown if not target.startswith("-") and target not in targets]
    for places, change in re.findall(r"^\| (.*`.*) \| (.*`.*) \|$", text, re.MULTILINE):
        paths = [path for path in re.findall(r"`([^`]+)`", places) if (ROOT / path).exists()]
        files = [
            file for path in paths for file in ((ROOT / path).rglob("*") if (ROOT / path).is_dir() else [ROOT / path])
        ]
        content = "".join(
            file.read_text("utf-8") for file in files if file.suffix in (".py", ".yaml", ".toml", ".md", ".js")
        )
        for code in re.findall(r"`([^`]+)`", change):
            word = code.split("(")[0].split(".")[-1]
            if re.fullmatch(r"\w+", word) and "/" not in code and not code.endswith((".py", ".yaml", ".toml", ".md")):
                unknown += [] if re.search(rf"\b{word}\b", content) else [f"{code} in {places}"]
            elif "/" in code and "{" not in code:
                unknown += [] if (ROOT / code).exists() else [code]
    assert unknown == []


def test_blocks_that_are_not_run_exist() -> None:
    assert [word for word in (*NOT_RUN, *ENDLESS) if not any(word in block.text for block in TYPED)] == []


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl, which is not here")
def test_commands_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as probe:
        if not probe.connect_ex(("127.0.0.1", PORT)):
            pytest.skip(f"port {PORT}, which the pages use, is taken here")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".curlrc").write_text("fail-with-body\n", encoding="utf-8")  # an error document fails the command
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with run_block(typed("tagae serve\n"), tmp_path):
        outputs = {block.text: ran(block, tmp_path) for block in BLOCKS if is_run(block)}
    outcomes(outputs)
    assert (tmp_path / "incident.html").stat().st_size > 10_000
    assert (tmp_path / "state-backup.sqlite").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="the pyg extra is not installed")
def test_another_network_is_trained_and_judged_as_written(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    recorded = ".venv/bin/tagae simulate out/shop --services 20 --calls-per-service 2 --snapshots 120 --first-fault 30"
    sizes = "--meshes 6 --snapshots 200 --steps 10 --meta-steps 10 --jobs 1"
    small = typed("--network examples.").replace("GATv2Network\n", f"GATv2Network {sizes}\n", 1)
    assert sizes in small
    run(["bash", "-euc", f"{recorded}\n{small}"], tmp_path)
    verdicts = [(tmp_path / f"out/{name}.jsonl").read_text("utf-8").splitlines() for name in ("gatv2", "tagae")]
    assert [len(lines) for lines in verdicts] == [120, 120]


def is_run(block: Block) -> bool:
    return block.language in ("bash", "python") and not any(word in block.text for word in NOT_RUN)


def ran(block: Block, folder: Path) -> str:
    """Run a block and return its output."""
    for word, sign in ENDLESS.items():
        if word in block.text:
            return until(block.text, sign, folder)
    shell = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    return run([*shell, block.text], folder)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_SECONDS
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def until(text: str, sign: str, folder: Path) -> str:
    """Run an endless command up to the line with this text, and return its output."""
    with subprocess.Popen(["bash", "-c", f"exec {text}"], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if sign in line:
                process.terminate()
                return "".join(output)
    raise AssertionError(f"{text} ended without {sign!r}: {''.join(output)[-2000:]}")


def outcomes(outputs: dict[str, str]) -> None:
    """Check that the answers are those that the pages describe."""
    pushed, newest = documents(outputs[typed("/shop/snapshots")])
    assert (pushed["status"], pushed["sequence"]) == ("warming_up", 1)
    assert newest == pushed
    kept, listed = documents(outputs[typed('"services": ["shop/cart"], "since"')])
    assert (kept["missed"], kept["services"], listed) == (True, ["shop/cart"], {"feedback": [kept]})
    mute, listed = documents(outputs[typed("database upgrade")])
    assert (mute["services"], mute["in_force"], listed) == (["shop/cart"], True, {"mutes": [mute]})
    now, listed, one = documents(outputs[typed("/incidents/$INCIDENT")])
    assert {incident["id"] for incident in now["incidents"]} <= {incident["id"] for incident in listed["incidents"]}
    assert one["id"] in {incident["id"] for incident in listed["incidents"]}
    agreed, denied = documents(outputs[typed('"was_incident": false')])
    assert (agreed["was_incident"], denied["was_incident"]) == (True, False)
    assert agreed["culprit"] in agreed["services"], "the service with injected latency"


def documents(text: str) -> list[dict[str, Any]]:
    """Split text into consecutive JSON documents."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


@contextmanager
def run_block(text: str, folder: Path) -> Iterator[None]:
    """Run the last line of a block, because `make setup` is done, and end it with a signal."""
    *_, command = text.splitlines()
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    output = []
    try:
        for line in process.stdout:
            output.append(line)
            if line.startswith("ready after"):
                break
        else:
            raise AssertionError("".join(output)[-2000:])
        yield
    finally:
        # Not SIGINT: if this suite runs in the background of a shell, the child ignores it.
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
