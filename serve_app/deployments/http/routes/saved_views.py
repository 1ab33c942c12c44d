"""Routes of the saved views of the page: named links that people share."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from serve_app.access import Scope
from serve_app.api.schemas.base import Id
from serve_app.api.schemas.saved_views import KeptSavedViewDocument, SavedViewsDocument
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import principal_of
from serve_app.deployments.http.audit import note_names
from serve_app.deployments.http.bodies import read_saved_view
from serve_app.deployments.http.routes.dependencies import BUSY, WITH_A_BODY, UseBackend
from serve_app.deployments.http.routes.responses import describe_json_body, json_response
from serve_app.errors import InvalidParameter, StoreConflict, StoreFull, TooManySavedViews, UnknownSavedView
from serve_app.runtime.rpc import Caller

router = APIRouter()
CHANGE = (InvalidParameter, *BUSY, UnknownSavedView, StoreConflict, StoreFull)


@router.get("/v1/views", response_model=SavedViewsDocument, responses=problems.describe_errors(InvalidParameter, *BUSY))
async def saved_views(request: Request, backend: UseBackend) -> Response:
    """The saved views of the page, for the meshes that the caller may see and for all meshes."""
    return json_response(await backend.ask(backend.doors.saved_views.read, principal_of(request).meshes))


@router.post(
    "/v1/views",
    operation_id="save_view",
    response_model=KeptSavedViewDocument,
    openapi_extra=describe_json_body("SavedViewDocument"),
    responses=problems.describe_errors(*CHANGE, *WITH_A_BODY, TooManySavedViews),
)
async def save_view(request: Request, backend: UseBackend) -> Response:
    """Save the address of a view of the page under a name, for everyone who may see its mesh. With an `id`, the view
    with this id is replaced. Views without a mesh are changed by callers who may see all meshes."""
    caller, principal = Caller(backend.deadline()), principal_of(request)
    document = await read_saved_view(request, backend.settings.limits)
    note_names(request, document.id, document.name)
    meshes = principal.meshes_with(Scope.WRITE)
    saved = await caller.ask(backend.doors.saved_views.save, document, meshes, principal.name)
    return json_response(saved)


@router.delete(
    "/v1/views/{view}",
    operation_id="delete_view",
    status_code=204,
    response_class=Response,
    responses=problems.describe_errors(*CHANGE),
)
async def delete_view(
    view: Annotated[Id, Path(description="id of a saved view", examples=["9f86d081884c7d65"])],
    request: Request,
    backend: UseBackend,
) -> Response:
    """Delete a saved view."""
    await backend.ask(backend.doors.saved_views.delete, view, principal_of(request).meshes_with(Scope.WRITE))
    return Response(status_code=204)
