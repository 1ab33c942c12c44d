"""``tagae embeddings``: export meshes' embeddings and scores for other systems."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.console import print_note
from serve_app.cli.options import LOCAL, CaFile, TokenFile, Url, connect

PATIENCE_SECONDS = 60.0  # limit for one request to a busy service

app = typer.Typer(no_args_is_help=True, help="Embeddings of services for other systems.")


@app.command()
def export(
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for Parquet files, one for each mesh.")],
    url: Url = LOCAL,
    mesh: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this mesh; repeatable. Default: all meshes.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
) -> None:
    """Export the services' embeddings and scores from a running TAGAE to Parquet files.

    Run it on a schedule. Meshes without a verdict are left out. Columns: docs/models.md.

    \b
    Example:
      tagae embeddings export --to /var/lib/embeddings
      tagae embeddings export --to /var/lib/embeddings --mesh shop --mesh bank
    """
    from serve_app.errors import UnknownMesh
    from serve_app.recordings.embedding_files import write_embeddings

    to.mkdir(parents=True, exist_ok=True)
    services = meshes = 0
    with connect(url, token_file, ca_file, PATIENCE_SECONDS) as client:
        for name in mesh or [document.mesh for document in client.meshes() if document.sequence]:
            try:
                embeddings = client.embeddings(name)
            except UnknownMesh:
                if mesh:
                    raise
                continue  # deleted since the list was made
            write_embeddings(to, embeddings)
            meshes, services = meshes + 1, services + len(embeddings.services)
    print_note(f"wrote {services} services of {meshes} meshes to {to}")
