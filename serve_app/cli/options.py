"""Options that commands share: settings, the running service, meshes, times.

Tokens come from files, because every user of the machine can read the command line.
"""

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve_app.errors import BadSettings

if TYPE_CHECKING:
    from serve_app.api.client import Client
    from serve_app.api.schemas.views import MeshDocument
    from serve_app.settings import MeshSettings, Settings

LOCAL = "http://127.0.0.1:8000"
PATIENCE_SECONDS = 10.0  # limit for a call with all retries, because a person waits
UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
MAX_SPAN = timedelta(days=100_000)
UNNAMED = "mesh"  # name of a mesh that is not in the settings

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="TOML file with settings. Environment variable: TAGAE_CONFIG."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting, such as model.window_size=60. Repeatable."),
]
Url = Annotated[str, typer.Option(help="URL of the running service.")]
MeshName = Annotated[str | None, typer.Option(metavar="NAME", help="The mesh; needed if there are several.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", envvar="TAGAE_TOKEN_FILE", help="File with a token for the service."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", envvar="TAGAE_CA_FILE", help="CA bundle to use instead of the system store."
    ),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="URL", help="Prometheus with the mesh's metrics, such as http://HOST:9090."),
]
Collected = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="NAME",
        help="A collected mesh of the settings (meshes.NAME.prometheus, or another package's source).",
    ),
]


def of_service(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options ``--url``, ``--token-file`` and ``--ca-file`` to a command, whose first argument becomes the
    client made from them."""

    def run(*, url: Url = LOCAL, token_file: TokenFile = None, ca_file: CaFile = None, **arguments: Any) -> None:
        with connect(url, token_file, ca_file) as client:
            command(client, **arguments)

    _, *own_parameters = inspect.signature(command).parameters.values()
    *shared_parameters, _ = inspect.signature(run).parameters.values()
    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own_parameters),
        *shared_parameters,
    ]
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def connect(
    url: str, token_file: Path | None, ca_file: Path | None, patience_seconds: float = PATIENCE_SECONDS
) -> "Client":
    """Return a client of the service at this URL. Raises the errors of :func:`read_token`."""
    from serve_app.api.client import Client

    return Client(url, token=read_token(token_file), ca_file=ca_file, patience_seconds=patience_seconds)


def read_token(file: Path | None) -> str | None:
    """Read the token in a file; None without a file.

    Raises:
        BadSettings: the file cannot be read, or does not contain exactly one token. The message never has its content.
    """
    from serve_app.net.endpoint import SecretUnreadable, read_secret

    if file is None:
        return None
    try:
        token = read_secret(file.expanduser())
    except SecretUnreadable as error:
        raise BadSettings(f"--token-file: {error}") from None
    if not token.isascii() or " " in token:
        raise BadSettings(f"--token-file: expected one token in {file} and nothing else")
    return token


def mesh_of_service(client: "Client", name: str | None) -> "MeshDocument":
    """Return the service's mesh with this name; without a name, its only mesh.

    Raises:
        BadParameter: there is no such mesh, or there are several.
    """
    meshes = client.meshes()
    names = ", ".join(mesh.mesh for mesh in meshes) or "none"
    matches = [mesh for mesh in meshes if name in (None, mesh.mesh)]
    if len(matches) != 1:
        requirement = "a name, since there are several meshes" if name is None and matches else "one of the meshes"
        raise typer.BadParameter(f"expected {requirement} ({names}), got {name or 'none'}", param_hint="--mesh")
    return matches[0]


def mesh_of_settings(settings: "Settings", url: str | None, name: str | None) -> tuple[str, "MeshSettings"]:
    """Return a mesh's name and settings, by its name in the settings or by its Prometheus's URL.

    Raises:
        BadParameter: neither or both are given, or the name is unknown.
    """
    from serve_app.settings import MeshSettings

    meshes = settings.collected
    if url and not name:
        return UNNAMED, MeshSettings(prometheus=url)
    if url:
        raise typer.BadParameter("expected --prometheus or --mesh, got both; leave one out", param_hint="--mesh")
    if name is None and len(meshes) == 1:
        (name,) = meshes
    if name not in meshes:
        raise typer.BadParameter(
            f"expected one of the meshes in the settings ({', '.join(meshes) or 'there are none'}), got "
            f"{name or 'none'}; or give --prometheus",
            param_hint="--mesh",
        )
    return name, meshes[name]


def parse_time(text: str) -> datetime:
    """Parse a time in ISO format, in UTC if it has no zone.

    Raises:
        BadParameter: it is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"expected a time such as 2026-03-01T12:00:00Z, got {text!r}") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def parse_span(text: str) -> timedelta:
    """Parse a span of time such as ``90m``.

    Raises:
        BadParameter: it is not a span above 0.
    """
    match = re.fullmatch(r"(\d{1,6})([mhd])", text, re.ASCII)
    span = int(match[1]) * UNITS[match[2]] if match else timedelta()
    if not timedelta() < span <= MAX_SPAN:
        raise typer.BadParameter(f"expected a span such as 24h, 90m or 2d, got {text!r}")
    return span


@contextmanager
def blame(option: str | None = None) -> Iterator[None]:
    """Report a ValueError in the block as an option's invalid value."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def read_settings(
    config: Path | None, assignments: list[str] | None, flags: Mapping[str, Any] | None = None
) -> "Settings":
    """Load a command's settings; see :func:`overrides` and :func:`serve_app.settings.load`."""
    from serve_app.settings import load

    return load(config, overrides(assignments, flags))


def overrides(assignments: list[str] | None, flags: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return nested settings from ``--set NAME=VALUE`` and from flags.

    A value is read as TOML (``60``, ``0.5``, ``true``); anything else is text.

    Args:
        flags: values by dotted name; None is ignored.

    Raises:
        BadSettings: an assignment is not ``NAME=VALUE``.
    """
    values = (flag for flag in (flags or {}).items() if flag[1] is not None)
    tree: dict[str, Any] = {}
    for name, value in (*map(_parse, assignments or ()), *values):
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def _parse(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not (name and equals):
        raise BadSettings(f"--set: expected NAME=VALUE such as model.window_size=60, got {assignment!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value
