"""Routes of the models: the registry, and which meshes use which version."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from model.errors import IncompatibleWeights
from serve_app.api.schemas.models import (
    CanaryDocument,
    ComparisonOfModels,
    MeshTrialDocument,
    ModelCard,
    ModelsDocument,
    PromotionDocument,
    RollbackDocument,
    RolloutDocument,
)
from serve_app.deployments.http import problems
from serve_app.deployments.http.access_control import principal_of
from serve_app.deployments.http.audit import note_names
from serve_app.deployments.http.bodies import by_schema, read_document
from serve_app.deployments.http.interface import MeshName
from serve_app.deployments.http.routes.dependencies import BUSY, OF_A_MESH, WITH_A_BODY, UseBackend
from serve_app.deployments.http.routes.responses import describe_json_body, json_response
from serve_app.deployments.session.queries import CardQuery, ComparisonOfModelsQuery, ModelsQuery, TrialQuery
from serve_app.errors import (
    BadMeshName,
    InvalidParameter,
    RegistryGone,
    StoreConflict,
    StoreFull,
    UnfitModel,
    UnknownModel,
)
from serve_app.runtime.rpc import Caller
from serve_app.settings.base import check_mesh_name

router = APIRouter(tags=["Models"])
Version = Annotated[
    str, Path(max_length=80, description="version of a model, 16 hexadecimal digits", examples=["20197a285a383037"])
]
REGISTRY = (InvalidParameter, RegistryGone, *BUSY)
CHANGE = (*REGISTRY, *WITH_A_BODY, UnfitModel, StoreConflict, StoreFull)


@router.get("/v1/models", response_model=ModelsDocument, responses=problems.describe_errors(*REGISTRY))
async def models(request: Request, backend: UseBackend) -> Response:
    """The models of the registry, oldest first, and which of the meshes that the caller may see use them. Empty if
    there is no registry."""
    return json_response(await backend.ask(backend.sessions.read, ModelsQuery(principal_of(request).meshes)))


@router.get(
    "/v1/models/{version}",
    operation_id="model_card",
    response_model=ModelCard,
    responses=problems.describe_errors(*REGISTRY, UnknownModel),
)
async def card(version: Version, backend: UseBackend) -> Response:
    """The card of a model: how it was made, what it reads, and the results of its training."""
    return json_response(await backend.ask(backend.sessions.read, CardQuery(version)))


@router.get(
    "/v1/models/{version}/comparison",
    operation_id="compare_models",
    response_model=ComparisonOfModels,
    responses=problems.describe_errors(*REGISTRY, UnknownModel),
)
async def compare(version: Version, backend: UseBackend) -> Response:
    """Where a model differs from the one that it was tried against, over the kept snapshots that both scored: alerts,
    culprits, scores and cost, with 95% intervals."""
    return json_response(await backend.ask(backend.sessions.read, ComparisonOfModelsQuery(version)))


@router.get(
    "/v1/meshes/{mesh}/trial",
    response_model=MeshTrialDocument,
    responses=problems.describe_errors(*OF_A_MESH, UnknownModel),
)
async def trial(mesh: MeshName, backend: UseBackend) -> Response:
    """What both models of a trial made of the last snapshots of a mesh, and sums over the snapshots before."""
    return json_response(await backend.read(TrialQuery(mesh)))


@router.post(
    "/v1/models/{version}/canary",
    operation_id="try_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body("CanaryDocument", is_required=False),
    responses=problems.describe_errors(*CHANGE, UnknownModel, IncompatibleWeights),
)
async def try_model(version: Version, request: Request, backend: UseBackend) -> Response:
    """Try a model on a share of the meshes. On the others it scores the same snapshots without alerts, as the model in
    use does on its meshes. Repeating the request changes the share."""
    caller = Caller(backend.deadline())
    document = await read_document(request, by_schema(CanaryDocument, empty=b"{}"))
    by = principal_of(request).name
    return json_response(await caller.ask(backend.sessions.try_model, version, document.share, by))


@router.post(
    "/v1/models/{version}/promote",
    operation_id="promote_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body("PromotionDocument", is_required=False),
    responses=problems.describe_errors(*CHANGE, UnknownModel, IncompatibleWeights, BadMeshName),
)
async def promote_model(version: Version, request: Request, backend: UseBackend) -> Response:
    """Have all meshes use a model, or one, from the next snapshot on. Meshes keep their state. Of all meshes, the model
    before still scores the same snapshots until the trial ends. Repeating the request changes nothing."""
    caller = Caller(backend.deadline())
    document = await read_document(request, by_schema(PromotionDocument, empty=b"{}"))
    mesh = None if document.mesh is None else check_mesh_name(document.mesh)
    note_names(request, mesh)
    by = principal_of(request).name
    return json_response(await caller.ask(backend.sessions.promote_model, version, mesh, by))


@router.post(
    "/v1/models/rollback",
    operation_id="roll_back_model",
    response_model=RolloutDocument,
    openapi_extra=describe_json_body("RollbackDocument", is_required=False),
    responses=problems.describe_errors(*CHANGE, BadMeshName),
)
async def roll_back_model(request: Request, backend: UseBackend) -> Response:
    """End the trial of a model, or go back to the model before the one in use, from the next snapshot on. With a mesh,
    take away the model that this mesh has of its own."""
    caller = Caller(backend.deadline())
    document = await read_document(request, by_schema(RollbackDocument, empty=b"{}"))
    mesh = None if document.mesh is None else check_mesh_name(document.mesh)
    note_names(request, mesh)
    by = principal_of(request).name
    return json_response(await caller.ask(backend.sessions.roll_back_model, mesh, document.reason, by))
