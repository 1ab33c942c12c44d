"""Copies meshes with their history, and the rollout of models, from one store to another; exports histories to
files."""

import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from serve_app.errors import CorruptState, StoreConflict, UnknownMesh
from serve_app.stores import rows
from serve_app.stores.history_files import MINUTE, read_files
from serve_app.stores.records import ROLLOUT, StoredMesh
from serve_app.stores.row_store import HEAD, Change, Row, only, under
from serve_app.stores.state_store import StateStore

CHUNKS_PER_READ = 256  # some MB
_MESH_ROWS = tuple(under(key) if key.endswith("/") else only(key) for key in (*rows.LIVE, *rows.ARCHIVE))


def choose_meshes(source: StateStore, target: StateStore, names: Iterable[str], *, overwrite: bool) -> list[str]:
    """Return the meshes to copy: these, or all if no name is given. Writes nothing.

    Raises:
        UnknownMesh: the source has no mesh of this name.
        StoreConflict: the target has some of them, and may not overwrite them.
    """
    available = [mesh.mesh for mesh in source.meshes()]
    selection = list(dict.fromkeys(names)) or available
    unknown = sorted(set(selection) - set(available))
    if unknown:
        raise UnknownMesh(
            f"expected meshes of the source ({', '.join(available) or 'it has none'}), got {', '.join(unknown)}; "
            "correct the names"
        )
    conflicts = [] if overwrite else [mesh for mesh in selection if target.load(mesh) is not None]
    if conflicts:
        raise StoreConflict(
            f"expected a target without the meshes to copy, got one with {', '.join(conflicts)}; nothing was copied; "
            "choose other meshes (--mesh), or replace them (--overwrite)"
        )
    return selection


def copy_meshes(
    source: StateStore, target: StateStore, meshes: Iterable[str], *, overwrite: bool
) -> Iterator[StoredMesh]:
    """Copy meshes one by one, compare each copy with its source, and yield each mesh when it is copied.

    Raises:
        StoreConflict: the target has a mesh and may not overwrite it, or a mesh changed meanwhile.
        CorruptState: a mesh cannot be read, or the copy of its history differs.
        ServeError: a store cannot be used.
    """
    for mesh in meshes:
        source.verify(mesh)
        content, before = _read(source, mesh), target.load(mesh)
        if not content:  # deleted meanwhile
            continue
        head = content[HEAD].split()
        revision, sequence = int(head[0]), int(head[1])
        copy = content | {HEAD: b"%d %d %b" % (revision, sequence, uuid.uuid4().hex.encode())}
        expects = {HEAD: b"%d " % before.revision if before is not None and overwrite else None}
        is_done = target.database.write(mesh, Change(expects, drops=[""], puts=list(copy.items())))
        if not is_done or _read(target, mesh) != copy:
            raise StoreConflict(
                f"mesh {mesh!r}: expected a target that nothing else writes to, got one that changed; stop the service "
                "that writes to it, and copy the mesh again with --overwrite"
            )
        _copy_history(source, target, mesh)
        if (after := source.load(mesh)) is None or after.revision != revision:
            raise StoreConflict(
                f"mesh {mesh!r}: expected revision {revision} in the source after the copy too, got "
                f"{after.revision if after else 'no mesh'}; stop the service that writes to it, and copy it again with "
                "--overwrite"
            )
        yield after


def copy_rollout(source: StateStore, target: StateStore, *, overwrite: bool) -> bool:
    """Copy the rollout of models, and return whether there is one.

    Raises:
        StoreConflict: the target has one and may not overwrite it.
    """
    document, before = source.read_document(ROLLOUT), target.read_document(ROLLOUT)
    if not document.revision:
        return False
    if before.revision and not overwrite:
        raise StoreConflict(
            "expected a target without a rollout of models, got one with it; copy single meshes (--mesh), or replace "
            "it (--overwrite)"
        )
    target.write_document(ROLLOUT, document.content, revision=before.revision)
    return True


def export_history(store: StateStore, mesh: str, folder: Path) -> int:
    """Write the files of a mesh's history to a folder, and return their number.

    They are ``minutes/mesh-TIME.parquet`` and ``minutes/series-TIME-PART.parquet``, and the same in ``ten-minutes``.
    """
    keys, count = sorted(store.history_sizes(mesh)), 0
    if not keys and store.load(mesh) is None:
        raise UnknownMesh(f"mesh {mesh!r}: nothing is stored under this name; correct the name")
    for start in range(0, len(keys), CHUNKS_PER_READ):
        files = store.history(mesh, keys[start : start + CHUNKS_PER_READ])
        for key in read_files(mesh, files, ["time"]):
            place = folder / ("minutes" if key.step == MINUTE else "ten-minutes")
            place.mkdir(parents=True, exist_ok=True)
            time = f"{datetime.fromtimestamp(key.start, UTC):%Y%m%dT%H%M%SZ}"
            name = f"series-{time}-{key.part:03}" if key.part else f"mesh-{time}"
            (place / f"{name}.parquet").write_bytes(files[key])
            count += 1
    return count


def _read(store: StateStore, mesh: str) -> dict[str, bytes]:
    return dict(chain.from_iterable(store.database.read(mesh, *_MESH_ROWS)))


def _copy_history(source: StateStore, target: StateStore, mesh: str) -> None:
    (sizes,) = source.database.read(mesh, under(rows.SIZE))
    for start in range(0, len(sizes), CHUNKS_PER_READ):
        batch = sizes[start : start + CHUNKS_PER_READ]
        ranges = [only(rows.CHUNK + key.removeprefix(rows.SIZE)) for key, _ in batch]
        chunks: list[Row] = list(chain.from_iterable(source.database.read(mesh, *ranges)))
        target.database.write(mesh, Change(puts=[*chunks, *batch]))
        if list(chain.from_iterable(target.database.read(mesh, *ranges))) != chunks:
            raise CorruptState(
                f"mesh {mesh!r}: expected a copy of its history that equals the source, got another one; stop what "
                "writes to the target, and copy the mesh again with --overwrite"
            )
