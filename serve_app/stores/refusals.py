"""Refusals that every store words alike."""

from serve_app.errors import StoreConflict, TooManyMeshes


def conflict(mesh: str, what: str, revision: int | None, stored_sequence: int, stored_revision: int) -> StoreConflict:
    """The error for a write that does not follow what is stored.

    Args:
        mesh: name.
        what: was to be written.
        revision: from which it was computed; None: unknown.
        stored_sequence, stored_revision: what is stored; 0 for nothing.
    """
    given = "" if revision is None else f" made from revision {revision}"
    return StoreConflict(
        f"mesh {mesh!r}: {what}{given} does not follow the stored sequence {stored_sequence}, revision "
        f"{stored_revision}; load the mesh again and repeat",
        sequence=stored_sequence,
        revision=stored_revision,
    )


def document_conflict(name: str, revision: int, stored_revision: int) -> StoreConflict:
    """The error for a document that was made from another revision than the stored one; 0: there is none."""
    return StoreConflict(
        f"document {name!r}: expected the stored revision {stored_revision}, got one made from {revision}; read it "
        "again and repeat",
        revision=stored_revision,
    )


def too_many_meshes(mesh: str, most: int | None) -> TooManyMeshes:
    """The error for a new mesh in a store that is full."""
    return TooManyMeshes(
        f"mesh {mesh!r}: expected at most {most} meshes in the store, got one more; nothing was changed; delete unused "
        "meshes (DELETE /v1/meshes/NAME), or raise limits.max_meshes"
    )


def require_keep(keep: int) -> None:
    """Raise ``ValueError`` if a write is to keep no snapshot."""
    if keep < 1:
        raise ValueError(f"keep: expected at least 1 snapshot, got {keep}")


def first_step() -> ValueError:
    """The error for a mesh that would begin with a step."""
    return ValueError("is_step: expected the first state of a mesh in full, got a step")
