"""Options of the commands that call a running service: its token and the certificates to trust.

Tokens come from files, because every user of the machine can read the command line.
"""

from pathlib import Path
from typing import Annotated

import typer

TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", envvar="TAGAE_TOKEN_FILE", help="File with a token for the service."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", envvar="TAGAE_CA_FILE", help="Certificates to trust instead of the system's."
    ),
]


def read_token(file: Path | None, option: str = "--token-file") -> str | None:
    """Read the token in a file; None without a file.

    Args:
        file: of an option.
        option: its name, for errors.

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
        raise BadSettings(f"{option}: {error}") from None
    if not token.isascii() or " " in token:
        raise BadSettings(f"{option}: expected one token in {file} and nothing else")
    return token
