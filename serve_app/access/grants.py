"""What a caller may do: scopes, on all meshes or on some."""

from collections.abc import Iterable
from dataclasses import dataclass

from serve_app.access.tokens import Scope


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes on meshes.

    Attributes:
        scopes: at least one.
        meshes: that the scopes are for; None: all.
    """

    scopes: frozenset[Scope]
    meshes: frozenset[str] | None = None

    def has(self, scope: Scope) -> bool:
        """Whether the scope is granted, directly or through ``admin``."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def covers(self, mesh: str) -> bool:
        """Whether a mesh is among the meshes."""
        return self.meshes is None or mesh in self.meshes


def meshes_with(grants: Iterable[Grant], scope: Scope) -> frozenset[str] | None:
    """The meshes for which one of these grants has a scope; None: all."""
    meshes: frozenset[str] = frozenset()
    for grant in grants:
        if grant.has(scope):
            if grant.meshes is None:
                return None
            meshes |= grant.meshes
    return meshes
