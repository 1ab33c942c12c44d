"""Routes of the models: the registry, and which meshes use which version."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from serve_app.api.schemas.models import ModelCard, ModelsDocument
from serve_app.deployments.http import problems
from serve_app.deployments.http.routes.dependencies import BUSY, UseBackend
from serve_app.deployments.http.routes.responses import json_response
from serve_app.deployments.session.queries import CardQuery, ModelsQuery
from serve_app.errors import InvalidParameter, RegistryGone, UnknownModel

router = APIRouter()
Version = Annotated[
    str, Path(max_length=80, description="version of a model, 16 hexadecimal digits", examples=["20197a285a383037"])
]
REGISTRY = (InvalidParameter, RegistryGone, *BUSY)


@router.get("/v1/models", response_model=ModelsDocument, responses=problems.describe_errors(*REGISTRY))
async def models(backend: UseBackend) -> Response:
    """The models of the registry, oldest first. Empty if there is no registry."""
    return json_response(await backend.ask(backend.sessions.read, ModelsQuery()))


@router.get(
    "/v1/models/{version}",
    operation_id="model_card",
    response_model=ModelCard,
    responses=problems.describe_errors(*REGISTRY, UnknownModel),
)
async def card(version: Version, backend: UseBackend) -> Response:
    """The card of a model: how it was made, what it reads, and the results of its training."""
    return json_response(await backend.ask(backend.sessions.read, CardQuery(version)))
