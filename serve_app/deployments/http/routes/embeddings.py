"""The route of the embeddings of a mesh."""

from fastapi import APIRouter, Request, Response

from serve_app.api.codec import ARROW
from serve_app.api.schemas.embeddings import EmbeddingsDocument
from serve_app.deployments.http.interface import MeshName
from serve_app.deployments.http.routes.dependencies import UseBackend, errors_of_mesh
from serve_app.deployments.http.routes.responses import json_response

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
