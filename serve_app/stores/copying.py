"""Copies meshes from one store to another, with their revisions and history, and the documents of the service."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from serve_app.errors import CorruptState, StoreConflict, UnknownMesh
from serve_app.stores.base import ROLLOUT, HistoryChunk, StateStore, WholeMesh

CHUNKS_AT_ONCE = 256  # of a history: some MB


@dataclass(frozen=True, slots=True)
class CopiedMesh:
    """A mesh that was copied.

    Attributes:
        mesh: name.
        revision: in both stores.
        sequence: number of counted snapshots.
        snapshots: how many are kept.
        incidents: in the archive.
        history_bytes: of its history.
    """

    mesh: str
    revision: int
    sequence: int
    snapshots: int
    incidents: int
    history_bytes: int


def choose_meshes(source: StateStore, target: StateStore, names: Iterable[str], *, overwrite: bool) -> list[str]:
    """The meshes to copy: these, or all if no name is given. Writes nothing.

    Raises:
        UnknownMesh: the source has no mesh of this name.
        StoreConflict: the target has some of them, and they are not to be overwritten.
    """
    stored = [one.mesh for one in source.meshes()]
    wanted = list(dict.fromkeys(names)) or stored
    unknown = sorted(set(wanted) - set(stored))
    if unknown:
        raise UnknownMesh(
            f"expected meshes of the source ({', '.join(stored) or 'it has none'}), got {', '.join(unknown)}; correct "
            "the names"
        )
    known = [] if overwrite else [mesh for mesh in wanted if target.load(mesh) is not None]
    if known:
        raise StoreConflict(
            f"expected a target without the meshes to copy, got one with {', '.join(known)}; nothing was copied; "
            "choose other meshes (--mesh), or replace them (--overwrite)"
        )
    return wanted


def copy_meshes(
    source: StateStore, target: StateStore, meshes: Iterable[str], *, overwrite: bool
) -> Iterator[CopiedMesh]:
    """Copy meshes one by one, and compare each copy with what was read.

    Raises:
        StoreConflict: the target has a mesh that is not to be overwritten, or a mesh changed meanwhile.
        CorruptState: a mesh cannot be read, or its copy differs.
        ServeError: a store cannot be used.
    """
    for mesh in meshes:
        whole = source.read_whole(mesh)
        if whole is None:  # deleted meanwhile
            continue
        target.write_whole(mesh, whole, replace=overwrite)
        if target.read_whole(mesh) != whole:
            raise CorruptState(
                f"mesh {mesh!r}: expected a copy that equals revision {whole.state.revision} of the source, got "
                "another one; stop what writes to the target, and copy it again with --overwrite"
            )
        now = source.load(mesh)
        if now is None or now.revision != whole.state.revision:
            raise StoreConflict(
                f"mesh {mesh!r}: expected revision {whole.state.revision} in the source after the copy too, got "
                f"{now.revision if now else 'no mesh'}; stop the service that writes to it, and copy it again with "
                "--overwrite"
            )
        yield _summarize(mesh, whole, _copy_history(source, target, mesh))


def copy_rollout(source: StateStore, target: StateStore, *, overwrite: bool) -> bool:
    """Copy the document that says which mesh uses which model. Returns whether there is one.

    Raises:
        StoreConflict: the target has one, and it is not to be overwritten.
        ServeError: a store cannot be used.
    """
    document, before = source.read_document(ROLLOUT), target.read_document(ROLLOUT)
    if document is None:
        return False
    if before is not None and not overwrite:
        raise StoreConflict(
            "expected a target without a rollout of models, got one with it; copy single meshes (--mesh), or replace "
            "it (--overwrite)"
        )
    target.write_document(ROLLOUT, document.content, revision=before.revision if before else 0)
    return True


def _copy_history(source: StateStore, target: StateStore, mesh: str) -> int:
    """Copy the history of a mesh, and compare the copy. Returns its bytes, without damaged chunks."""
    keys, size = sorted(source.history_sizes(mesh)), 0
    for at in range(0, len(keys), CHUNKS_AT_ONCE):
        some = keys[at : at + CHUNKS_AT_ONCE]
        content = source.history(mesh, some)
        target.write_history(mesh, [HistoryChunk(key, one) for key, one in content.items()])
        if target.history(mesh, some) != content:
            raise CorruptState(
                f"mesh {mesh!r}: expected a copy of its history that equals the source, got another one; stop what "
                "writes to the target, and copy the mesh again with --overwrite"
            )
        size += sum(map(len, content.values()))
    return size


def _summarize(mesh: str, whole: WholeMesh, history_bytes: int) -> CopiedMesh:
    state = whole.state
    return CopiedMesh(mesh, state.revision, state.sequence, len(whole.window), len(whole.incidents), history_bytes)
