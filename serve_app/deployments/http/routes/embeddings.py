"""The route of the embeddings of a mesh."""

from fastapi import APIRouter, Response

from serve_app.api.codec import ARROW
from serve_app.deployments.http.interface import MeshName
from serve_app.deployments.http.routes.dependencies import UseBackend, errors_of_mesh

router = APIRouter(tags=["Meshes"])
ROW = {"type": "string", "format": "binary", "description": "one row a service"}


@router.get(
    "/v1/meshes/{mesh}/embeddings",
    response_class=Response,
    responses={**errors_of_mesh(), 200: {"content": {ARROW: {"schema": ROW}}}},
)
async def embeddings(mesh: MeshName, backend: UseBackend) -> Response:
    """The embeddings of the services of the newest snapshot, with how unusual each one is: an Arrow stream with the
    columns `service`, `deviation` and `embedding`. Time, model, status and score are metadata of its schema."""
    return Response(await backend.ask(backend.of(mesh).meshes.embeddings, mesh), media_type=ARROW)
