"""The rules of the architecture that the source shows: floors, imports, names."""

import ast
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = {
    "kernels": {"kernels"},
    "partitioning": {"partitioning"},
    "model": {"model", "kernels"},
    "serve_app": {"serve_app", "model", "partitioning", "kernels"},
    "lab": {"lab", "serve_app", "model", "partitioning", "kernels"},
}
ABOVE = {"benchmarks", "tests"}  # no package imports them
LATE = {("serve_app/cli/", "lab")}  # imports of a higher floor that a folder may have inside functions
# Floors within serve_app, from the lowest up. A module imports only from its own package and from floors below.
SERVE_APP = (
    ("errors", "metrics"),
    ("net",),
    ("access",),
    ("api", "plugins"),
    ("settings",),
    ("observability",),
    ("pipeline", "collect", "recordings", "actions"),
    ("exporter", "stores"),
    ("alerts",),
    ("web", "mesh_steps", "models", "runtime"),
    ("doctor",),
    ("deployments",),
    ("app", "sidecar"),
    ("cli",),
)
MAX_PACKAGES = 28  # nodes of the structure: folders of serve_app, and the packages below
# The same within serve_app/deployments, by folder or file.
DEPLOYMENTS = (
    ("load",),
    ("scaling",),
    ("notifier", "scoring"),
    ("session",),
    ("collector",),
    ("http",),
    ("gate",),
)
PUBLIC = {  # modules of each room of the deployments that others may import
    "gate": {"gate"},  # for one process; Ray imports the package by name
    "http": {
        "access_control",
        "bodies",
        "handed_bodies",
        "ingress",
        "interface",
        "page_files",
        "problems",
        "traced_requests",
    },
    "scoring": {"in_session", "messages", "meta", "replicas", "scorer"},
    "session": {"api", "mesh_session"},
}
# The same within lab.
LAB = (
    ("simulator", "evaluation"),
    ("contracts", "training", "demo", "export", "datasets"),
    ("comparison",),
)
DEMO = "lab/demo/remote_control.py"  # an application beside the service
HTTP = ("serve_app/deployments/gate/", "serve_app/deployments/http/", "serve_app/sidecar/", DEMO)
ROOMS = {  # allowed imports; a folder ends with a slash
    "ray": ("serve_app/app.py", "serve_app/deployments/scaling.py", "serve_app/runtime/", DEMO),
    "fastapi": HTTP,
    "starlette": HTTP,
    "pydantic": (
        "serve_app/plugins.py",
        "serve_app/settings/",
        "serve_app/api/",
        "serve_app/app.py",
        "serve_app/web/documents.py",
        "serve_app/alerts/",  # the options of each receiver
    ),
    "pydantic_core": ("serve_app/settings/", "serve_app/api/codec/", "serve_app/plugins.py"),
    "pydantic_settings": ("serve_app/settings/",),
    "torch": (
        "kernels/",
        "model/",
        "serve_app/",
        "lab/training/",
        "lab/contracts/networks.py",
        "lab/datasets/",
        "lab/export/",
        "lab/comparison/lines.py",
    ),
    "msgspec": (
        "model/state/serialization.py",
        "serve_app/api/codec/",
        "serve_app/alerts/",
        "serve_app/stores/",
        "serve_app/web/",
        "serve_app/deployments/http/routes/login.py",
        "serve_app/deployments/http/routes/views.py",
        "serve_app/deployments/http/streams.py",
        "serve_app/collect/loop.py",
        "serve_app/collect/prometheus/",
        "serve_app/collect/kubernetes/",
        "serve_app/collect/tools/",
    ),
    "pyarrow": (
        "serve_app/recordings/",
        "serve_app/api/codec/",
        "serve_app/stores/",
        "serve_app/web/assets.py",  # for its Brotli
    ),
    "pytest": ("lab/contracts/",),
    "pymetis": ("partitioning/",),
    "joserfc": ("serve_app/access/oidc/",),
    "redis": ("serve_app/stores/", "serve_app/doctor/redis.py"),
    "typer": ("serve_app/cli/",),
    "fsspec": ("serve_app/models/",),
    # The last for errors of Ray's own servers.
    "grpc": ("serve_app/sidecar/", "serve_app/runtime/rpc.py"),
    "google": ("serve_app/sidecar/", "serve_app/collect/otlp/", "serve_app/net/google.py"),  # protobuf; credentials
    "opentelemetry": ("serve_app/collect/otlp/", "serve_app/observability/"),
}
# Stores and receivers, which settings choose by name: a new one changes no other file.
PLUGINS = {
    "SqliteRows",
    "RedisRows",
    "RedisLeases",
    "Webhook",
    "Grafana",
    "PagerDuty",
    "SlackApp",
}
MAY_IMPORT_PLUGINS = {"serve_app/stores/redis/plugin.py"}
ENVIRONMENT = (
    "serve_app/settings/settings.py",
    "serve_app/settings/store.py",  # XDG_STATE_HOME
    "serve_app/runtime/environment.py",
    "serve_app/runtime/fork_server.py",
    "serve_app/runtime/forked_worker.py",
    "serve_app/runtime/keeper.py",
    "serve_app/runtime/service_start.py",
    "serve_app/runtime/local.py",
    "serve_app/runtime/reporting.py",
    "serve_app/doctor/installation.py",
    "kernels/library.py",
)
# What Ray keeps to itself, by the file that may name it. serve_app/README.md says why each is needed.
PRIVATE_PARTS = {
    "serve_app/runtime/environment.py": ("ray._raylet.Config", "ray._raylet.AuthenticationTokenLoader"),
    "serve_app/runtime/forked_worker.py": ("_private/workers/default_worker.py",),
    "serve_app/runtime/local.py": (
        "ray._private.node.Node",
        "ray._private.parameter",
        "ray.serve.context._get_global_client",
    ),
    "serve_app/runtime/reporting.py": ("ray.serve._private.replica",),
}
# Functions of the collector and the deployments that may use the default executor. All work of a process shares its
# threads, so another function is a decision: work that holds a thread for long, or must not wait, has its own threads.
DEFAULT_EXECUTOR = {
    "serve_app/collect/kubernetes/watch.py": {"_watch"},
    "serve_app/collect/loop.py": {"_collect"},
    "serve_app/collect/tools/request.py": {"ask"},
    "serve_app/deployments/collector.py": {"connect"},
    "serve_app/deployments/http/bodies.py": {"_read", "read_metrics"},
    "serve_app/deployments/http/routes/views.py": {"graph"},
    "serve_app/deployments/scoring/meta.py": {"decide"},
    "serve_app/deployments/scoring/replicas.py": {"_score_again", "decide", "run"},
    "serve_app/deployments/session/api.py": {"call"},
    "serve_app/deployments/session/mesh_session.py": {"check_health", "delete", "ready"},
    "serve_app/deployments/session/reader.py": {"new_verdicts"},
    "serve_app/deployments/session/service_graphs.py": {"add"},
}
UNSAFE = {"eval", "exec", "torch.load", "torch.save"}
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "dbm"}  # code in a string

