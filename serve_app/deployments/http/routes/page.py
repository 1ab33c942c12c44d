"""The page, its files, and the stream of verdicts that keeps it up to date."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from serve_app.api.schemas.base import Instant
from serve_app.deployments.http.access_control import access_rules, principal_of
from serve_app.deployments.http.interface import MeshName, describe_text
from serve_app.deployments.http.page_files import file_response
from serve_app.deployments.http.routes.dependencies import UseStreams, errors_of_mesh
from serve_app.deployments.http.streams import EVENTS
from serve_app.web import assets

router = APIRouter(tags=["Snapshots and verdicts"])


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return file_response(assets.page(), request.headers, assets.HEADERS)


@router.get("/docs", include_in_schema=False)
async def api_reference(request: Request) -> Response:
    """The API reference: Swagger UI, which reads `/openapi.json`."""
    return file_response(assets.api_reference(), request.headers, assets.HEADERS)


@router.get(
    "/v1/meshes/{mesh}/verdicts/stream",
    response_class=StreamingResponse,
    responses={**describe_text(EVENTS), **errors_of_mesh()},
)
async def stream(
    mesh: MeshName,
    request: Request,
    streams: UseStreams,
    since: Annotated[Instant | None, Query(description="begin with the verdict after this one")] = None,
    last_event_id: Annotated[str | None, Header(description="the same, as browsers send it")] = None,
) -> Response:
    """Verdicts as server-sent events named `verdict`: the data is a verdict, the id is its time. Begins with the newest
    verdict, or with the first after the last one seen. An event `changed` says that people changed something else."""
    is_valid = partial(access_rules().is_valid, principal_of(request))
    return await streams.open(mesh, _event_time(last_event_id) or since, is_valid)


def _event_time(event_id: str | None) -> datetime | None:
    """The time in one of our event ids; None for any other id."""
    try:
        at = datetime.fromisoformat(event_id or "")
    except ValueError:
        return None
    return at if at.tzinfo else None
