"""``tagae mcp``: offers a running service to agents, over the Model Context Protocol."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.client_options import CaFile, TokenFile, connect


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
    from serve_app.errors import BadSettings

    try:
        from serve_app.cli.mcp.tools import build_server
    except ModuleNotFoundError as error:
        raise BadSettings(f"tagae mcp: expected the package {error.name}; run pip install 'tagae[mcp]'") from None

    with ExitStack() as stack:
        reader, writer = stack.enter_context(connect(url, token_file, ca_file)), None
        if write_token_file is not None:
            writer = stack.enter_context(connect(url, write_token_file, ca_file, "--write-token-file"))
        build_server(reader, writer).run("stdio")