LAYERS = {"serve_app": SERVE_APP, "serve_app.deployments": DEPLOYMENTS, "lab": LAB}

Found = Iterator[tuple[int, str]]  # line, name


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST) -> Found:
    """Line and dotted name of each import: ``a.b`` for ``from a import b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module or ''}.{alias.name}") for alias in node.names)


def packages(tree: ast.AST) -> Found:
    """Line and package of each import."""
    yield from ((at, what.split(".")[0]) for at, what in imports(tree))


def imports_up_or_sideways(name: str, tree: ast.Module) -> Found:
    allowed, late = FLOORS[name.split("/")[0]], lines_of_late_imports(tree)
    for at, what in packages(tree):
        is_late = at in late and any(name.startswith(folder) and what == floor for folder, floor in LATE)
        if what in (*FLOORS, *ABOVE, "") and what not in allowed and not is_late:
            yield at, what


def lines_of_late_imports(tree: ast.Module) -> set[int]:
    """Lines of the imports inside functions, which run when the function is called."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {at for function in functions for at, _ in imports(function)}


def imports_up_or_sideways_in_a_package(name: str, tree: ast.Module) -> Found:
    """Imports of a file in a package from the same floor of the package, or from a higher one."""
    for package, floors in LAYERS.items():
        folder = package.replace(".", "/")
        if not name.startswith(f"{folder}/") or name == f"{folder}/__init__.py":
            continue
        floor = {room: i for i, rooms in enumerate(floors) for room in rooms}
        room = name.removeprefix(f"{folder}/").split("/")[0].removesuffix(".py")
        for at, what in imports(tree):
            other = what.removeprefix(f"{package}.").split(".")[0]
            if what.startswith(f"{package}.") and other != room and floor[other] >= floor[room]:
                yield at, what


def imports_out_of_room(name: str, tree: ast.Module) -> Found:
    yield from ((at, what) for at, what in packages(tree) if what in ROOMS and not name.startswith(ROOMS[what]))


def imports_of_a_plugin(name: str, tree: ast.Module) -> Found:
    """Imports of what only the table of plugins may name."""
    found = ((at, what.split(".")[-1]) for at, what in imports(tree) if name not in MAY_IMPORT_PLUGINS)
    yield from ((at, what) for at, what in found if what in PLUGINS)


def imports_of_internals(name: str, tree: ast.Module) -> Found:
    """Imports of what a room of the deployments has for itself, beside its public modules."""
    for at, what in imports(tree):
        if found := re.match(r"serve_app\.deployments\.(\w+)\.(\w+)", what):
            room, module = found.groups()
            if room in PUBLIC and not name.startswith(f"serve_app/deployments/{room}/") and module not in PUBLIC[room]:
                yield at, what


