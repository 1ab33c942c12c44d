"""``tagae graph``: writes the graph of a mesh for other programs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from serve_app.cli.client_options import (
    LOCAL,
    CaFile,
    MeshName,
    TokenFile,
    Url,
    connect,
    select_mesh,
)
from serve_app.cli.console import print_note
from serve_app.cli.mesh_options import parse_time


def graph(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")] = Path(
        "-"
    ),
    format: Annotated[
        Literal["graphml", "json"], typer.Option(help="graphml: for Gephi, yEd, Cytoscape and networkx.")
    ] = "graphml",
    url: Url = LOCAL,
    mesh: MeshName = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time of a kept snapshot, UTC. Default: the newest.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this service (namespace/name), its callers and callees.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
) -> None:
    """Write the services and calls of a mesh, with metrics and anomaly scores, for programs that analyse graphs.

    \b
    Example:
      tagae graph -o shop.graphml
      tagae graph --mesh shop --format json -o shop.json
      tagae graph --service shop/cart --at 2026-03-01T12:00Z
    """
    from serve_app.api.graph_formats import GraphFormat

    time = None if at is None else parse_time(at)
    with connect(url, token_file, ca_file) as client:
        text = client.graph(select_mesh(client, mesh).mesh, GraphFormat(format), at=time, service=service)
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    output.write_bytes(text)
    print_note(f"wrote {output}")
