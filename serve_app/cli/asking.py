"""Options of the commands that ask a running service: its token and the certificates to trust.

A token is never on the command line, where every user of the machine could read it.
"""

from pathlib import Path
from typing import Annotated

import typer

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", envvar="TAGAE_TOKEN_FILE", help="File with a token of the running service."
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", envvar="TAGAE_CA_FILE", help="Certificates to trust instead of the system's."
    ),
]


def token_of(file: Path | None) -> str | None:
    """The token in a file; None: no file.

    Raises:
        BadSettings: the file cannot be read, or holds something else. The message never holds its content.
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
        raise BadSettings(f"--token-file: expected one token in {file}, and nothing else")
    return token
