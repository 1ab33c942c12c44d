"""Adds and removes entries in a tokens file. Comments and the order of other entries are kept."""

import fcntl
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from serve_app.access.tokens import Scope, Token, hash_token, parse
from serve_app.errors import BadSettings

PREFIX = "tagae_"  # lets scanners for leaked secrets recognise a token
TOKEN_BYTES = 32
MODE = 0o600
ENTRY = re.compile(r"^(?=[ \t]*\[\[[ \t]*tokens[ \t]*\]\])", re.MULTILINE)


def create(
    path: Path,
    name: str,
    scopes: Iterable[Scope],
    meshes: Iterable[str] = (),
    expires: datetime | None = None,
) -> str:
    """Add a token to a file. Creates the file if it does not exist.

    Returns:
        The token. The file holds only its hash, so the token cannot be shown again.

    Raises:
        BadSettings: the name is taken or not allowed, or the file cannot be read or written.
    """
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    lines = ["[[tokens]]", f'name = "{name}"', f'sha256 = "{hash_token(token).hex()}"']
    lines.append(f"scopes = [{_quote(sorted(set(scopes)))}]")
    if mesh_names := sorted(set(meshes)):
        lines.append(f"meshes = [{_quote(mesh_names)}]")
    if expires is not None:
        lines.append(f"expires = {expires.isoformat()}")
    entry = "\n".join(lines) + "\n"
    parse(entry, f"token {name!r}")
    with _lock(path):
        before = _text(path)
        if any(token.name == name for token in parse(before, str(path))):
            raise BadSettings(f"{path}: expected a new name, {name!r} is taken; choose another, or remove that token")
        gap = "" if not before.strip() else "\n" if before.endswith("\n") else "\n\n"
        _replace(path, before + gap + entry)
    return token


def remove(path: Path, name: str) -> None:
    """Remove a token from a file.

    Raises:
        BadSettings: there is no token with this name, or the file cannot be read or written.
    """
    with _lock(path):
        before = _text(path)
        tokens = parse(before, str(path))
        if name not in {token.name for token in tokens}:
            names = ", ".join(token.name for token in tokens)
            raise BadSettings(f"{path}: expected the name of a token ({names or 'there are none'}), got {name!r}")
        head, *entries = ENTRY.split(before)
        other_entries = [entry for entry in entries if [t.name for t in parse(entry, str(path))] != [name]]
        after = head + "".join(other_entries)
        if parse(after, str(path)) != tuple(token for token in tokens if token.name != name):
            raise BadSettings(f"{path}: expected [[tokens]] entries, one below the other; remove {name!r} by hand")
        _replace(path, after)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens of a file.

    Raises:
        BadSettings: it cannot be read.
    """
    return parse(_text(path), str(path))


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: expected a readable UTF-8 file, got {type(error).__name__}") from None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One writer at a time. The lock is on the folder, since the file itself is replaced."""
    try:
        folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BadSettings(f"{path}: expected a folder that exists, got {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically: a service that reads it gets either the old or the new text."""
    path = path.resolve()
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    except OSError as error:
        raise BadSettings(f"{path}: expected a folder that can be written, got {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), MODE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BadSettings(f"{path}: expected a file that can be written, got {error.strerror}") from None
