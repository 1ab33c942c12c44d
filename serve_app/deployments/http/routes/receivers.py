"""The route that sends a test alert."""

from fastapi import APIRouter, Request, Response

from serve_app.api.schemas.actions import ReceiverResult, TestAlertDocument, TestResultsDocument
from serve_app.deployments.http import problems
from serve_app.deployments.http.audit import note_names
from serve_app.deployments.http.bodies import by_schema, read_document
from serve_app.deployments.http.routes.dependencies import BUSY, WITH_A_BODY, UseBackend
from serve_app.deployments.http.routes.responses import describe_json_body, json_response
from serve_app.errors import InvalidParameter, UnknownReceiver

router = APIRouter(tags=["Service"])


@router.post(
    "/v1/receivers/test",
    operation_id="send_test_alert",
    response_model=TestResultsDocument,
    openapi_extra=describe_json_body(TestAlertDocument, is_required=False),
    responses=problems.describe_errors(InvalidParameter, *BUSY, *WITH_A_BODY, UnknownReceiver),
)
async def send_test_alert(request: Request, backend: UseBackend) -> Response:
    """Send a test alert to all receivers of notifications, or to some, and say which ones took it. Needs the scope
    `admin` for all meshes. PagerDuty, Slack and Grafana keep it open until a person closes it."""
    document = await read_document(request, by_schema(TestAlertDocument, empty=b"{}"))
    note_names(request, document.receiver)
    statuses = await backend.ask(backend.doors.receivers.send_test, document.receiver)
    return json_response(TestResultsDocument(receivers=[ReceiverResult.from_object(one) for one in statuses]))
