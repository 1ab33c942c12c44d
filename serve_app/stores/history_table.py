"""The history of meshes in a local store's file: one row for each chunk.

The history of a mesh shares its transactions: a minute is in the history if, and only if, a later snapshot is stored.
"""

import sqlite3
from collections.abc import Collection, Iterable

from serve_app.stores.base import ChunkKey, HistoryChunk
from serve_app.stores.rows import read_chunk, seal_chunk

# Not part of the layout: an earlier version works without this table, and leaves it unchanged. The index has all that
# is needed to list the chunks, so that their content is not read for it.
CREATE = """
CREATE TABLE IF NOT EXISTS history (
    mesh TEXT NOT NULL, step INTEGER NOT NULL, start INTEGER NOT NULL, part INTEGER NOT NULL, bytes INTEGER NOT NULL,
    content BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS history_by_key ON history (mesh, step, start, part);
CREATE INDEX IF NOT EXISTS history_sizes ON history (mesh, step, start, part, bytes);
"""


def write(db: sqlite3.Connection, mesh: str, chunks: Iterable[HistoryChunk]) -> None:
    """Add chunks to the history of a mesh, or replace them."""
    sealed = ((chunk.key, seal_chunk(mesh, chunk.key, chunk.content)) for chunk in chunks)
    db.executemany(
        "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?, ?, ?)",
        [(mesh, key.step, key.start, key.part, len(content), content) for key, content in sealed],
    )


def drop(db: sqlite3.Connection, mesh: str, keys: Iterable[ChunkKey]) -> None:
    """Delete chunks."""
    db.executemany(
        "DELETE FROM history WHERE mesh = ? AND step = ? AND start = ? AND part = ?",
        [(mesh, key.step, key.start, key.part) for key in keys],
    )


def read_sizes(db: sqlite3.Connection, mesh: str) -> dict[ChunkKey, int]:
    """The chunks of a mesh, each with its bytes."""
    found = db.execute("SELECT step, start, part, bytes FROM history INDEXED BY history_sizes WHERE mesh = ?", (mesh,))
    return {ChunkKey(step, start, part): size for step, start, part, size in found}


def read(db: sqlite3.Connection, mesh: str, keys: Collection[ChunkKey]) -> dict[ChunkKey, bytes]:
    """The content of each of these chunks that is stored, without damaged ones."""
    query = "SELECT content FROM history WHERE mesh = ? AND step = ? AND start = ? AND part = ?"
    rows = ((key, db.execute(query, (mesh, key.step, key.start, key.part)).fetchone()) for key in keys)
    found = ((key, read_chunk(mesh, key, row[0])) for key, row in rows if row is not None)
    return {key: content for key, content in found if content is not None}
