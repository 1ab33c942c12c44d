"""Records of refused requests for the audit log."""

import secrets
from datetime import UTC, datetime

from serve_app.access.audit import AuditRecord
from serve_app.access.control import Access, Client, Headers, Principal
from serve_app.errors import Forbidden, ServeError, TooManyFailedLogins, Unauthenticated, answer

REFUSED = "refused"  # the action in these records


def record_refusal(access: Access, error: ServeError, headers: Headers, client: Client) -> AuditRecord | None:
    """The record of a request that access control refused, to be counted; None if the caller showed nothing wrong: a
    page without a sign-in is no attempt to break in.

    Args:
        access: that refused it.
        error: why.
        headers, client: of the request, as of :meth:`Access.check`.
    """
    is_wrong_token = isinstance(error, Unauthenticated) and "reason" in error.details
    if not is_wrong_token and not isinstance(error, Forbidden | TooManyFailedLogins):
        return None
    headers = list(headers)
    principal = access.identify(headers, client) or Principal()
    return AuditRecord(
        secrets.token_urlsafe(12),
        datetime.now(UTC).replace(minute=0, second=0, microsecond=0),
        principal.name,
        principal.way_in,
        REFUSED,
        "",
        address=access.locate(headers, client),
        subject=principal.user.subject if principal.user else "",
        status=answer(error).status,
    )
