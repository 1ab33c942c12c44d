"""The route of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query

from serve_app.api.schemas.audit import AuditDocument
from serve_app.api.schemas.base import Instant
from serve_app.deployments.http import problems
from serve_app.deployments.http.audit import MAX_TEXT
from serve_app.deployments.http.routes.dependencies import BUSY, UseBackend
from serve_app.errors import InvalidParameter
from serve_app.stores.audit import AuditFilter

MAX_RECORDS = 1000
CURSOR = r"^[0-9]{18}-[A-Za-z0-9_-]{1,64}$"
Text = Annotated[str | None, Query(max_length=MAX_TEXT)]

router = APIRouter(tags=["Service"])


@router.get("/v1/audit", response_model=AuditDocument, responses=problems.describe_errors(InvalidParameter, *BUSY))
async def audit(
    backend: UseBackend,
    since: Annotated[Instant | None, Query(description="only records from this time on")] = None,
    until: Annotated[Instant | None, Query(description="only records before this time")] = None,
    user: Text = None,
    mesh: Text = None,
    action: Text = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS, description="maximum number")] = 100,
    cursor: Annotated[
        str | None, Query(pattern=CURSOR, description="`next` of the previous answer; repeat the other parameters")
    ] = None,
) -> AuditDocument:
    """Who changed what, when and from where, and who signed in; the newest records first. An answer may have fewer
    records than `limit` before the list ends. Needs the scope `admin` for all meshes."""
    wanted = AuditFilter(since, until, user, mesh, action, limit, cursor)
    return await backend.ask(backend.records.audit.page, wanted)
