"""Routes that change a mesh: feedback, actions on incidents, mutes, its source, deletion."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from serve_app.actions.feedback import decode_feedback
from serve_app.api.schemas.actions import (
    ActionDocument,
    ConnectedDocument,
    ConnectionDocument,
    FeedbackDocument,
    FeedbackListDocument,
    KeptActionDocument,
    KeptFeedbackDocument,
    KeptMuteDocument,
    MissedDocument,
    MuteDocument,
    MuteListDocument,
)
from serve_app.api.schemas.base import Id
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import principal_of
from serve_app.deployments.http.audit import note_names
from serve_app.deployments.http.bodies import read_document, schema_decoder
from serve_app.deployments.http.interface import MeshName, describe_json_body, json_response
from serve_app.deployments.http.routes.dependencies import BODY_ERRORS, MESH_ERRORS, UseBackend, errors_of_mesh
from serve_app.deployments.http.routes.incidents import IncidentId
from serve_app.errors import (
    InvalidParameter,
    NoTelemetry,
    StoreConflict,
    StoreFull,
    TooManyActions,
    TooManyMutes,
    TooMuchFeedback,
    UnknownIncident,
    UnknownMesh,
    UnknownMute,
)
from serve_app.settings.base import check_mesh_name

router = APIRouter(tags=["Feedback and mutes"])


@router.post(
    "/v1/meshes/{mesh}/feedback",
    response_model=KeptFeedbackDocument,
    openapi_extra=describe_json_body(FeedbackDocument, MissedDocument),
    responses=errors_of_mesh(*BODY_ERRORS, UnknownIncident, TooMuchFeedback, StoreConflict, StoreFull),
)
async def add_feedback(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Give feedback on an incident: confirm it, reject it as a false alarm, name its cause, or report one that was
    missed. It applies from the next snapshot on and replaces earlier feedback on the same incident."""
    document = await read_document(request, decode_feedback)
    note_names(request, getattr(document, "incident", None), *(getattr(document, "services", None) or ()))
    return json_response(
        await backend.ask(backend.api(mesh).changes.add_feedback, mesh, document, principal_of(request).name)
    )


@router.get("/v1/meshes/{mesh}/feedback", response_model=FeedbackListDocument, responses=errors_of_mesh())
async def feedback(mesh: MeshName, backend: UseBackend) -> Response:
    """The feedback on incidents of this mesh, and its effect."""
    return json_response(await backend.ask(backend.api(mesh).meshes.feedback, mesh))


@router.delete(
    "/v1/meshes/{mesh}/feedback/{incident}",
    status_code=204,
    response_class=Response,
    responses=errors_of_mesh(UnknownIncident, StoreConflict, StoreFull),
)
async def withdraw_feedback(
    mesh: MeshName,
    incident: Annotated[Id, Path(description="id that the feedback is kept under")],
    backend: UseBackend,
) -> Response:
    """Withdraw the feedback on an incident. It has no effect from the next snapshot on."""
    await backend.ask(backend.api(mesh).changes.withdraw_feedback, mesh, incident)
    return Response(status_code=204)


@router.post(
    "/v1/meshes/{mesh}/incidents/{incident}/actions",
    response_model=KeptActionDocument,
    openapi_extra=describe_json_body(ActionDocument),
    responses=errors_of_mesh(*BODY_ERRORS, UnknownIncident, TooManyActions, StoreConflict, StoreFull),
)
async def add_action(mesh: MeshName, incident: IncidentId, request: Request, backend: UseBackend) -> Response:
    """Say what you do about an incident, open or archived: that you are on it, a note, or what helped. Or accept the
    present level of an open one as normal, for its services and for calls from and to them. The incident then ends with
    the next snapshot. This cannot be undone, but later levels become normal in time, as always. Repeating the request
    changes nothing."""
    document = await read_document(request, schema_decoder(ActionDocument))
    note_names(request, document.kind)
    by = principal_of(request).name
    return json_response(await backend.ask(backend.api(mesh).changes.add_action, mesh, incident, document, by))


@router.post(
    "/v1/meshes/{mesh}/mutes",
    response_model=KeptMuteDocument,
    openapi_extra=describe_json_body(MuteDocument),
    responses=errors_of_mesh(*BODY_ERRORS, TooManyMutes, StoreConflict, StoreFull),
)
async def add_mute(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Mute some services or the whole mesh for a while: they raise no alerts. They are still scored and can be suspects
    in incidents of other services. Repeating the same request does not add a second mute."""
    document = await read_document(request, schema_decoder(MuteDocument))
    note_names(request, *(document.services or ()))
    return json_response(
        await backend.ask(backend.api(mesh).changes.add_mute, mesh, document, principal_of(request).name)
    )


@router.get("/v1/meshes/{mesh}/mutes", response_model=MuteListDocument, responses=errors_of_mesh())
async def mutes(mesh: MeshName, backend: UseBackend) -> Response:
    """The current and future mutes that were set here. Verdicts list all mutes that are in force, from any source."""
    return json_response(await backend.ask(backend.api(mesh).meshes.mutes, mesh))


@router.delete(
    "/v1/meshes/{mesh}/mutes/{mute}",
    status_code=204,
    response_class=Response,
    responses=errors_of_mesh(UnknownMute, StoreConflict, StoreFull),
)
async def remove_mute(
    mesh: MeshName, mute: Annotated[Id, Path(description="id that the mute is kept under")], backend: UseBackend
) -> Response:
    """Remove a mute. It has no effect from the next snapshot on."""
    await backend.ask(backend.api(mesh).changes.remove_mute, mesh, mute)
    return Response(status_code=204)


@router.post(
    "/v1/meshes/{mesh}/source",
    response_model=ConnectedDocument,
    openapi_extra=describe_json_body(ConnectionDocument),
    responses=problems.describe_errors(
        *MESH_ERRORS, *BODY_ERRORS, InvalidParameter, NoTelemetry, StoreConflict, StoreFull
    ),
)
async def connect(mesh: MeshName, request: Request, backend: UseBackend) -> Response:
    """Read a mesh from a Prometheus from now on, also after a restart, until the mesh is deleted. First it is read
    once: if that shows no mesh, nothing is changed. A mesh whose source is in the settings is changed there."""
    document = await read_document(request, schema_decoder(ConnectionDocument))
    check_mesh_name(mesh)
    picture = await backend.ask(backend.collector.connect, mesh, document.prometheus)
    return json_response(ConnectedDocument.from_object(picture))


@router.delete("/v1/meshes/{mesh}", status_code=204, response_class=Response, responses=errors_of_mesh(StoreFull))
async def delete(mesh: MeshName, backend: UseBackend) -> Response:
    """Delete a mesh: its state, snapshots and verdicts. One that was connected here is no longer read."""
    session = backend.session_of(mesh)
    was_connected = await backend.ask(backend.any_session.connections.remove, mesh)
    if was_connected:
        await backend.ask(backend.collector.update_connections)  # else its next snapshot would create it again
    try:
        await backend.ask(session.delete, mesh)
    except UnknownMesh:  # it had no snapshot yet
        if not was_connected:
            raise
    return Response(status_code=204)
