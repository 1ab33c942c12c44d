"""Routes that read incidents, open and archived."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from model.verdict import IncidentKind, Severity
from serve_app.alerts.links import Links
from serve_app.api.schemas.base import MAX_TEAM, AskedService, Id, Instant, Text
from serve_app.api.schemas.incidents import ArchivedIncidentDocument, IncidentsDocument
from serve_app.deployments.http.interface import MeshName, describe_text, json_response
from serve_app.deployments.http.routes.dependencies import UseBackend, errors_of_mesh
from serve_app.errors import UnknownIncident
from serve_app.stores.records import IncidentFilter
from serve_app.web.assets import HEADERS
from serve_app.web.formats import ReportFormat

MEDIA_TYPES = {
    ReportFormat.HTML: "text/html",
    ReportFormat.MARKDOWN: "text/markdown",
    ReportFormat.SVG: "image/svg+xml",
}
MAX_ZONE = 64  # characters in a time zone's name
MAX_INCIDENTS = 500  # in one answer
CURSOR = "^-?[0-9]{1,16}~[0-9A-Za-z-]{1,100}$"  # µs since 1970, and an id
REPORT_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
IncidentId = Annotated[Id, Path(description="id from a verdict or a list", examples=["20260301T031200Z-1f3870be"])]

router = APIRouter(tags=["Incidents"])


@router.get("/v1/meshes/{mesh}/incidents", response_model=IncidentsDocument, responses=errors_of_mesh())
async def incidents(
    mesh: MeshName,
    backend: UseBackend,
    since: Annotated[Instant | None, Query(description="only those that were open after this time")] = None,
    until: Annotated[Instant | None, Query(description="only those that began before this time")] = None,
    service: Annotated[AskedService | None, Query(description="a suspect or an affected service")] = None,
    kind: Annotated[IncidentKind | None, Query(description="what is wrong")] = None,
    severity: Annotated[Severity | None, Query()] = None,
    team: Annotated[
        Text | None, Query(min_length=1, max_length=MAX_TEAM, description="team that the incident belongs to")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_INCIDENTS, description="maximum number")] = 100,
    cursor: Annotated[
        str | None,
        Query(pattern=CURSOR, description="`next` of the previous answer; repeat the other parameters"),
    ] = None,
) -> Response:
    """Without `since`, `until` and `cursor`: the incidents that are open in the newest verdict. Otherwise the open and
    archived incidents of a period, the newest first."""
    criteria = IncidentFilter(
        since=since,
        until=until,
        services=() if service is None else (service,),
        kind=kind,
        severity=None if severity is None else severity.rank,
        before=None if cursor is None else _read_cursor(cursor),
        limit=limit,
    )
    of_period = since is not None or until is not None or cursor is not None
    return json_response(await backend.ask(backend.api(mesh).incidents.overview, mesh, criteria, of_period, team))


@router.get(
    "/v1/meshes/{mesh}/incidents/{incident}",
    response_model=ArchivedIncidentDocument,
    responses=errors_of_mesh(UnknownIncident),
)
async def incident(mesh: MeshName, incident: IncidentId, backend: UseBackend) -> Response:
    """An incident, open or archived, at its highest score."""
    return json_response(await backend.ask(backend.api(mesh).incidents.detail, mesh, incident))


@router.get(
    "/v1/meshes/{mesh}/report",
    response_class=Response,
    responses={**describe_text(*MEDIA_TYPES.values()), **errors_of_mesh(UnknownIncident)},
)
async def report(
    mesh: MeshName,
    backend: UseBackend,
    incident: Annotated[Id | None, Query(description="id; by default the most severe")] = None,
    format: Annotated[ReportFormat, Query(description="a page, a text, or a picture")] = ReportFormat.HTML,
    timezone: Annotated[
        Text,
        Query(
            min_length=1,
            max_length=MAX_ZONE,
            description="name in the IANA time zone database, for the times in the report",
            examples=["Europe/Berlin"],
        ),
    ] = "UTC",
) -> Response:
    """A report on an incident, open or archived, as one file. In Markdown it also has the feedback."""
    links = Links.from_settings(backend.settings)
    text = await backend.ask(backend.api(mesh).reports.report, mesh, incident, format, links, timezone)
    return Response(text, media_type=MEDIA_TYPES[format], headers=HEADERS | REPORT_POLICY)


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    """Time and id of the previous page's last incident."""
    since, _, name = cursor.partition("~")
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(since)), name
