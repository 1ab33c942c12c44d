"""Responses of routes, and the descriptions of bodies for OpenAPI."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from serve_app.api.codec import ARROW, JSON
from serve_app.api.schemas.base import Document
from serve_app.deployments.http.interface import refer_to


def json_response(document: bytes | Document, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document; bytes are encoded already."""
    if isinstance(document, Document):
        document = document.model_dump_json().encode()
    return Response(document, headers=headers, media_type=JSON)


def describe_body(document: type[Document]) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads snapshots in JSON or Arrow."""
    forms = {
        JSON: {"schema": refer_to(document)},
        ARROW: {
            "schema": {"type": "string", "format": "binary", "description": "`Table.from_pylist([snapshot, ...])`"}
        },
    }
    return {"requestBody": {"required": True, "content": forms}}


def describe_json_body(*documents: type[Document], is_required: bool = True) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads one of these documents, in JSON only, or nothing if none is required."""
    schemas = [refer_to(document) for document in documents]
    schema = {"anyOf": schemas} if len(schemas) > 1 else schemas[0]
    return {"requestBody": {"required": is_required, "content": {JSON: {"schema": schema}}}}


def describe_text(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with text of one of these types."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in media_types}}}
