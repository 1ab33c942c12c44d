"""Access tokens and the file that holds their hashes.

The file is TOML. ``tagae token create`` writes it, and it can be edited by hand::

    [[tokens]]
    name = "grafana"
    sha256 = "4bf5..."
    scopes = ["read"]
    meshes = ["shop"]                 # optional: only these meshes
    expires = 2027-01-01T00:00:00Z    # optional

A token is 32 random bytes, so a plain SHA-256 is the right hash. Slow, salted hashes protect passwords, which people
choose and attackers guess. 256 random bits cannot be guessed, and a fast hash adds only a few microseconds to a
request.
"""

import hmac
import logging
import re
import stat
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from serve_app.errors import BadSettings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
MESH = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
HASH = re.compile(r"[0-9a-f]{64}")
FIELDS = ("name", "sha256", "scopes", "meshes", "expires")
log = logging.getLogger(__name__)


class Scope(StrEnum):
    """A token's permission.

    The scopes are independent, except that ``admin`` includes the other two. ``write`` does not include ``read``: a job
    that pushes snapshots gets its own verdicts and nothing else.
    """

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """A caller's permissions.

    Attributes:
        scopes: at least one.
        meshes: meshes to which the scopes apply; None: all.
    """

    scopes: frozenset[Scope]
    meshes: frozenset[str] | None = None

    def has(self, scope: Scope) -> bool:
        """Whether the scope is granted, directly or through ``admin``."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def covers(self, mesh: str) -> bool:
        return self.meshes is None or mesh in self.meshes


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(Grant):
    """An entry of the file.

    Attributes:
        name: for messages and logs, never in metrics.
        digest: SHA-256 of the token, 32 bytes.
        expires: UTC; None: never.
    """

    name: str
    digest: bytes
    expires: datetime | None = None

    def has_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires


def hash_token(token: str) -> bytes:
    return sha256(token.encode()).digest()


def parse(text: str, place: str) -> tuple[Token, ...]:
    """Parse a tokens file.

    Args:
        text: TOML.

    Raises:
        BadSettings: the text is not TOML, or an entry is wrong. The message never holds a hash.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{place}: expected TOML with [[tokens]] entries, got {error}; correct the file") from None
    if unknown := [name for name in content if name != "tokens"]:
        raise BadSettings(f"{place}: expected only [[tokens]] entries, got {unknown[0]!r}; remove it")
    entries = content.get("tokens", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadSettings(f"{place}: expected tokens as [[tokens]] entries, got {type(entries).__name__}")
    tokens = tuple(_token(entry, f"{place}: entry {i + 1}") for i, entry in enumerate(entries))
    for field, values in (("name", [t.name for t in tokens]), ("sha256", [t.digest for t in tokens])):
        if len(set(values)) < len(values):
            raise BadSettings(f"{place}: expected each {field} once, got a duplicate; remove one of the entries")
    return tokens


def _token(entry: dict[str, Any], place: str) -> Token:
    if unknown := [name for name in entry if name not in FIELDS]:
        raise BadSettings(f"{place}: {unknown[0]!r} is not a field; expected {', '.join(FIELDS)}")
    name, digest, expires = entry.get("name"), entry.get("sha256"), entry.get("expires")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadSettings(f"{place}: name: expected 1 to 63 letters, digits and . _ @ -, got {name!r}")
    place = f"{place} ({name})"
    if not isinstance(digest, str) or not HASH.fullmatch(digest):
        raise BadSettings(f"{place}: sha256: expected 64 hexadecimal digits in lower case")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise BadSettings(f"{place}: expires: expected a time with a zone such as 2027-01-01T00:00:00Z")
    return Token(
        parse_scopes(entry.get("scopes"), f"{place}: scopes"),
        _meshes(entry, place),
        name=name,
        digest=bytes.fromhex(digest),
        expires=None if expires is None else expires.astimezone(UTC),
    )


def parse_scopes(names: object, place: str) -> frozenset[Scope]:
    """Parse a list of scope names.

    Raises:
        BadSettings: the list is empty, or a scope does not exist.
    """
    scopes = [scope.value for scope in Scope]
    if not isinstance(names, list | tuple) or not names or not all(name in scopes for name in names):
        raise BadSettings(f"{place}: expected one or more of {', '.join(scopes)}, got {names!r}")
    return frozenset(Scope(name) for name in names)


def _meshes(entry: dict[str, Any], place: str) -> frozenset[str] | None:
    if "meshes" not in entry:
        return None
    names = entry["meshes"]
    is_list = isinstance(names, list) and all(isinstance(name, str) and MESH.fullmatch(name) for name in names)
    if not is_list or not names:
        raise BadSettings(f"{place}: meshes: expected a list of mesh names, got {names!r}; leave it out for all")
    return frozenset(names)


def find_token(tokens: Iterable[Token], token: str) -> Token | None:
    """A token's entry, even if it has expired.

    The duration does not reveal which entry matches, or how much of a hash: every entry is compared in constant time.
    """
    digest, match = hash_token(token), None
    for entry in tokens:
        if hmac.compare_digest(entry.digest, digest):
            match = entry
    return match


def read_token_file(path: Path) -> tuple[Token, ...]:
    """Read the tokens of a file. To revoke a token, remove its entry; to revoke all, leave an empty file.

    Raises:
        BadSettings: the file cannot be read, is invalid, or everyone can write it.
    """
    place = f"tokens file {path}"
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"{place}: expected a readable file, got {getattr(error, 'strerror', None) or 'other than UTF-8'}; create "
            "one with `tagae token create`, or correct the path"
        ) from None
    # Anyone who can write the file can add a token. Reading it reveals only names and hashes, and all users in a pod
    # can read a mounted Secret, so a warning is enough.
    if mode & stat.S_IWOTH:
        raise BadSettings(f"{place}: expected a file that only its owner can write; run chmod 600 {path}")
    if mode & (stat.S_IROTH | stat.S_IWGRP):
        log.warning("%s: other users can read it, or its group can write it; run chmod 600 %s", place, path)
    return parse(text, place)
