"""What commands that ask a Prometheus have in common: which mesh, and when."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_app.settings import MeshSettings, Settings

UNNAMED = "mesh"  # what a mesh is called that the settings do not name
PrometheusUrl = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="URL", help="A Prometheus that knows the mesh, such as http://...:9090."),
]
Collected = Annotated[
    str | None, typer.Option("--mesh", metavar="NAME", help="A mesh of the settings (collector.meshes).")
]


def instant(text: str) -> datetime:
    """A time as people write it; without a zone it is UTC.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"expected a time such as 2026-03-01T12:00:00Z, came {text!r}") from None
    return said if said.tzinfo else said.replace(tzinfo=UTC)


def mesh_of(settings: "Settings", url: str | None, name: str | None) -> tuple[str, "MeshSettings"]:
    """The mesh that is meant: one of the settings by its name, or the one behind a URL.

    Raises:
        typer.BadParameter: neither, both, or a name that is not there.
    """
    from serve_app.settings import MeshSettings

    known = settings.collector.meshes
    if url and not name:
        return UNNAMED, MeshSettings(prometheus=url)
    if url:
        raise typer.BadParameter("give --prometheus or a name of the settings, not both", param_hint="--mesh")
    if name is None and len(known) == 1:
        (name,) = known
    if name not in known:
        raise typer.BadParameter(
            f"expected one of the collected meshes ({', '.join(known) or 'the settings have none'}), came "
            f"{name or 'none'}; or give --prometheus",
            param_hint="--mesh",
        )
    return name, known[name]
