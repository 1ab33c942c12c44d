"""``tagae weights``: fetches model weights, and checks them before anything uses them."""

import hashlib
import os
import re
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from serve_app.cli.console import print_note

MOST_BYTES = 256 * 2**20  # the shipped weights have less than 1 MiB
CHUNK_BYTES = 2**20
TIMEOUT_SECONDS = 30.0  # to connect, and between two pieces of the file

app = typer.Typer(no_args_is_help=True, help="Fetch model weights.")


@app.callback()
def _weights() -> None:
    """Fetch model weights."""


@app.command()
def fetch(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="URL (http, https) or path of a checkpoint.")],
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
    from model.errors import IncompatibleWeights

    if not re.fullmatch("[0-9a-f]{64}", sha256.lower()):
        raise typer.BadParameter(f"expected 64 hexadecimal digits, got {sha256!r}", param_hint="--sha256")
    if not target.parent.is_dir():
        raise typer.BadParameter(
            f"expected a folder that exists, got {target.parent}; create it first", param_hint="FILE"
        )
    wanted = sha256.lower()
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == wanted:
        print_note(f"{target} already has these weights")
        return
    name = _display_name(source)
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file, closing(read_source(source, bearer_token_file, ca_file)) as pieces:
            digest, size = hashlib.sha256(), 0
            for piece in pieces:
                size += len(piece)
                if size > MOST_BYTES:
                    raise IncompatibleWeights(
                        f"weights {name}: expected at most {MOST_BYTES} bytes, got more; correct SOURCE"
                    )
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != wanted:
            raise IncompatibleWeights(
                f"weights {name}: expected SHA-256 {wanted}, got {digest.hexdigest()} ({size} bytes); {target} is "
                "unchanged; correct the digest, or do not trust the source"
            )
        version = load(part).digest  # raises IncompatibleWeights
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    print_note(f"wrote {target}: model_version {version}")


def read_source(source: str, bearer_token_file: Path | None, ca_file: Path | None) -> Generator[bytes, None, None]:
    """Yield the content of a URL or a file in pieces.

    Raises:
        BadParameter: it is neither.
        IncompatibleWeights: it cannot be read as a whole.
        SecretUnreadable, BadSettings: the token or the certificates cannot be read.
    """
    import httpx

    from model.errors import IncompatibleWeights
    from serve_app.net.endpoint import Endpoint, check_url, ssl_context

    name = _display_name(source)
    if "://" not in source:
        try:
            with Path(source).open("rb") as file:
                while piece := file.read(CHUNK_BYTES):
                    yield piece
        except OSError as error:
            raise IncompatibleWeights(
                f"weights {name}: expected a readable file, got {error}; correct the path"
            ) from error
        return
    try:
        endpoint = Endpoint(check_url(source), bearer_token_file=bearer_token_file, ca_file=ca_file)
    except ValueError as error:
        raise typer.BadParameter(f"{name}: {error}", param_hint="SOURCE") from None
    try:
        with (
            httpx.Client(verify=ssl_context(ca_file), timeout=TIMEOUT_SECONDS, follow_redirects=True) as client,
            client.stream("GET", endpoint.url, headers=endpoint.request_headers()) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise IncompatibleWeights(
                    f"weights {name}: expected status 200, got {answer.status_code}; correct the URL, or get access"
                )
            yield from answer.iter_bytes(CHUNK_BYTES)
    except httpx.HTTPError as error:
        raise IncompatibleWeights(
            f"weights {name}: expected the whole file, got {type(error).__name__}; try again"
        ) from error


def _display_name(source: str) -> str:
    """The source for messages: without the query of a URL, which can hold a signature."""
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if "://" in source else source
