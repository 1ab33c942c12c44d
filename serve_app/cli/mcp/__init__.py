"""``tagae mcp``: offers a running service to agents, over the Model Context Protocol."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.client_options import CaFile, TokenFile, read_token

PATIENCE_SECONDS = 10.0  # of all attempts of a call together: an agent should learn soon that the service is down


def mcp(
    url: Annotated[str, typer.Option(help="URL of the running service.")] = "http://127.0.0.1:8000",
    token_file: TokenFile = None,
    write_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a token of the scope write. Also offers the tools that change a mesh. Default: read-only.",
        ),
    ] = None,
    ca_file: CaFile = None,
) -> None:
    """Let an agent query a running service: a server of the Model Context Protocol on stdin and stdout.

    The agent starts this command itself. Its tools return verdicts, incidents, the graph, series and comparisons. With
    --write-token-file it can also give feedback, accept levels, mute and unmute. Needs
    [bold]pip install 'tagae\\[mcp]'[/].

    \b
    Example:
      tagae mcp --url https://tagae.example --token-file read.token
      tagae mcp --token-file read.token --write-token-file write.token
    """
    from serve_app.api.client import Client
    from serve_app.errors import BadSettings

    try:
        from serve_app.cli.mcp.tools import build_server
    except ModuleNotFoundError as error:
        raise BadSettings(f"tagae mcp: expected the package {error.name}; run pip install 'tagae[mcp]'") from None

    tokens = [read_token(token_file)]
    if write_token_file is not None:
        tokens.append(read_token(write_token_file, "--write-token-file"))
    with ExitStack() as stack:
        reader, *writer = (
            stack.enter_context(Client(url, token=token, ca_file=ca_file, patience_seconds=PATIENCE_SECONDS))
            for token in tokens
        )
        build_server(reader, writer[0] if writer else None).run("stdio")
