"""Routes of embeddings: all of a mesh, and the services that are alike."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from serve_app.api.codec import ARROW
from serve_app.api.schemas.base import AskedService
from serve_app.api.schemas.embeddings import EmbeddingsDocument, SimilarDocument
from serve_app.deployments.http.interface import MeshName
from serve_app.deployments.http.routes.dependencies import UseBackend, errors_of_mesh
from serve_app.deployments.http.routes.responses import json_response

MOST_SIMILAR = 100

router = APIRouter(tags=["Meshes"])


@router.get(
    "/v1/meshes/{mesh}/embeddings",
    response_model=EmbeddingsDocument,
    responses={
        **errors_of_mesh(),
        200: {
            "content": {ARROW: {"schema": {"type": "string", "format": "binary", "description": "one row a service"}}}
        },
    },
)
async def embeddings(request: Request, mesh: MeshName, backend: UseBackend) -> Response:
    """The embeddings of the services of the newest snapshot, with how unusual each one is. With
    `Accept: application/vnd.apache.arrow.stream` as an Arrow stream with the columns `service`, `deviation` and
    `embedding`; time, model, status and score are metadata of its schema. In JSON at most 20,000 services."""
    meshes = backend.of(mesh).meshes
    if ARROW in request.headers.get("accept", ""):
        return Response(await backend.ask(meshes.embeddings_arrow, mesh), media_type=ARROW)
    return json_response(await backend.ask(meshes.embeddings_json, mesh))


@router.get("/v1/meshes/{mesh}/similar", response_model=SimilarDocument, responses=errors_of_mesh())
async def similar(
    mesh: MeshName,
    backend: UseBackend,
    service: Annotated[AskedService, Query()],
    limit: Annotated[int, Query(ge=1, le=MOST_SIMILAR, description="maximum number")] = 5,
) -> Response:
    """The services that behave most like one service now, by their embeddings."""
    return json_response(await backend.ask(backend.of(mesh).meshes.similar, mesh, service, limit))
