"""Saved views of the page, in one document of the store that changes with compare-and-set."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

from serve_app.api.schemas.saved_views import KeptSavedViewDocument, SavedViewDocument, SavedViewsDocument
from serve_app.errors import (
    BadMeshName,
    CorruptState,
    Forbidden,
    InvalidDocument,
    StoreConflict,
    TooManySavedViews,
    UnknownSavedView,
)
from serve_app.settings.base import check_mesh_name
from serve_app.stores.base import SAVED_VIEWS
from serve_app.stores.state_store import StateStore

ATTEMPTS = 5  # of a change, if other processes change the views too
FIELDS = (  # of an address, as static/link.js has them
    *("mesh", "at", "service", "source", "incident", "view", "expand", "space", "only", "labels", "team"),
    *("first", "second", "history", "tz", "range", "with", "focus"),
)
Meshes = frozenset[str] | None  # that a caller may see; None: all


class SavedViews:
    """The saved views of all meshes. Its methods block; ``meshes`` are those that the caller may see.

    Args:
        store: of the service.
        most: how many there can be.
    """

    def __init__(self, store: StateStore, most: int) -> None:
        self._store, self._most = store, most

    def read(self, meshes: Meshes) -> SavedViewsDocument:
        """The views of the meshes that the caller may see, and those for all meshes, by name.

        Raises:
            CorruptState: this version cannot read them.
            ServeError: the store cannot be read.
        """
        found = [one for one in self._read()[1].views if _can_read(one.mesh, meshes)]
        return SavedViewsDocument(views=sorted(found, key=lambda one: (one.name.casefold(), one.id)))

    def save(self, document: SavedViewDocument, meshes: Meshes, by: str = "") -> KeptSavedViewDocument:
        """Save a view, or replace the one with its id.

        Raises:
            InvalidDocument: the address is none of this page, or not of a mesh that can be.
            Forbidden: the caller may not see the mesh.
            UnknownSavedView: none that the caller may see has the id.
            TooManySavedViews: there are as many as there can be.
            StoreConflict: other processes changed the views again and again.
            ServeError: the store cannot be used.
        """
        address, mesh = check_address(document.address)
        _require_access(mesh, meshes)
        kept = KeptSavedViewDocument(
            id=document.id or secrets.token_hex(8),
            name=document.name.strip(),
            address=address,
            mesh=mesh,
            saved_at=datetime.now(UTC),
            saved_by=by,
        )

        def change(views: list[KeptSavedViewDocument]) -> list[KeptSavedViewDocument]:
            if document.id is not None:
                _find(views, document.id, meshes)
            elif len(views) >= self._most:
                raise TooManySavedViews(
                    f"saved views: the limit is {self._most}, got one more; delete one, or raise limits.max_saved_views"
                )
            return [*(one for one in views if one.id != kept.id), kept]

        self._change(change)
        return kept

    def delete(self, view: str, meshes: Meshes) -> None:
        """Delete a view by its id.

        Raises:
            UnknownSavedView, Forbidden, StoreConflict, ServeError: as in :meth:`save`.
        """

        def change(views: list[KeptSavedViewDocument]) -> list[KeptSavedViewDocument]:
            found = _find(views, view, meshes)
            return [one for one in views if one is not found]

        self._change(change)

    def _read(self) -> tuple[int, SavedViewsDocument]:
        """The revision and the views; 0 and none if nothing is stored."""
        found = self._store.read_document(SAVED_VIEWS)
        if found is None:
            return 0, SavedViewsDocument()
        try:
            return found.revision, SavedViewsDocument.model_validate_json(found.content)
        except ValueError as error:
            raise CorruptState(
                f"saved views: expected a document of this version, got another one ({error}); use the version that "
                "wrote it"
            ) from error

    def _change(self, change: Callable[[list[KeptSavedViewDocument]], list[KeptSavedViewDocument]]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            revision, before = self._read()
            after = SavedViewsDocument(views=change(before.views))
            content = after.model_dump_json().encode() if after.views else b""  # which deletes the document
            try:
                self._store.write_document(SAVED_VIEWS, content, revision=revision)
            except StoreConflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return


def check_address(address: str) -> tuple[str, str | None]:
    """The canonical form of an address of this page, and its mesh; None: it has none.

    Only the fields of the page can be in it, so a saved view leads to no other page and runs nothing.

    Raises:
        InvalidDocument: it has another form.
    """
    try:
        fields = parse_qsl(address, keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise _bad_address("expected fields such as mesh=shop&view=all, without the #", address) from None
    names = [name for name, _ in fields]
    if not names:
        raise _bad_address("expected fields such as mesh=shop&view=all, got none", address)
    if unknown := [name for name in names if name not in FIELDS]:
        raise _bad_address(f"expected the fields of a view ({', '.join(FIELDS)}), got {unknown[0][:40]!r}", address)
    if len(set(names)) < len(names):
        raise _bad_address("expected each field once", address)
    mesh = dict(fields).get("mesh")
    if mesh is not None:
        try:
            check_mesh_name(mesh)
        except BadMeshName as error:
            raise _bad_address(str(error), address) from None
    return urlencode([(name, value) for name, value in fields if value]), mesh


def _bad_address(expected: str, address: str) -> InvalidDocument:
    detail = f"{expected}; copy the address from the page" + ("" if len(address) > 80 else f", got {address!r}")
    return InvalidDocument(
        f"/address: {detail}", pointer="/address", errors=[{"pointer": "/address", "detail": detail}]
    )


def _find(views: list[KeptSavedViewDocument], view: str, meshes: Meshes) -> KeptSavedViewDocument:
    """The view with an id, which the caller may change."""
    found = next((one for one in views if one.id == view and _can_read(one.mesh, meshes)), None)
    if found is None:
        raise UnknownSavedView(
            f"saved view: expected the id of one in the list, got {view[:80]!r}; read the list again"
        )
    _require_access(found.mesh, meshes)
    return found


def _can_read(mesh: str | None, meshes: Meshes) -> bool:
    return mesh is None or meshes is None or mesh in meshes


def _require_access(mesh: str | None, meshes: Meshes) -> None:
    """Refuse a change by a caller who may not see the mesh; views for all meshes are changed by those who see all."""
    if meshes is not None and mesh not in meshes:
        what = "all meshes" if mesh is None else f"mesh {mesh!r}"
        raise Forbidden(f"saved view of {what}: expected access to {what}, got less; use a token with this access")
