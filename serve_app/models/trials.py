"""What the store keeps of a trial: one document for each mesh."""

from serve_app.api.schemas.models import MeshTrialDocument
from serve_app.stores.state_store import StateStore


def read_trial(store: StateStore, mesh: str) -> tuple[int, MeshTrialDocument | None]:
    """The revision and the trial of a mesh; 0 and None if there is none. One of another version counts as none."""
    found = store.read_document(_name(mesh))
    if found is None:
        return 0, None
    try:
        return found.revision, MeshTrialDocument.model_validate_json(found.content)
    except ValueError:
        return found.revision, None


def write_trial(store: StateStore, document: MeshTrialDocument, revision: int) -> int:
    """Replace the trial of a mesh; arguments, result and errors as of :meth:`StateStore.write_document`."""
    return store.write_document(_name(document.mesh), document.model_dump_json().encode(), revision=revision)


def delete_trial(store: StateStore, mesh: str) -> None:
    """Delete the trial of a mesh, if there is one.

    Raises:
        ServeError: the store cannot be used, or another process changed the trial meanwhile.
    """
    found = store.read_document(_name(mesh))
    if found is not None:
        store.write_document(_name(mesh), b"", revision=found.revision)


def _name(mesh: str) -> str:
    return f"trial/{mesh}"
