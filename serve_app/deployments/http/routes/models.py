"""Model routes: the registry, and which meshes use which version."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from model.errors import IncompatibleWeights
from serve_app.api.schemas.models import (
    CanaryDocument,
    ComparisonOfModels,
    ModelsDocument,
    PromotionDocument,
    RollbackDocument,
    RolloutDocument,
)
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import principal_of
from serve_app.deployments.http.audit import note_names
from serve_app.deployments.http.bodies import read_document, schema_decoder
from serve_app.deployments.http.interface import describe_json_body, json_response
from serve_app.deployments.http.routes.dependencies import BODY_ERRORS, BUSY, UseBackend
from serve_app.errors import (
    BadMeshName,
    InvalidParameter,
    RegistryGone,
    StoreConflict,
    StoreFull,
    UnfitModel,
    UnknownModel,
)
from serve_app.settings.base import check_mesh_name

router = APIRouter(tags=["Models"])
Version = Annotated[
    str, Path(max_length=80, description="version of a model, 16 hexadecimal digits", examples=["20197a285a383037"])
]
REGISTRY = (InvalidParameter, RegistryGone, *BUSY)
CHANGE = (*REGISTRY, *BODY_ERRORS, UnfitModel, StoreConflict, StoreFull)


@router.get("/v1/models", response_model=ModelsDocument, responses=problems.describe_errors(*REGISTRY))
async def models(request: Request, backend: UseBackend) -> Response:
    """The models in the registry, oldest first, and which of the caller's visible meshes use them. Empty if there is no
    registry."""
    return json_response(await backend.ask(backend.any_session.models.all, principal_of(request).meshes))


@router.get(
    "/v1/models/{version}/comparison",
    operation_id="compare_models",
    response_model=ComparisonOfModels,
    responses=problems.describe_errors(*REGISTRY, UnknownModel),
)
async def compare(version: Version, backend: UseBackend) -> Response:
    """How a model differs from its trial's baseline, over the stored snapshots that both scored: alerts, culprits and
    scores, with 95% intervals."""
    return json_response(await backend.ask(backend.any_session.models.compare, version))


@router.post(
    "/v1/models/{version}/canary",
    operation_id="try_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body(CanaryDocument, is_required=False),
    responses=problems.describe_errors(*CHANGE, UnknownModel, IncompatibleWeights),
)
async def try_model(version: Version, request: Request, backend: UseBackend) -> Response:
    """Try a model on a share of the meshes. On the other meshes it scores the same snapshots without alerts, as the
    model in use does on its meshes. Repeating the request changes the share."""
    document = await read_document(request, schema_decoder(CanaryDocument, empty=b"{}"))
    by = principal_of(request).name
    return json_response(await backend.ask(backend.any_session.models.try_out, version, document.share, by))


@router.post(
    "/v1/models/{version}/promote",
    operation_id="promote_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body(PromotionDocument, is_required=False),
    responses=problems.describe_errors(*CHANGE, UnknownModel, IncompatibleWeights, BadMeshName),
)
async def promote_model(version: Version, request: Request, backend: UseBackend) -> Response:
    """Make all meshes, or one, use a model from the next snapshot on. Meshes keep their state. If all meshes change,
    the previous model still scores the same snapshots until the trial ends. Repeating the request changes nothing."""
    document = await read_document(request, schema_decoder(PromotionDocument, empty=b"{}"))
    mesh = None if document.mesh is None else check_mesh_name(document.mesh)
    note_names(request, mesh)
    by = principal_of(request).name
    return json_response(await backend.ask(backend.any_session.models.promote, version, mesh, by))


@router.post(
    "/v1/models/rollback",
    operation_id="roll_back_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body(RollbackDocument, is_required=False),
    responses=problems.describe_errors(*CHANGE, BadMeshName),
)
async def roll_back_model(request: Request, backend: UseBackend) -> Response:
    """End a model's trial, or go back to the previous model, from the next snapshot on. With a mesh, remove this mesh's
    own model."""
    document = await read_document(request, schema_decoder(RollbackDocument, empty=b"{}"))
    mesh = None if document.mesh is None else check_mesh_name(document.mesh)
    note_names(request, mesh)
    by = principal_of(request).name
    return json_response(await backend.ask(backend.any_session.models.roll_back, mesh, document.reason, by))
