"""Documents of the audit log."""

from pydantic import Field

from serve_app.api.schemas.base import Document, Instant


class AuditRecordDocument(Document):
    """One change, or one sign-in or sign-out."""

    id: str = Field(description="of the record", examples=["Zk3v0Q5kQ2y1bB0s"])
    at: Instant
    user: str = Field(description="name of the token or user; empty: unknown", examples=["ada"])
    subject: str = Field(description="the user's at the OpenID provider, where names can change; empty: none")
    way: str = Field(
        description="how the user was identified: `token`, `oidc`, `proxy` or `anonymous`; empty: not at all"
    )
    action: str = Field(description="name of the operation, or `sign_in`, `sign_out`", examples=["add_mute"])
    route: str = Field(description="method and path", examples=["POST /v1/meshes/{mesh}/mutes"])
    mesh: str = Field(description="empty: none", examples=["shop"])
    names: list[str] = Field(description="what was changed: ids, versions, services", examples=[["shop/cart"]])
    address: str = Field(description="of the client, behind trusted proxies too")
    request: str = Field(description="`X-Request-ID` of the request, or a random id")
    status: int | None = Field(
        description="HTTP status of the answer; null: unknown, so the change may have been made", examples=[200]
    )


class AuditDocument(Document):
    """A part of the audit log, the newest records first."""

    records: list[AuditRecordDocument]
    next: str | None = Field(description="`cursor` of the next request, which gets the rest; null: this was all")
