"""Former places of the settings of a mesh: the tables that became one, ``meshes``.

They work like the new table, in every source of settings. :func:`move_former_tables` moves the values of one source to
their new place before anything is validated, and keeps what was moved, so that errors use the user's names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from serve_app.errors import BadSettings
from serve_app.settings.source import SourceSettings
from serve_app.settings.toml import table_header

TABLE = "meshes"  # the new one, and the former ones inside their groups
SOURCE = "collector"
NEWER = frozenset({"source_options", "team_labels", "contact_labels"})  # settings that had no former table
FIELDS: Mapping[str, tuple[str, ...]] = {  # of the former tables, by group
    SOURCE: tuple(name for name in SourceSettings.model_fields if name not in NEWER),
    "model": ("weights",),
    "alert": ("services", "entry_points"),
}

MOST_NAMED = 3  # meshes in a hint
ONE = "; all lines of a mesh go into one table"  # as TOML refuses a second one

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FormerTable:
    """A former table that is in use.

    Attributes:
        name: such as ``collector.meshes``.
        remedy: what to write instead of what.
    """

    name: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: a former name, which still works; {self.remedy}"


@dataclass(frozen=True, slots=True)
class MovedTables:
    """The values of one source of settings, with all settings of meshes at their new place.

    Attributes:
        values: nested, by group.
        moved: of each former table, by its group: the names of the moved settings, by mesh.
    """

    values: dict[str, Any]
    moved: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def as_written(self, path: Path) -> Path:
        """Return the path of a setting as this source has it."""
        if path[:1] != (TABLE,) or len(path) < 2:
            return path
        for group, meshes in self.moved.items():
            if path[1] in meshes and self._is_from(group, path[1], path[2:]):
                return (group, *path)
        return path

    def _is_from(self, group: str, mesh: str, rest: Path) -> bool:
        """Whether a setting of a mesh comes from a former table. If it is the mesh as a whole, the one with the source
        goes first, since only the settings of a source depend on each other."""
        if rest:
            return rest[0] in self.moved[group][mesh]
        given = self.values[TABLE][mesh]
        moved = {name for meshes in self.moved.values() for name in meshes.get(mesh, ())}
        return group == SOURCE or not isinstance(given, Mapping) or given.keys() <= moved


def move_former_tables(values: Mapping[str, Any], origin: str) -> MovedTables:
    """Return the values of a source with ``collector.meshes.NAME``, ``model.meshes.NAME`` and ``alert.meshes.NAME``
    at ``meshes.NAME``.

    Args:
        values: nested, by group; unchanged.
        origin: what to call the source in errors.

    Raises:
        BadSettings: a former table has an unknown setting or is not a table, or the source gives a setting different
            values under both names.
    """
    rest = dict(values)
    meshes = {name: _as_dict(mesh) for name, mesh in _tables(TABLE, values.get(TABLE, {}), origin).items()}
    moved: dict[str, dict[str, tuple[str, ...]]] = {}
    problems: list[str] = []
    for group in FIELDS:
        if not isinstance(values.get(group), Mapping) or TABLE not in values[group]:
            continue
        rest[group] = {name: value for name, value in values[group].items() if name != TABLE}
        for mesh, former in _tables(f"{group}.{TABLE}", values[group][TABLE], origin).items():
            given = _as_dict(former)
            moved.setdefault(group, {})[mesh] = tuple(given) if isinstance(given, dict) else ()
            present = meshes.setdefault(mesh, {})
            if isinstance(given, dict) and isinstance(present, dict):
                problems += _move(given, present, group, mesh, origin)
            elif not present:
                meshes[mesh] = given  # no table, which validation says
    if problems:
        raise BadSettings("\n".join(problems))
    return MovedTables({**rest, TABLE: meshes} if meshes else rest, moved)


def find_former_tables(sources: Mapping[str, MovedTables]) -> list[FormerTable]:
    """Return the former tables in use, by the sources of settings that have them."""
    found = []
    for group in FIELDS:
        used = [origin for origin, tables in sources.items() if group in tables.moved]
        lines = [
            f"{_line((TABLE, mesh), origin)} in place of {_line((group, TABLE, mesh), origin)}"
            for origin in used
            for mesh in sources[origin].moved[group]
        ]
        more = len(lines) - MOST_NAMED
        if used:
            written = ", ".join(lines[:MOST_NAMED]) + (f", and {more} more" if more > 0 else "")
            found.append(FormerTable(f"{group}.{TABLE}", f"write {written}{ONE if 'file' in used else ''}"))
    return found


def _line(path: Path, origin: str) -> str:
    """The name of a table in a source."""
    if origin == "environment":
        return f"TAGAE_{'__'.join(path).upper()}__*"
    return table_header(path) if origin == "file" else f"{'.'.join(path)}.*"


def _move(former: Mapping[str, Any], meshes: dict[str, Any], group: str, mesh: str, origin: str) -> Iterator[str]:
    """Move the settings of a mesh to its table, and yield what is wrong with them."""
    for name, value in former.items():
        written, new = f"{group}.{TABLE}.{mesh}.{name}", f"{TABLE}.{mesh}.{name}"
        if name not in FIELDS[group]:
            yield f"{written} (from {origin}): no such setting; expected one of {', '.join(FIELDS[group])}"
        elif name in meshes and meshes[name] != value:
            yield f"{new} and {written} (from {origin}): expected one of the two, got different values; keep {new}"
        else:
            meshes[name] = value


def _tables(name: str, given: Any, origin: str) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    raise BadSettings(f"{name} (from {origin}): expected a table for each mesh, got {given!r}; write [{TABLE}.NAME]")


def _as_dict(given: Any) -> Any:
    """A table as a new dictionary; of a model, what was set. Anything else is unchanged."""
    if isinstance(given, BaseModel):
        return {name: getattr(given, name) for name in given.model_fields_set}
    return dict(given) if isinstance(given, Mapping) else given
