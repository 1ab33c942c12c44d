"""``tagae weights fetch``: the former way to get weights from elsewhere. ``tagae models add`` replaces it."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import typer

from serve_app.cli.console import print_note

app = typer.Typer(no_args_is_help=True, help="Get weights from elsewhere. Deprecated: use `tagae models add`.")


@app.callback()
def _weights() -> None:
    """Get weights from elsewhere. Deprecated: use `tagae models add`."""


@app.command(deprecated=True)
def fetch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="URL or path of a checkpoint.")],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it, for `model.weights`.")],
    sha256: Annotated[str, typer.Option(metavar="DIGEST", help="SHA-256 of the file, 64 hexadecimal digits.")],
    bearer_token_file: Annotated[Path | None, typer.Option(help="File with a bearer token for the URL.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust (PEM), instead of the system's.")] = None,
) -> None:
    """Download or copy weights, and check their SHA-256 and that this version can read them.

    FILE is replaced as a whole, and only by weights that pass both checks. If FILE has them already, nothing is
    fetched. A signed URL of an object store works; its query appears in no message.

    \b
    Example:
      tagae weights fetch https://models.example/tagae.safetensors /var/lib/tagae/weights.safetensors --sha256 DIGEST
      sha256sum FILE shows the digest of a file that you trust
    """
    from model.checkpoint import load
    from serve_app.models.download import check_sha256, check_source, read_checked

    try:
        wanted = check_sha256(sha256)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--sha256") from None
    try:
        check_source(source)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="SOURCE") from None
    if not target.parent.is_dir():
        raise typer.BadParameter(
            f"expected a folder that exists, got {target.parent}; create it first", param_hint="FILE"
        )
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == wanted:
        print_note(f"{target} already has these weights")
        return
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            for piece in read_checked(source, wanted, bearer_token_file, ca_file, f"{target} is unchanged; "):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        version = load(part).digest  # raises IncompatibleWeights
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    print_note(f"wrote {target}: model_version {version}")
