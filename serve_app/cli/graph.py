"""``tagae graph``: writes the graph of a mesh for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from serve_app.cli.console import print_note
from serve_app.cli.options import MeshName, mesh_of_service, of_service, parse_time

if TYPE_CHECKING:
    from serve_app.api.client import Client


@of_service
def graph(
    client: "Client",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is stdout.")] = Path(
        "-"
    ),
    format: Annotated[
        Literal["graphml", "json"], typer.Option(help="graphml: for Gephi, yEd, Cytoscape and networkx.")
    ] = "graphml",
    mesh: MeshName = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time of a kept snapshot, UTC. Default: the newest.")
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this service (namespace/name), its callers and callees.")
    ] = None,
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
    text = client.graph(mesh_of_service(client, mesh).mesh, GraphFormat(format), at=time, service=service)
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    output.write_bytes(text)
    print_note(f"wrote {output}")
