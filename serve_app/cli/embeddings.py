"""``tagae embeddings``: writes the embeddings and scores of meshes to where other systems read them."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from serve_app.cli.client_options import LOCAL, CaFile, TokenFile, Url, read_token
from serve_app.cli.console import print_note

if TYPE_CHECKING:
    from serve_app.api.embeddings import Embeddings

PATIENCE_SECONDS = 60.0  # for one request to a busy service

app = typer.Typer(no_args_is_help=True, help="Embeddings of services for other systems.")


class Target(Protocol):
    """Where embeddings are written."""

    def write(self, embeddings: "Embeddings") -> None: ...
    def close(self) -> None: ...


@app.callback()
def _embeddings() -> None:
    """Embeddings of services for other systems."""


@app.command()
def export(
    to: Annotated[
        str,
        typer.Option(
            metavar="TARGET",
            help="Folder for Parquet files, one for each mesh; or the URL of a Redis, such as redis://HOST:6379/0.",
        ),
    ],
    url: Url = LOCAL,
    mesh: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this mesh; repeatable. Default: all meshes.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="First part of all keys in the Redis.")
    ] = "tagae-embeddings",
    expire_seconds: Annotated[
        int, typer.Option(min=1, help="Time after which the Redis deletes keys that are not written again.")
    ] = 86_400,
    redis_username: Annotated[str, typer.Option(metavar="NAME", help="User name for the Redis.")] = "",
    redis_password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the password for the Redis.")
    ] = None,
    redis_ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust for TLS to the Redis.")
    ] = None,
) -> None:
    """Write the embeddings and scores of all services of a running service to Parquet files or a Redis.

    Run it on a schedule. A mesh without a verdict is left out. Keys and columns: docs/models.md.

    \b
    Example:
      tagae embeddings export --to /var/lib/embeddings
      tagae embeddings export --to redis://cache:6379/3 --mesh shop --mesh bank --expire-seconds 3600
    """
    from serve_app.api.client import Client
    from serve_app.errors import BadSettings, UnknownMesh
    from serve_app.recordings.embedding_files import EmbeddingFiles
    from serve_app.settings import StoreSettings
    from serve_app.stores.redis_embeddings import RedisEmbeddings

    target: Target
    if "://" in to:
        try:
            settings = StoreSettings(
                kind="redis", url=to, username=redis_username, password_file=redis_password_file, ca_file=redis_ca_file
            )
        except ValueError as error:
            raise BadSettings(f"--to {to.partition('://')[0]}://...: {error}") from None
        target = RedisEmbeddings(settings, prefix, expire_seconds)
    else:
        target = EmbeddingFiles(Path(to))
    services = meshes = 0
    with (
        closing(target),
        Client(url, token=read_token(token_file), ca_file=ca_file, patience_seconds=PATIENCE_SECONDS) as client,
    ):
        for name in mesh or [one.mesh for one in client.meshes() if one.sequence]:
            try:
                found = client.embeddings(name)
            except UnknownMesh:
                if mesh:
                    raise
                continue  # deleted since the list was made
            target.write(found)
            meshes, services = meshes + 1, services + len(found.services)
    print_note(f"wrote {services} services of {meshes} meshes to {to}")
