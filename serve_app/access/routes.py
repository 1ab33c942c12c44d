"""The scope that a request needs: a pure function of its method and path.

The path is the router's: percent-decoded once, relative to the application. It is not decoded or normalised again here.
An unknown path needs the highest permission: access to all meshes, and ``admin`` for changes. So if the router knows a
path that is missing here, a limited token is refused.
"""

from dataclasses import dataclass
from functools import lru_cache

from serve_app.access.tokens import Scope

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
MESHES = "/v1/meshes"
MODELS = "/v1/models"
AUDIT = "/v1/audit"
STATIC = "/static/"
# Pages without data, and probes, which have no token.
OPEN = {
    "/": SAFE,
    "/docs": SAFE,
    "/openapi.json": SAFE,
    "/healthz": SAFE,
    "/readyz": SAFE,
    "/-/healthz": SAFE,
    "/login": SAFE | {"POST"},
    "/login/oidc": SAFE,
    "/login/callback": SAFE,
    "/logout": frozenset({"POST"}),
    "/demo/": SAFE,
    "/demo/controls.js": SAFE,
    "/demo/controls.css": SAFE,
}
READ = frozenset({MESHES, MODELS, "/v1/model", "/-/routes", "/demo/show"})
WRITE = frozenset({"/v1/score", "/demo/keys"})
MESH_POSTS = frozenset({("snapshots",), ("baseline",), ("feedback",), ("mutes",), ("otlp", "v1", "metrics")})
MESH_DELETES = frozenset({"feedback", "mutes"})  # followed by one id


@dataclass(frozen=True, slots=True)
class Need:
    """The scope and mesh that a request needs.

    Attributes:
        scope: None if the route is open to everyone.
        all_meshes: whether the route covers every mesh, so that a token for some meshes is refused.
    """

    scope: Scope | None
    mesh: str | None = None
    all_meshes: bool = False


@lru_cache(maxsize=1024)
def need(method: str, path: str) -> Need:
    """The scope and mesh that a request needs.

    Args:
        method: in upper case.
        path: percent-decoded, relative to the application; paths of the demo begin with ``/demo``.
    """
    if method in OPEN.get(path, ()) or (method in SAFE and path.startswith(STATIC) and ".." not in path):
        return Need(None)
    if path.startswith(MESHES + "/"):
        return _mesh_need(method, path)
    if method in SAFE and path in READ:
        return Need(Scope.READ)
    if path == AUDIT:
        return Need(Scope.ADMIN, all_meshes=True)
    if path in WRITE and method == "POST":
        return Need(Scope.WRITE)
    return Need(Scope.READ if method in SAFE else Scope.ADMIN, all_meshes=True)


def _mesh_need(method: str, path: str) -> Need:
    mesh, *below = path.removeprefix(MESHES + "/").split("/")
    if not mesh:
        return Need(Scope.READ if method in SAFE else Scope.ADMIN, all_meshes=True)
    if method in SAFE:
        return Need(Scope.READ, mesh)
    if method == "POST" and (tuple(below) in MESH_POSTS or _acts_on_incident(below)):
        return Need(Scope.WRITE, mesh)
    if below == ["source"]:  # the service opens connections to the address
        return Need(Scope.ADMIN, mesh, all_meshes=True)
    if method == "DELETE" and len(below) == 2 and below[0] in MESH_DELETES and below[1]:
        return Need(Scope.WRITE, mesh)
    return Need(Scope.ADMIN, mesh)


def _acts_on_incident(below: list[str]) -> bool:
    """Whether a path below a mesh is ``incidents/{incident}/actions``."""
    return len(below) == 3 and below[0] == "incidents" and bool(below[1]) and below[2] == "actions"
