"""Options of the commands that call a running service: URL, mesh, token, certificates to trust.

Tokens come from files, because every user of the machine can read the command line.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_app.api.client import Client
    from serve_app.api.schemas.views import MeshDocument

LOCAL = "http://127.0.0.1:8000"
PATIENCE_SECONDS = 10.0  # of all attempts of a call together: a person waits

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


def read_token(file: Path | None) -> str | None:
    """Read the token in a file; None without a file.

    Raises:
        BadSettings: the file cannot be read, or holds no single token. The message never contains the content.
    """
    from serve_app.errors import BadSettings
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


def connect(url: str, token_file: Path | None, ca_file: Path | None) -> "Client":
    """A client of the service at this URL. Errors as in :func:`read_token`."""
    from serve_app.api.client import Client

    return Client(url, token=read_token(token_file), ca_file=ca_file, patience_seconds=PATIENCE_SECONDS)


def select_mesh(client: "Client", name: str | None) -> "MeshDocument":
    """The mesh of this name; without a name, the only one.

    Raises:
        BadParameter: there is no such mesh, or there are several.
    """
    meshes = client.meshes()
    names = ", ".join(one.mesh for one in meshes) or "none"
    found = [one for one in meshes if name in (None, one.mesh)]
    if len(found) != 1:
        expected = "a name, since there are several meshes" if name is None and found else "one of the meshes"
        raise typer.BadParameter(f"expected {expected} ({names}), got {name or 'none'}", param_hint="--mesh")
    return found[0]
