"""Options of the commands that query a Prometheus: the mesh and the time."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_app.settings import MeshSettings, Settings

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
UNNAMED = "mesh"  # name of a mesh that is not in the settings
PrometheusUrl = Annotated[
    str | None,
    typer.Option(
        "--prometheus", metavar="URL", help="Prometheus with the metrics of the mesh, such as http://HOST:9090."
    ),
]
Collected = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="NAME",
        help="A collected mesh from the settings (meshes.NAME.prometheus, or a source of another package).",
    ),
]


def parse_time(text: str) -> datetime:
    """Parse a time in ISO format; without a zone it is UTC.

    Raises:
        typer.BadParameter: it is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"expected a time such as 2026-03-01T12:00:00Z, got {text!r}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_span(text: str) -> timedelta:
    """Parse a span of time such as ``90m``.

    Raises:
        typer.BadParameter: it is not a span above 0.
    """
    number, unit = text[:-1], UNITS.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or not int(number):
        raise typer.BadParameter(f"expected a span such as 24h, 90m or 2d, got {text!r}")
    return int(number) * unit


def select_mesh(settings: "Settings", url: str | None, name: str | None) -> tuple[str, "MeshSettings"]:
    """Return the name and the settings of a mesh: by its name in the settings, or by the URL of its Prometheus.

    Raises:
        typer.BadParameter: neither or both are given, or the name is unknown.
    """
    from serve_app.settings import MeshSettings

    known = settings.collected
    if url and not name:
        return UNNAMED, MeshSettings(prometheus=url)
    if url:
        raise typer.BadParameter("expected --prometheus or --mesh, got both; leave one out", param_hint="--mesh")
    if name is None and len(known) == 1:
        (name,) = known
    if name not in known:
        raise typer.BadParameter(
            f"expected one of the meshes of the settings ({', '.join(known) or 'there are none'}), got "
            f"{name or 'none'}; or give --prometheus",
            param_hint="--mesh",
        )
    return name, known[name]
