"""The rules of the house that can be read off the source: floors, who may import what, names."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = {
    "kernels": {"kernels"},
    "partitioning": {"partitioning"},
    "model": {"model", "kernels"},
    "serve_app": {"serve_app", "model", "partitioning", "kernels"},
}
# Floors within serve_app, from the ground up. A module imports from its own package and from floors below only.
SERVE_APP = (
    ("errors", "metrics"),
    ("access", "net"),
    ("api",),
    ("settings",),
    ("pipeline", "collect", "recordings", "alerts", "actions"),
    ("exporter", "simulator", "stores"),
    ("web", "doctor", "session"),
    ("evaluation", "deployments", "sidecar"),
    ("app",),
    ("demo",),
    ("cli",),
)
MOST_PACKAGES = 26  # on the picture of the structure: rooms of serve_app, and the packages below
HTTP = tuple(
    f"serve_app/deployments/{name}"
    for name in (
        "access_control.py",
        "backend.py",
        "bodies.py",
        "connections.py",
        "gate.py",
        "http.py",
        "problems.py",
        "remote_control.py",
        "routes/",
        "streams.py",
    )
)
ROOMS = {  # who may import what; a folder ends with a slash
    "ray": ("serve_app/app.py", "serve_app/deployments/"),
    "fastapi": HTTP,
    "starlette": HTTP,
    "pydantic": ("serve_app/settings/", "serve_app/api/", "serve_app/app.py", "serve_app/web/documents.py"),
    "pydantic_core": ("serve_app/settings/", "serve_app/api/codec/"),
    "pydantic_settings": ("serve_app/settings/",),
    "torch": ("kernels/", "model/", "serve_app/"),
    "msgspec": (
        "serve_app/api/codec/",
        "serve_app/alerts/payloads.py",
        "serve_app/web/",
        "serve_app/deployments/routes/login.py",
        "serve_app/deployments/streams.py",
        "serve_app/collect/prometheus/",
        "serve_app/collect/kubernetes/",
    ),
    "pyarrow": ("serve_app/recordings/", "serve_app/api/codec/arrow", "serve_app/api/codec/columns.py"),
    "pymetis": ("partitioning/",),
    "typer": ("serve_app/cli/",),
    "mcp": ("serve_app/cli/mcp/",),
    "grpc": ("serve_app/sidecar/",),
    "google": ("serve_app/sidecar/", "serve_app/collect/otlp/"),  # protobuf
    "opentelemetry": ("serve_app/collect/otlp/",),
}
ENVIRONMENT = (
    "serve_app/settings/settings.py",
    "serve_app/deployments/__init__.py",
    "serve_app/deployments/local.py",
    "serve_app/doctor/installation.py",
    "serve_app/demo/browser.py",
    "kernels/_registry.py",
)
UNSAFE = {"eval", "exec", "torch.load", "torch.save"}
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "dbm"}  # code in disguise

Found = Iterator[tuple[int, str]]  # line, what


def imports(tree: ast.AST) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, (node.module or ".").split(".")[0]


def imports_up_or_sideways(name: str, tree: ast.Module) -> Found:
    allowed = FLOORS[name.split("/")[0]]
    yield from ((at, what) for at, what in imports(tree) if what in (*FLOORS, "") and what not in allowed)


def imports_up_or_sideways_in_serve_app(name: str, tree: ast.Module) -> Found:
    if not name.startswith("serve_app/") or name == "serve_app/__init__.py":
        return
    room = name.split("/")[1].removesuffix(".py")
    floor = {one: i for i, rooms in enumerate(SERVE_APP) for one in rooms}
    for node in ast.walk(tree):
        modules: list[str] = []
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "serve_app"
            modules = [f"serve_app.{alias.name}" for alias in node.names] if whole else [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "serve_app" and len(parts) > 1 and parts[1] != room and floor[parts[1]] >= floor[room]:
                yield line, module


def imports_out_of_room(name: str, tree: ast.Module) -> Found:
    yield from ((at, what) for at, what in imports(tree) if what in ROOMS and not name.startswith(ROOMS[what]))


def imports_of_pyg_at_module_level(name: str, tree: ast.Module) -> Found:
    late = {at for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for at, _ in imports(f)}
    late |= {
        at
        for f in tree.body
        if isinstance(f, ast.If) and "TYPE_CHECKING" in ast.unparse(f.test)
        for at, _ in imports(f)
    }
    yield from ((at, what) for at, what in imports(tree) if what == "torch_geometric" and at not in late)


def reads_of_the_environment(name: str, tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and name not in ENVIRONMENT:
            yield node.lineno, node.attr


def unsafe_calls(name: str, tree: ast.Module) -> Found:
    calls = ((node.lineno, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call))
    yield from ((at, what) for at, what in calls if what in UNSAFE)
    yield from ((at, what) for at, what in imports(tree) if what in UNSAFE_MODULES)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.value.lineno, "allow_pickle"


def names_that_say_nothing(name: str, tree: ast.Module) -> Found:
    if re.search(r"/(utils|helpers|common)\.py$", name):
        yield 1, name
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and re.search(r"(Manager|Handler|Processor)$", node.name):
            yield node.lineno, node.name


RULES = [
    imports_up_or_sideways,
    imports_up_or_sideways_in_serve_app,
    imports_out_of_room,
    imports_of_pyg_at_module_level,
    reads_of_the_environment,
    unsafe_calls,
    names_that_say_nothing,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_nowhere(rule: Callable[[str, ast.Module], Found]) -> None:
    files = [path for package in FLOORS for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 30, "the packages are not where this test looks"
    broken = [
        f"{name}:{at}: {what}"
        for name, path in ((path.relative_to(ROOT).as_posix(), path) for path in files)
        for at, what in rule(name, ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not broken


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (imports_up_or_sideways, "model/x.py", "def f():\n    from serve_app.api.codec import y"),
        (imports_up_or_sideways, "partitioning/x.py", "import kernels"),
        (imports_up_or_sideways_in_serve_app, "serve_app/api/x.py", "from serve_app.settings import Settings"),
        (imports_up_or_sideways_in_serve_app, "serve_app/alerts/x.py", "def f():\n    from serve_app import collect"),
        (imports_up_or_sideways_in_serve_app, "serve_app/metrics.py", "import serve_app.net.http"),
        (imports_out_of_room, "serve_app/pipeline.py", "import ray"),
        (imports_out_of_room, "partitioning/plan.py", "from torch import Tensor"),
        (imports_of_pyg_at_module_level, "model/x.py", "from torch_geometric.data import Data"),
        (reads_of_the_environment, "model/x.py", "import os\nx = os.environ['X']"),
        (unsafe_calls, "model/x.py", "x = torch.load(path)"),
        (unsafe_calls, "model/x.py", "from pickle import loads"),
        (unsafe_calls, "model/x.py", "x = np.load(path, allow_pickle=True)"),
        (names_that_say_nothing, "model/utils.py", ""),
        (names_that_say_nothing, "model/x.py", "class StateManager: ..."),
    ],
)
def test_each_rule_sees_what_it_forbids(rule: Callable[[str, ast.Module], Found], name: str, source: str) -> None:
    assert list(rule(name, ast.parse(source)))


def test_the_structure_fits_on_one_picture() -> None:
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "serve_app").iterdir() if path.suffix in ("", ".py")}
    rooms -= {"__init__", "__pycache__"}
    assert rooms == {room for floor in SERVE_APP for room in floor}
    assert len(rooms) + len(FLOORS) - 1 <= MOST_PACKAGES


@pytest.mark.parametrize("package", FLOORS)
def test_a_class_name_exists_once_in_a_package(package: str) -> None:
    names = Counter(
        node.name
        for path in (ROOT / package).rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and path.parent.name != "generated"
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["kernels", "partitioning", "serve_app.cli", "serve_app.demo"])
def test_all_is_what_is_there(package: str) -> None:
    """Every public name that a package's own file brings in is promised, and every promise is kept."""
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    brought = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert all(hasattr(module, name) for name in module.__all__)
    assert sorted(module.__all__) == module.__all__
    if not package.startswith("serve_app"):
        assert set(module.__all__) == brought
