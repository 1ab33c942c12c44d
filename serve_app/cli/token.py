"""``tagae token``: manage a service's access tokens."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.access.tokens import Scope

File = Annotated[Path, typer.Argument(metavar="FILE", help="Tokens file (serve.tokens_file).")]

app = typer.Typer(no_args_is_help=True, help="Create, list and remove access tokens.")


@app.command()
def create(
    file: File,
    name: Annotated[str, typer.Option(help="Name of the token: letters, digits and . _ @ -.")],
    scope: Annotated[list[Scope], typer.Option(help="What the token permits; admin includes the others. Repeatable.")],
    mesh: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A mesh to which the token gives access. Repeatable. Default: all."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="Expiry of the token; UTC. Default: never.")
    ] = None,
) -> None:
    """Create a token, print it once, and add its hash to FILE.

    The token is printed on stdout only. It cannot be shown again, since the file holds only its hash.

    \b
    Example:
      tagae token create --name grafana --scope read tokens.toml
      tagae token create --name shop-ci --scope write --mesh shop --expires 2027-01-01 tokens.toml > shop-ci.token
    """
    from serve_app.access.editing import create as add
    from serve_app.cli.console import print_note
    from serve_app.cli.options import parse_time

    token = add(file, name, scope, mesh or (), parse_time(expires) if expires else None)
    typer.echo(token)
    print_note(f"added {name} to {file}; save the token: it cannot be shown again")


@app.command("list")
def show(file: File) -> None:
    """List names, scopes, meshes and expiry of the tokens in FILE.

    \b
    Example:
      tagae token list tokens.toml
    """
    from serve_app.access.editing import read_tokens

    for token in read_tokens(file):
        meshes = ", ".join(sorted(token.meshes)) if token.meshes is not None else "all meshes"
        until = f"until {token.expires.isoformat()}" if token.expires else "never expires"
        typer.echo(f"{token.name}\t{', '.join(sorted(token.scopes))}\t{meshes}\t{until}")


@app.command()
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")], file: File) -> None:
    """Remove a token from FILE. It stops working at once, also in open sessions of the page.

    \b
    Example:
      tagae token remove grafana tokens.toml
    """
    from serve_app.access.editing import remove as drop

    drop(file, name)
