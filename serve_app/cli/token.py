"""``tagae token``: access tokens of a service."""

from pathlib import Path
from typing import Annotated

import typer

from serve_app.access.tokens import Scope

File = Annotated[Path, typer.Argument(metavar="FILE", help="Tokens file (serve.tokens_file).")]

app = typer.Typer(no_args_is_help=True, help="Create, list and remove access tokens.")


@app.callback()
def _token() -> None:
    """Create, list and remove access tokens.

    A running service reads the file again within a second or two after a change, on every replica.
    """


@app.command()
def create(
    file: File,
    name: Annotated[str, typer.Option(help="Of the token: letters, digits and . _ @ -.")],
    scope: Annotated[list[Scope], typer.Option(help="What it permits; admin includes the others. Repeatable.")],
    mesh: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A mesh that it opens; by default all. Repeatable.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="When it ends; UTC. By default never.")] = None,
) -> None:
    """Create a token, print it once, and add its hash to FILE.

    Only stdout gets the token. Nothing can show it again, since the file holds only its hash.

    \b
    Example:
      tagae token create --name grafana --scope read tokens.toml
      tagae token create --name shop-ci --scope write --mesh shop --expires 2027-01-01 tokens.toml > shop-ci.token
    """
    from serve_app.access.editing import create as add
    from serve_app.cli.console import for_people
    from serve_app.cli.live import instant

    token = add(file, name, scope, mesh or (), instant(expires) if expires else None)
    typer.echo(token)
    for_people().print(f"added {name} to {file}; keep the token, nothing can show it again", soft_wrap=True)


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
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="Of the token.")], file: File) -> None:
    """Remove a token from FILE: it ends at once, with every session of the page that uses it.

    \b
    Example:
      tagae token remove grafana tokens.toml
    """
    from serve_app.access.editing import remove as drop

    drop(file, name)