def names_of_what_ray_keeps_to_itself(name: str, tree: ast.Module) -> Found:
    """Such as ``ray._private``, except for the listed parts."""
    found = list(imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((node.lineno, node.value))
    for at, what in found:
        if re.match(r"(ray|serve)(\.\w+)*\._\w|_private\b", what) and what not in PRIVATE_PARTS.get(name, ()):
            yield at, what


def imports_of_pyg_at_module_level(name: str, tree: ast.Module) -> Found:
    if name.startswith("lab/datasets/"):  # is for users of the library
        return
    for_types = (one for one in tree.body if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test))
    late = lines_of_late_imports(tree) | {at for one in for_types for at, _ in imports(one)}
    yield from ((at, what) for at, what in packages(tree) if what == "torch_geometric" and at not in late)


def reads_of_the_environment(name: str, tree: ast.Module) -> Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and name not in ENVIRONMENT:
            yield node.lineno, node.attr


def uses_of_the_default_executor(name: str, tree: ast.Module) -> Found:
    """Functions that call ``to_thread``, or ``run_in_executor`` without the executor of an object."""
    allowed = DEFAULT_EXECUTOR.get(name, set())
    if name.startswith(("serve_app/collect/", "serve_app/deployments/")):
        yield from ((at, function) for at, function in default_executor(tree) if function not in allowed)


def default_executor(tree: ast.Module) -> Found:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                method = ast.unparse(call.func).split(".")[-1]
                is_own = method == "run_in_executor" and isinstance(call.args[0], ast.Attribute)
                if method in ("to_thread", "run_in_executor") and not is_own:
                    yield call.lineno, function.name


def unsafe_calls(name: str, tree: ast.Module) -> Found:
    calls = ((node.lineno, ast.unparse(node.func)) for node in ast.walk(tree) if isinstance(node, ast.Call))
    yield from ((at, what) for at, what in calls if what in UNSAFE)
    yield from ((at, what) for at, what in packages(tree) if what in UNSAFE_MODULES)
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
    imports_up_or_sideways_in_a_package,
    imports_out_of_room,
    imports_of_a_plugin,
    imports_of_internals,
    names_of_what_ray_keeps_to_itself,
    imports_of_pyg_at_module_level,
    reads_of_the_environment,
    uses_of_the_default_executor,
    unsafe_calls,
    names_that_say_nothing,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_a_rule(rule: Callable[[str, ast.Module], Found]) -> None:
    files = [path for package in FLOORS for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 30, "this test does not find the packages"
    broken = [
        f"{name}:{at}: {what}"
        for name, path in ((path.relative_to(ROOT).as_posix(), path) for path in files)
        for at, what in rule(name, parse(path))
    ]
    assert not broken


def test_each_private_part_of_ray_is_used_and_explained() -> None:
    explained = (ROOT / "serve_app" / "README.md").read_text(encoding="utf-8")
    for name, parts in PRIVATE_PARTS.items():
        source = (ROOT / name).read_text(encoding="utf-8")
        for last in (part.split(".py")[0].split(".")[-1] for part in parts):
            assert last in source, name
            assert last in explained, last


def test_each_function_that_may_use_the_default_executor_does() -> None:
    for name, functions in DEFAULT_EXECUTOR.items():
        assert {function for _, function in default_executor(parse(ROOT / name))} == functions, name


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (imports_up_or_sideways, "model/x.py", "def f():\n    from serve_app.api.codec import y"),
        (imports_up_or_sideways, "partitioning/x.py", "import kernels"),
        (imports_up_or_sideways, "model/x.py", "def f():\n    from lab.training.train import train"),
        (imports_up_or_sideways, "serve_app/web/x.py", "def f():\n    import lab.simulator.simulator"),
        (imports_up_or_sideways, "serve_app/cli/x.py", "from lab.demo.run import demonstrate"),
        (imports_up_or_sideways, "serve_app/cli/x.py", "if TYPE_CHECKING:\n    from lab.demo.run import demonstrate"),
        (imports_up_or_sideways, "lab/x.py", "from benchmarks.figures import tables"),
        (imports_up_or_sideways_in_a_package, "lab/simulator/x.py", "from lab.training.meshes import FIRST_SEED"),
        (imports_up_or_sideways_in_a_package, "lab/demo/x.py", "def f():\n    from lab import comparison"),
        (imports_up_or_sideways_in_a_package, "serve_app/api/x.py", "from serve_app.settings import Settings"),
        (imports_up_or_sideways_in_a_package, "serve_app/alerts/x.py", "def f():\n    from serve_app import web"),
        (imports_up_or_sideways_in_a_package, "serve_app/metrics.py", "import serve_app.net.http"),
        (
            imports_up_or_sideways_in_a_package,
            "serve_app/deployments/http/x.py",
            "from serve_app.deployments import gate",
        ),
        (
            imports_up_or_sideways_in_a_package,
            "serve_app/deployments/load.py",
            "import serve_app.deployments.scoring.meta",
        ),
        (imports_out_of_room, "serve_app/pipeline.py", "import ray"),
        (imports_of_a_plugin, "serve_app/app.py", "def f():\n    from serve_app.stores.sqlite.store import SqliteRows"),
        (
            imports_of_internals,
            "serve_app/app.py",
            "from serve_app.deployments.session.reader import Reader",
        ),
        (
            imports_of_internals,
            "serve_app/deployments/http/x.py",
            "from serve_app.deployments.session import reader",
        ),
        (names_of_what_ray_keeps_to_itself, "serve_app/app.py", "from ray._private import node"),
        (names_of_what_ray_keeps_to_itself, "serve_app/app.py", "from ray.serve.context import _get_global_client"),
        (names_of_what_ray_keeps_to_itself, "serve_app/app.py", "import sys\nsys.modules['ray._private.worker']"),
        (names_of_what_ray_keeps_to_itself, "serve_app/app.py", "import ray\nray._private.state"),
        (names_of_what_ray_keeps_to_itself, "serve_app/runtime/local.py", "from ray._private import worker"),
        (names_of_what_ray_keeps_to_itself, "serve_app/runtime/rpc.py", "from ray._private import parameter"),
        (imports_out_of_room, "partitioning/plan.py", "from torch import Tensor"),
        (imports_out_of_room, "serve_app/stores/records.py", "import pytest"),
        (imports_of_pyg_at_module_level, "model/x.py", "from torch_geometric.data import Data"),
        (reads_of_the_environment, "model/x.py", "import os\nx = os.environ['X']"),
        (uses_of_the_default_executor, "serve_app/collect/x.py", "async def f():\n    await asyncio.to_thread(poll)"),
        (uses_of_the_default_executor, "serve_app/collect/loop.py", "async def run(self):\n    await to_thread(poll)"),
        (
            uses_of_the_default_executor,
            "serve_app/deployments/x.py",
            "async def f():\n    await loop.run_in_executor(None, poll)",
        ),
        (unsafe_calls, "model/x.py", "x = torch.load(path)"),
        (unsafe_calls, "model/x.py", "from pickle import loads"),
        (unsafe_calls, "model/x.py", "x = np.load(path, allow_pickle=True)"),
        (names_that_say_nothing, "model/utils.py", ""),
        (names_that_say_nothing, "model/x.py", "class StateManager: ..."),
    ],
)
def test_each_rule_finds_its_violation(rule: Callable[[str, ast.Module], Found], name: str, source: str) -> None:
    assert list(rule(name, ast.parse(source)))


def rooms_of(folder: str) -> set[str]:
    paths = (ROOT / folder).iterdir()
    return {path.name.removesuffix(".py") for path in paths if path.suffix in ("", ".py")} - {"__init__", "__pycache__"}


def test_the_structure_has_few_nodes_and_arrows() -> None:
    rooms = rooms_of("serve_app")
    assert rooms == {room for floor in SERVE_APP for room in floor}
    assert len(rooms) + len(FLOORS) - 1 <= MAX_PACKAGES
    assert rooms_of("serve_app/deployments") == {room for floor in DEPLOYMENTS for room in floor}
    assert rooms_of("lab") == {room for floor in LAB for room in floor}


@pytest.mark.parametrize("package", FLOORS)
def test_folders_of_tests_mirror_those_of_the_package(package: str) -> None:
    tests = ROOT / "tests" / package
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / package / folder).is_dir()] == []


@pytest.mark.parametrize("package", FLOORS)
def test_a_class_name_exists_once_in_a_package(package: str) -> None:
    names = Counter(
        node.name
        for path in (ROOT / package).rglob("*.py")
        for node in parse(path).body
        if isinstance(node, ast.ClassDef) and path.parent.name != "generated"
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", ["kernels", "partitioning", "serve_app.cli", "lab.demo.run"])
def test_all_lists_the_public_names(package: str) -> None:
    """``__all__`` has every public name that a package's own file imports, and each of its names exists."""
    module = importlib.import_module(package)
    tree = parse(Path(str(module.__file__)))
    late = [node for branch in tree.body if isinstance(branch, ast.If) for node in branch.body]  # if TYPE_CHECKING
    brought = {
        alias.asname or alias.name
        for node in [*tree.body, *late]
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert all(hasattr(module, name) for name in module.__all__)
    assert sorted(module.__all__) == module.__all__
    if not package.startswith(("serve_app", "lab")):
        assert set(module.__all__) == brought
